"""What agents' DNS responders are told of Services: the ready endpoints, as new as what was written."""

import asyncio
from typing import Any

import httpx
import pytest

from app.api.auth.authenticator import NODES, User
from app.api.auth.tokens import issue
from app.client.protocol import ServiceEndpoint, ServicePortRecord, ServiceRecords, ServiceSlice
from app.kinds.core.endpointslice import KIND as SLICES
from app.kinds.core.endpointslice import Endpoint, EndpointPort, EndpointSlice
from app.kinds.core.endpointslice_schema import EndpointConditions
from app.kinds.core.namespace import KIND as NAMESPACES
from app.kinds.core.namespace import Namespace
from app.kinds.core.service import KIND as SERVICES
from app.kinds.core.service import Service, ServiceSpec
from app.kinds.pod.pod import KIND as PODS
from app.machinery.base import ObjectMeta
from app.machinery.meta.meta_schema import ObjectReference
from app.registry.agents.service_cache import LINGER
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from tests.conftest import NO_TLS, Clock
from tests.registry.examples import create, example, named

BASE = "/apis/agents.jobplane.dev/v1/nodes"


async def a_service(registry: Registry, **spec: Any) -> None:
    given = ServiceSpec(**({"cluster_ip": "None"} | spec))
    await create(registry, SERVICES, Service(metadata=ObjectMeta(name="ring"), spec=given))


async def a_slice(registry: Registry, name: str, *endpoints: Endpoint) -> None:
    meta = ObjectMeta(name=name, labels={"kubernetes.io/service-name": "ring"})
    ports = (EndpointPort(name="http", port=80, protocol="TCP"),)
    await create(registry, SLICES, EndpointSlice(metadata=meta, address_type="IPv4", endpoints=endpoints, ports=ports))


def endpoint(address: str, hostname: str | None = None, ready: bool | None = None, pod: str = "") -> Endpoint:
    target = ObjectReference(kind="Pod", uid=pod) if pod else None
    return Endpoint(
        addresses=(address,), hostname=hostname, conditions=EndpointConditions(ready=ready), target_ref=target
    )


async def test_the_ready_endpoints_of_a_service_are_told(registry: Registry) -> None:
    await a_slice(registry, "one", endpoint("10.0.0.1", "w-0"), endpoint("10.0.0.2", "w-1", ready=False))
    assert await registry.services.records("default", "ring") == ServiceRecords()
    await a_service(registry)

    told = ServiceSlice(
        endpoints=(ServiceEndpoint(("10.0.0.1",), "w-0"),), ports=(ServicePortRecord("http", "tcp", 80),)
    )
    assert await registry.services.records("default", "ring") == ServiceRecords(found=True, slices=(told,))
    assert (await registry.services.names("10.0.0.1")).names == ["w-0.ring.default.svc"]
    assert (await registry.services.names("10.0.0.2")).names == []


async def test_what_changes_is_told_anew(registry: Registry) -> None:
    assert not await registry.services.has_services("default")
    await a_service(registry)
    assert await registry.services.has_services("default")
    assert (await registry.services.records("default", "ring")).slices == ()
    for name, address in (("one", "10.0.0.1"), ("two", "10.0.0.1")):
        await a_slice(registry, name, endpoint(address, "w-0"))
    assert len((await registry.services.records("default", "ring")).slices) == 2

    await objects.delete(registry, SLICES, "default", "one", Demand())
    assert len((await registry.services.records("default", "ring")).slices) == 1
    assert (await registry.services.names("10.0.0.1")).names == ["w-0.ring.default.svc"]
    await objects.delete(registry, SERVICES, "default", "ring", Demand())
    assert await registry.services.records("default", "ring") == ServiceRecords()
    assert (await registry.services.names("10.0.0.1")).names == []
    assert not await registry.services.has_services("default")


async def test_the_name_of_a_pod_that_has_ended_stays_for_a_while(registry: Registry, clock: Clock) -> None:
    await a_service(registry)
    await a_slice(registry, "one", endpoint("10.0.0.1", "w-0"), endpoint("10.0.0.2"))
    assert (await registry.services.records("default", "ring")).recent == ()

    await objects.delete(registry, SLICES, "default", "one", Demand())
    records = await registry.services.records("default", "ring")
    assert (records.slices, records.recent) == ((), (ServiceEndpoint(("10.0.0.1",), "w-0"),))
    clock.move(seconds=LINGER)
    assert await registry.services.records("default", "ring") == ServiceRecords(found=True)


