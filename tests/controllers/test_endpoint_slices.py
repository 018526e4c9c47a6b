"""EndpointSlices follow pods and Services on a real database, and nothing is written that nobody would notice."""

from typing import Any

from msgspec.structs import replace

from app.client.protocol import StatusReport
from app.controllers.endpoint_slices import EndpointSliceController
from app.kinds.core.endpointslice import KIND as SLICES
from app.kinds.core.service import KIND as SERVICES
from app.kinds.core.service import Service, ServiceSpec
from app.kinds.pod.pod import KIND as PODS
from app.machinery.base import Condition, ObjectMeta
from app.registry.agents.status_reports import accept
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from tests.controllers.running import every, running, settled, until
from tests.registry.examples import a_pod, create


async def a_service(registry: Registry, name: str = "ring", **spec: Any) -> Any:
    given = ServiceSpec(**({"cluster_ip": "None", "selector": {"app": "w"}} | spec))
    return await create(registry, SERVICES, Service(metadata=ObjectMeta(name=name), spec=given))


async def a_running_pod(registry: Registry, name: str, ip: str, labels: dict[str, str] | None = None) -> None:
    labels = {"app": "w"} if labels is None else labels
    made = await create(registry, PODS, a_pod(name, metadata={"labels": labels}, node_name="n"))
    await report(registry, made, ip, ready="True")


async def report(registry: Registry, pod: Any, ip: str, ready: str) -> None:
    conditions = (Condition(type="Ready", status=ready),)
    status = replace(pod.status, phase="Running", pod_ip=ip, conditions=conditions)
    told = StatusReport(namespace="default", name=pod.metadata.name, uid=pod.metadata.uid, status=status)
    (outcome,) = await accept(registry, PODS, [told], lambda _: True)
    assert outcome.code == 200, outcome.message


async def addresses(registry: Registry) -> list[str]:
    """Those that are ready."""
    found = (endpoint for piece in await every(registry, SLICES) for endpoint in piece.endpoints)
    return sorted(address for each in found if each.conditions.ready for address in each.addresses)


async def test_slices_follow_the_pods(registry: Registry) -> None:
    await a_service(registry)
    await a_running_pod(registry, "first", "10.0.0.1")
    async with running(registry, EndpointSliceController):
        await until(registry, lambda: equal(registry, ["10.0.0.1"]))
        await a_running_pod(registry, "second", "10.0.0.2")
        await a_running_pod(registry, "foreign", "10.0.0.3", labels={"app": "x"})
        await until(registry, lambda: equal(registry, ["10.0.0.1", "10.0.0.2"]))

        await objects.delete(registry, PODS, "default", "first", Demand(grace_seconds=0))
        await until(registry, lambda: equal(registry, ["10.0.0.2"]))


async def test_a_slice_that_somebody_deletes_is_made_again(registry: Registry) -> None:
    await a_service(registry)
    await a_running_pod(registry, "first", "10.0.0.1")
    async with running(registry, EndpointSliceController):
        await until(registry, lambda: equal(registry, ["10.0.0.1"]))
        (piece,) = await every(registry, SLICES)
        await objects.delete(registry, SLICES, "default", piece.metadata.name, Demand())
        await until(registry, lambda: equal(registry, ["10.0.0.1"]))


async def test_a_service_that_selects_others_has_others(registry: Registry) -> None:
    made = await a_service(registry)
    await a_running_pod(registry, "first", "10.0.0.1")
    await a_running_pod(registry, "second", "10.0.0.2", labels={"app": "x"})
    async with running(registry, EndpointSliceController):
        await until(registry, lambda: equal(registry, ["10.0.0.1"]))
        other = replace(made, spec=replace(made.spec, selector={"app": "x"}))
        await objects.update(registry, SERVICES, "default", "ring", other)
        await until(registry, lambda: equal(registry, ["10.0.0.2"]))


async def test_no_selector_and_no_change_write_nothing(registry: Registry) -> None:
    await a_service(registry, "bare", selector={})
    await a_service(registry, "outside", type="ExternalName", external_name="example.com", cluster_ip="")
    await a_service(registry)
    await a_running_pod(registry, "first", "10.0.0.1")
    async with running(registry, EndpointSliceController) as acting:
        await until(registry, lambda: equal(registry, ["10.0.0.1"]))
        before = await settled(registry)
        acting.look_again()
        assert await settled(registry) == before
    assert len(await every(registry, SLICES)) == 1


async def equal(registry: Registry, wanted: list[str]) -> bool:
    return await addresses(registry) == wanted
