"""Which EndpointSlices a Service has: an endpoint for each pod, in slices of at most 100, each rewritten only if it changes."""

from collections.abc import Callable, Sequence
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from app.kinds.core.endpointslice import EndpointSlice
from app.kinds.core.service import Service, ServicePort, ServiceSpec
from app.kinds.pod.container import Container, ContainerPort
from app.kinds.pod.pod import Pod, PodIP
from app.machinery.base import ObjectMeta
from app.plans.endpoint_slices import MOST, plan
from app.plans.plan import Action, Create, Delete, Update
from tests.build import LONG_AGO, a_pod


def a_service(**spec: Any) -> Service:
    meta = ObjectMeta(name="ring", namespace="default", uid="uid-of-ring", labels={"team": "a"})
    return Service(metadata=meta, spec=ServiceSpec(**({"cluster_ip": "None", "selector": {"app": "w"}} | spec)))


def pod(number: int, *, ip: str | None = None, ready: bool = True, **how: Any) -> Pod:
    spec = {name: how.pop(name) for name in ("hostname", "subdomain", "node_name") if name in how}
    made = a_pod(name=f"w-{number}", ready=ready, **how)
    address = f"10.0.{number // 250}.{number % 250 + 1}" if ip is None else ip
    status = replace(made.status, pod_ip=address, pod_ips=(PodIP(ip=address),) if address else ())
    meta = replace(made.metadata, uid=f"uid-{number}")
    return replace(made, metadata=meta, spec=replace(made.spec, **spec), status=status)


def names() -> Callable[[str], str]:
    numbers = count()
    return lambda prefix: f"{prefix}{next(numbers)}"


def apply(actions: Sequence[Action], slices: Sequence[EndpointSlice]) -> list[EndpointSlice]:
    """The slices afterwards."""
    after = {each.metadata.name: each for each in slices}
    for action in actions:
        if isinstance(action, Delete):
            del after[action.object.metadata.name]
        elif isinstance(action, Create | Update) and isinstance(action.object, EndpointSlice):
            after[action.object.metadata.name] = action.object
    return list(after.values())


def made(service: Service, *pods: Pod) -> list[EndpointSlice]:
    return apply(plan(service, pods, (), names()).actions, ())


def test_a_pod_is_an_endpoint_by_its_address_and_its_name() -> None:
    (piece,) = made(a_service(), pod(0, hostname="w-0", subdomain="ring", node_name="n"))

    assert (piece.address_type, piece.metadata.generate_name, piece.metadata.namespace) == ("IPv4", "ring-", "default")
    assert piece.metadata.labels == {
        "team": "a",
        "kubernetes.io/service-name": "ring",
        "endpointslice.kubernetes.io/managed-by": "endpointslice-controller.k8s.io",
        "service.kubernetes.io/headless": "",
    }
    (owner,) = piece.metadata.owner_references
    assert (owner.kind, owner.uid, owner.controller) == ("Service", "uid-of-ring", True)
    (endpoint,) = piece.endpoints
    assert (endpoint.addresses, endpoint.hostname, endpoint.node_name) == (("10.0.0.1",), "w-0", "n")
    assert endpoint.target_ref
    assert (endpoint.target_ref.kind, endpoint.target_ref.name, endpoint.target_ref.uid) == ("Pod", "w-0", "uid-0")


def test_a_host_name_counts_only_under_the_pod_s_own_subdomain() -> None:
    (piece,) = made(a_service(), pod(0, hostname="w-0", subdomain="other"), pod(1, subdomain="ring"))

    assert [each.hostname for each in piece.endpoints] == [None, None]


@pytest.mark.parametrize(
    ("how", "spec", "conditions"),
    [
        ({}, {}, (True, True, False)),
        ({"ready": False}, {}, (False, False, False)),
        ({"ready": False}, {"publish_not_ready_addresses": True}, (True, False, False)),
        ({"deleted_at": LONG_AGO}, {}, (False, True, True)),
        ({"ip": ""}, {}, None),
        ({"phase": "Succeeded"}, {}, None),
        ({"phase": "Failed"}, {}, None),
        ({"ip": "fd00::1"}, {}, None),
        ({"ip": "fd00::1"}, {"ip_families": ("IPv6",)}, (True, True, False)),
    ],
    ids=str,
)
def test_conditions_tell_how_a_pod_fares(
    how: dict[str, Any], spec: dict[str, Any], conditions: tuple[bool, bool, bool] | None
) -> None:
    (piece,) = made(a_service(**spec), pod(0, **how))

    found = [(each.conditions.ready, each.conditions.serving, each.conditions.terminating) for each in piece.endpoints]
    assert found == ([conditions] if conditions else [])


def test_ports_are_those_of_the_pods() -> None:
    ports = (
        ServicePort(name="web", protocol="TCP", port=80, target_port="http"),
        ServicePort(name="db", protocol="TCP", port=5432, target_port=5432),
        ServicePort(name="none", protocol="TCP", port=1, target_port="absent"),
    )
    main = Container(name="main", ports=(ContainerPort(name="http", container_port=8080, protocol="TCP"),))
    listening = pod(0)
    listening = replace(listening, spec=replace(listening.spec, containers=(main,)))

    pieces = made(a_service(ports=ports), listening, pod(1))

    found = {each.endpoints[0].addresses[0]: [(port.name, port.port) for port in each.ports] for each in pieces}
    assert found == {"10.0.0.1": [("web", 8080), ("db", 5432)], "10.0.0.2": [("db", 5432)]}


def test_a_service_without_pods_has_an_empty_slice_that_is_filled() -> None:
    service = a_service()
    empty = made(service)
    assert [each.endpoints for each in empty] == [()]

    after = apply(plan(service, [pod(0)], empty, names()).actions, empty)

    assert [(each.metadata.name, len(each.endpoints)) for each in after] == [(empty[0].metadata.name, 1)]
    assert plan(service, [pod(0)], after, names()).actions == ()


def test_a_change_of_one_pod_rewrites_one_slice() -> None:
    service, pods = a_service(), [pod(number) for number in range(2 * MOST + 50)]
    before = made(service, *pods)
    assert sorted(len(each.endpoints) for each in before) == [50, MOST, MOST]

    pods[7] = pod(7, ready=False)
    (change,) = plan(service, pods, before, names()).actions

    assert isinstance(change, Update)
    assert isinstance(change.object, EndpointSlice)
    assert change.object.metadata.generation == 1


@given(some.lists(some.sets(some.integers(0, 2 * MOST + 20)), min_size=1, max_size=4))
def test_whatever_comes_and_goes_each_pod_is_there_once(steps: list[set[int]]) -> None:
    service, slices, new = a_service(), [], names()
    for step in steps:
        pods = [pod(number) for number in step]
        slices = apply(plan(service, pods, slices, new).actions, slices)
        uids = [each.target_ref.uid for piece in slices for each in piece.endpoints if each.target_ref]
        assert sorted(uids) == sorted(each.metadata.uid for each in pods)
        assert all(len(each.endpoints) <= MOST for each in slices)
        assert len(slices) == 1 or all(each.endpoints for each in slices)
        assert plan(service, pods, slices, new).actions == ()