async def test_the_name_of_a_pod_that_has_ended_goes_to_another_that_is_not_ready_yet(registry: Registry) -> None:
    await a_service(registry)
    await a_slice(registry, "one", endpoint("10.0.0.1", "w-0"), endpoint("10.0.0.2", "w-1"))
    await registry.services.records("default", "ring")
    await objects.delete(registry, SLICES, "default", "one", Demand())

    await a_slice(registry, "two", endpoint("10.0.0.3", "w-0", ready=False))
    records = await registry.services.records("default", "ring")
    assert records.recent == (ServiceEndpoint(("10.0.0.2",), "w-1"),)


@pytest.mark.parametrize("first", ["slice", "pod"])
async def test_the_name_of_a_pod_that_is_deleted_goes_with_it(registry: Registry, first: str) -> None:
    """Whichever is deleted first, the pod or its slice."""
    await a_service(registry)
    uids = [(await create(registry, PODS, named(example(PODS), name=name))).metadata.uid for name in ("a", "b")]
    endpoints = [endpoint(f"10.0.0.{index}", f"w-{index}", pod=uid) for index, uid in enumerate(uids)]
    await a_slice(registry, "one", *endpoints)
    await registry.services.records("default", "ring")

    now = Demand(grace_seconds=0)
    deletions = [
        objects.delete(registry, SLICES, "default", "one", now),
        objects.delete(registry, PODS, "default", "a", now),
    ]
    for each in deletions if first == "slice" else reversed(deletions):
        await each
    records = await registry.services.records("default", "ring")
    assert records.recent == (ServiceEndpoint(("10.0.0.1",), "w-1"),)


async def test_pods_that_are_deleted_are_noticed_though_the_first_who_asked_has_gone(registry: Registry) -> None:
    feed = registry.store.feed
    async with feed._lock:
        asking = asyncio.create_task(registry.services.has_services("default"))
        await asyncio.sleep(0)
        asking.cancel()
        await asyncio.wait([asking])

    await a_service(registry)
    uid = (await create(registry, PODS, example(PODS))).metadata.uid
    await a_slice(registry, "one", endpoint("10.0.0.1", "w-0", pod=uid))
    await registry.services.records("default", "ring")
    await objects.delete(registry, PODS, "default", example(PODS).metadata.name, Demand(grace_seconds=0))
    await objects.delete(registry, SLICES, "default", "one", Demand())
    assert (await registry.services.records("default", "ring")).recent == ()


async def test_a_service_made_anew_has_no_names_of_the_one_before(registry: Registry) -> None:
    await a_service(registry)
    await a_slice(registry, "one", endpoint("10.0.0.1", "w-0"))
    await registry.services.records("default", "ring")

    await objects.delete(registry, SERVICES, "default", "ring", Demand())
    await objects.delete(registry, SLICES, "default", "one", Demand())
    await a_service(registry)
    assert await registry.services.records("default", "ring") == ServiceRecords(found=True)


async def test_a_slice_of_another_namespace_adds_nothing(registry: Registry) -> None:
    await create(registry, NAMESPACES, named(Namespace(), name="theirs"))
    await a_service(registry)
    meta = ObjectMeta(name="lie", namespace="theirs", labels={"kubernetes.io/service-name": "ring"})
    lie = EndpointSlice(metadata=meta, address_type="IPv4", endpoints=(endpoint("192.0.2.66"),))
    await create(registry, SLICES, lie)

    assert (await registry.services.records("default", "ring")).slices == ()


async def test_agents_are_told_and_nobody_else(registry: Registry, url: str) -> None:
    await a_service(registry)
    await a_slice(registry, "one", endpoint("10.0.0.1", "w-0"))
    token = await issue(registry, User(name="system:node:n", groups=(NODES,), nodes=("n",)))
    other = await issue(registry, User(name="system:serviceaccount:default:default"))
    async with httpx.AsyncClient(base_url=url, verify=NO_TLS) as client:
        answers = [
            await client.get(f"{BASE}/n/{path}", headers={"Authorization": f"Bearer {each}"})
            for each in (token, other)
            for path in ("services/default/ring", "addresses/10.0.0.1", "namespaces/default", f"services/{'x' * 254}/r")
        ]

    assert [each.status_code for each in answers] == [200, 200, 200, 400, 403, 403, 403, 403]
    assert answers[0].json() == {
        "found": True,
        "slices": [{"endpoints": [[["10.0.0.1"], "w-0"]], "ports": [["http", "tcp", 80]]}],
    }
    assert answers[1].json() == {"names": ["w-0.ring.default.svc"]}
    assert answers[2].json()["services"] is True
