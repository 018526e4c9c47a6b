"""What names of the cluster's domain ask for, and which records answer them."""

import msgspec
import pytest

from app.agent.network.service_names import Asked, Record, answer, is_inside, parse, pointer_address
from app.client.protocol import ServiceEndpoint, ServicePortRecord, ServiceRecords, ServiceSlice

RING = "ring.team.svc.cluster.local"
TWO = ServiceRecords(
    found=True,
    slices=(
        ServiceSlice(
            endpoints=(ServiceEndpoint(("10.0.0.1",), "w-0"), ServiceEndpoint(("10.0.0.2",))),
            ports=(ServicePortRecord("http", "tcp", 8080),),
        ),
        ServiceSlice(endpoints=(ServiceEndpoint(("fd00::3",), "w-3"),)),
    ),
)


@pytest.mark.parametrize(
    ("name", "asked"),
    [
        ("ring.team.svc.cluster.local", Asked("team", "ring")),
        ("w-0.ring.team.svc.cluster.local", Asked("team", "ring", "w-0")),
        ("_http._tcp.ring.team.svc.cluster.local", Asked("team", "ring", port="http", protocol="tcp")),
        ("cluster.local", None),
        ("svc.cluster.local", None),
        ("team.svc.cluster.local", None),
        ("ring.team.pod.cluster.local", None),
        ("a.b.ring.team.svc.cluster.local", None),
        ("a.b.c.ring.team.svc.cluster.local", None),
        ("_http.ring.team.svc.cluster.local", None),
        ("..svc.cluster.local", None),
        ("../secrets.team.svc.cluster.local", None),
        (f"{'x' * 64}.team.svc.cluster.local", None),
        ("ring.te/am.svc.cluster.local", None),
    ],
)
def test_names(name: str, asked: Asked | None) -> None:
    assert parse(name) == asked


def test_only_the_cluster_s_domain_is_answered_here() -> None:
    assert is_inside("ring.team.svc.cluster.local")
    assert not is_inside("notcluster.local")
    assert not is_inside("example.com")


def test_a_service_has_the_addresses_of_its_endpoints() -> None:
    assert answer(Asked("team", "ring"), TWO).answers == [
        Record(RING, "A", "10.0.0.1"),
        Record(RING, "A", "10.0.0.2"),
        Record(RING, "AAAA", "fd00::3"),
    ]


@pytest.mark.parametrize(
    ("label", "addresses"), [("w-0", ["10.0.0.1"]), ("10-0-0-2", ["10.0.0.2"]), ("w-3", ["fd00::3"]), ("w-1", [])]
)
def test_an_endpoint_has_its_host_name_or_its_address_with_dashes(label: str, addresses: list[str]) -> None:
    assert [each.data for each in answer(Asked("team", "ring", label), TWO).answers] == addresses


def test_a_pod_that_has_ended_keeps_its_own_name_for_a_while() -> None:
    gone = msgspec.structs.replace(
        TWO, recent=(ServiceEndpoint(("10.0.0.9",), "w-9"), ServiceEndpoint(("10.0.0.8",), "w-0"))
    )

    assert [each.data for each in answer(Asked("team", "ring", "w-9"), gone).answers] == ["10.0.0.9"]
    assert [each.data for each in answer(Asked("team", "ring", "w-0"), gone).answers] == ["10.0.0.1"]
    assert len(answer(Asked("team", "ring"), gone).answers) == 3


def test_a_port_has_the_names_of_the_endpoints_and_their_addresses() -> None:
    found = answer(Asked("team", "ring", port="http", protocol="tcp"), TWO)

    name = f"_http._tcp.{RING}"
    assert found.answers == [Record(name, "SRV", f"8080 w-0.{RING}"), Record(name, "SRV", f"8080 10-0-0-2.{RING}")]
    assert found.additional == [Record(f"w-0.{RING}", "A", "10.0.0.1"), Record(f"10-0-0-2.{RING}", "A", "10.0.0.2")]
    assert not answer(Asked("team", "ring", port="http", protocol="udp"), TWO).answers


def test_an_external_name_is_an_alias() -> None:
    outside = ServiceRecords(found=True, external_name="Example.com.")

    assert answer(Asked("team", "ring"), outside).answers == [Record(RING, "CNAME", "example.com")]
    assert not answer(Asked("team", "ring", "w-0"), outside).answers


@pytest.mark.parametrize(
    ("name", "address"),
    [
        ("4.3.2.10.in-addr.arpa", "10.2.3.4"),
        ("3.2.10.in-addr.arpa", ""),
        ("x.3.2.10.in-addr.arpa", ""),
        (f"3.{'0.' * 27}0.0.d.f.ip6.arpa", "fd00:0000:0000:0000:0000:0000:0000:0003"),
        ("example.com", ""),
        ("", ""),
    ],
)
def test_reverse_names(name: str, address: str) -> None:
    assert pointer_address(name) == address
