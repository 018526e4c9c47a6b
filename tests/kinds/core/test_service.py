"""Services, and the slices of endpoints behind them: kept as Kubernetes would keep them, with no address given out."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.core.endpointslice import KIND as SLICES
from app.kinds.core.endpointslice import Endpoint, EndpointPort, EndpointSlice
from app.kinds.core.service import KIND, Service, ServicePort, ServiceSpec
from app.kinds.core.service_schema import ServiceStatus
from app.machinery.base import Kind, ObjectMeta
from app.machinery.decoding.decode import decode
from app.machinery.meta.meta_condition import Condition
from tests.build import LONG_AGO, NOW

WEB = ServicePort(port=80)


def a_service(name: str = "web", **spec: Any) -> Service:
    metadata = ObjectMeta(name=name, creation_timestamp=LONG_AGO)
    return KIND.prepare(Service(metadata=metadata, spec=ServiceSpec(**({"ports": (WEB,)} | spec))))


def faults(kind: Kind, obj: Any) -> list[str]:
    return [f"{cause.field}: {cause.message}" for cause in kind.validate(obj)]


def test_the_defaults() -> None:
    spec = a_service().spec

    assert (spec.type, spec.session_affinity, spec.internal_traffic_policy) == ("ClusterIP", "None", "Cluster")
    assert spec.ports == (ServicePort(port=80, protocol="TCP", target_port=80),)
    assert (spec.cluster_ip, spec.cluster_ips) == ("", ())
    assert (spec.ip_families, spec.ip_family_policy) == (("IPv4",), "SingleStack")


@pytest.mark.parametrize(
    ("spec", "warned"),
    [
        pytest.param({}, True, id="one that promises to route"),
        pytest.param({"type": "NodePort"}, True, id="one on every node"),
        pytest.param({"cluster_ip": "None"}, False, id="a headless one"),
        pytest.param({"type": "ExternalName", "external_name": "example.com", "ports": ()}, False, id="an alias"),
    ],
)
def test_that_nothing_routes_is_told_of(spec: dict[str, Any], warned: bool) -> None:
    service = a_service(**spec)

    assert faults(KIND, service) == []
    assert bool(KIND.warnings(service, None)) is warned
    assert KIND.warnings(service, service) == []
    assert KIND.prepare(service) == service


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        pytest.param({"ports": ()}, "spec.ports: Required value", id="no ports"),
        pytest.param(
            {"ports": (WEB, ServicePort(port=81, name="b"))}, "spec.ports[0].name: Required value", id="two, unnamed"
        ),
        pytest.param(
            {"ports": (ServicePort(port=0, target_port=1),)},
            "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
            id="port zero",
        ),
        pytest.param(
            {"ports": (ServicePort(port=80, protocol="GRE"),)},
            'spec.ports[0].protocol: Unsupported value: "GRE": supported values: "SCTP", "TCP", "UDP"',
            id="an unknown protocol",
        ),
        pytest.param(
            {"ports": (ServicePort(port=80, node_port=30080),)},
            "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
            id="a node port that nobody would open",
        ),
        pytest.param(
            {"type": "Magic"},
            'spec.type: Unsupported value: "Magic": '
            'supported values: "ClusterIP", "ExternalName", "LoadBalancer", "NodePort"',
            id="an unknown type",
        ),
        pytest.param(
            {"type": "NodePort", "cluster_ip": "None"},
            "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services",
            id="headless on every node",
        ),
        pytest.param(
            {"type": "ExternalName", "ports": ()}, "spec.externalName: Required value", id="an alias of nothing"
        ),
        pytest.param(
            {"cluster_ip": "somewhere"},
            'spec.clusterIPs[0]: Invalid value: "somewhere": '
            "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            id="no address",
        ),
        pytest.param(
            {"external_ips": ("127.0.0.1",)},
            'spec.externalIPs[0]: Invalid value: "127.0.0.1": may not be in the loopback range (127.0.0.0/8, ::1/128)',
            id="an address of this machine",
        ),
    ],
)
def test_refused(spec: dict[str, Any], fault: str) -> None:
    assert faults(KIND, a_service(**spec)) == [fault]


def test_a_name_begins_with_a_letter() -> None:
    assert "a DNS-1035 label must consist of" in faults(KIND, a_service(name="1st"))[0]


def test_an_address_once_there_stays() -> None:
    old = a_service(cluster_ip="10.0.0.1")
    kept = KIND.on_update(a_service(), old)
    moved = KIND.on_update(a_service(cluster_ip="10.0.0.2"), old)

    assert kept.spec.cluster_ips == ("10.0.0.1",)
    assert KIND.validate_update(kept, old) == []
    assert [cause.message for cause in KIND.validate_update(moved, old)] == [
        'Invalid value: ["10.0.0.2"]: may not change once set'
    ]


def test_a_condition_is_whole() -> None:
    status = ServiceStatus(conditions=(Condition(type="example.com/Ready", status="True", reason="Up"),))

    causes = KIND.validate_status(replace(a_service(), status=status), a_service())

    assert [cause.field for cause in causes] == ["status.conditions[0].lastTransitionTime"]


def test_what_a_type_has_no_use_for_goes_with_the_type() -> None:
    old = a_service(type="LoadBalancer", ports=(ServicePort(port=80, node_port=30080),))
    new = KIND.on_update(KIND.prepare(replace(old, spec=replace(old.spec, type="ClusterIP"))), old)

    assert faults(KIND, new) == []
    assert new.spec.ports[0].node_port == 0


@pytest.mark.parametrize(
    ("spec", "cells"),
    [
        pytest.param({}, ["ClusterIP", "<none>", "<none>", "80/TCP"], id="a plain one"),
        pytest.param({"cluster_ip": "None", "ports": ()}, ["ClusterIP", "None", "<none>", "<none>"], id="a headless"),
        pytest.param(
            {"type": "LoadBalancer", "ports": (ServicePort(port=80, node_port=30080),)},
            ["LoadBalancer", "<none>", "<pending>", "80:30080/TCP"],
            id="one that waits for a load balancer",
        ),
    ],
)
def test_the_row(spec: dict[str, Any], cells: list[str]) -> None:
    assert KIND.row(a_service(**spec, selector={"b": "2", "a": "1"}), NOW) == ["web", *cells, "120m", "a=1,b=2"]


def a_slice(address_type: str = "IPv4", *addresses: str, ports: tuple[EndpointPort, ...] = ()) -> EndpointSlice:
    endpoints = tuple(Endpoint(addresses=(each,)) for each in addresses)
    metadata = ObjectMeta(name="web-1", creation_timestamp=LONG_AGO)
    made = EndpointSlice(metadata=metadata, address_type=address_type, endpoints=endpoints, ports=ports)
    return SLICES.prepare(made)


@pytest.mark.parametrize(
    ("piece", "fault"),
    [
        pytest.param(a_slice(""), "addressType: Required value", id="no type"),
        pytest.param(
            a_slice("IPv6", "10.0.0.1"),
            'endpoints[0].addresses[0]: Invalid value: "10.0.0.1": must be a valid IPv6 address',
            id="an address of another type",
        ),
        pytest.param(
            replace(a_slice(), endpoints=(Endpoint(),)),
            "endpoints[0].addresses: Required value: must contain at least 1 address",
            id="an endpoint nowhere",
        ),
        pytest.param(
            a_slice(ports=(EndpointPort(port=1), EndpointPort(port=2))),
            'ports[1].name: Duplicate value: ""',
            id="two ports of one name",
        ),
    ],
)
def test_a_slice_is_refused(piece: EndpointSlice, fault: str) -> None:
    assert faults(SLICES, piece) == [fault]


def test_the_type_of_a_slice_stays() -> None:
    assert [cause.field for cause in SLICES.validate_update(a_slice("IPv6"), a_slice())] == ["addressType"]


def test_the_row_of_a_slice_shows_the_first_three() -> None:
    piece = a_slice("IPv4", *(f"10.0.0.{number}" for number in range(1, 6)), ports=(EndpointPort(port=80),))

    assert SLICES.row(piece, NOW) == ["web-1", "IPv4", "80", "10.0.0.1,10.0.0.2,10.0.0.3 + 2 more...", "120m"]
    assert SLICES.row(a_slice(), NOW)[2:4] == ["<unset>", "<unset>"]


def test_endpoints_are_there_even_if_there_are_none() -> None:
    assert decode(b'{"addressType": "IPv4"}', EndpointSlice).object == EndpointSlice(address_type="IPv4")
