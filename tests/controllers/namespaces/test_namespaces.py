"""Deleting a namespace, on a real database: everything in it goes, then it goes, and nothing is left or made behind it."""

import asyncio
import contextlib
from typing import Any

import pytest
from msgspec.structs import replace

from app.client.protocol import StatusReport
from app.controllers.namespaces import namespaces
from app.controllers.namespaces.namespaces import NamespaceController
from app.controllers.scheduling.scheduler import Scheduler
from app.kinds import KINDS
from app.kinds.core.event import Event
from app.kinds.core.namespace import Namespace, NamespaceSpec
from app.kinds.pod.pod import Pod
from app.machinery.base import Kind, Object
from app.machinery.errors import ApiError
from app.registry.agents.status_reports import accept
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from app.store import Append, Stream
from tests.controllers.machines import a_node, joins
from tests.controllers.running import every, running, settled, until
from tests.registry.examples import JOBS, NAMESPACES, PODS, a_job, a_pod, create, example, get, named

SPACE = "research"
FIRST = ("cronjobs.batch", "jobs.batch", "pods")  # quotas and limits come after what they would refuse
CONTENT = {
    kind.resource: kind
    for kind in sorted(KINDS, key=lambda kind: (kind.resource not in FIRST, kind.resource))
    if kind.namespaced and kind.storage is None
}
CONFIGMAPS = CONTENT["configmaps"]


@pytest.fixture(autouse=True)
async def space(registry: Registry) -> None:
    await create(registry, NAMESPACES, named(example(NAMESPACES), name=SPACE))


def one(kind: Kind, name: str, namespace: str, **metadata: Any) -> Object:
    """The kind's example, with another name, in another namespace."""
    obj = named(example(kind), name=name, namespace=namespace, **metadata)
    if not isinstance(obj, Event):
        return obj
    return replace(obj, involved_object=replace(obj.involved_object, namespace=namespace))


async def put(registry: Registry, kind: Kind, name: str, **metadata: Any) -> Any:
    return await create(registry, kind, one(kind, name, SPACE, **metadata))


async def delete(registry: Registry, **demand: Any) -> None:
    await objects.delete(registry, NAMESPACES, "", SPACE, Demand(**demand))


async def there(registry: Registry) -> Namespace | None:
    return await get(registry, NAMESPACES, SPACE)


async def is_gone(registry: Registry) -> None:
    async def so() -> bool:
        return await there(registry) is None

    await until(registry, so)
    assert await registry.store.count(list(CONTENT), SPACE) == {}


async def only_waits(registry: Registry, count: int) -> None:
    """As many pods as that are left, all on their way out."""

    async def so() -> bool:
        waiting = [pod.metadata.deletion_timestamp is not None for pod in await every(registry, PODS)]
        return len(waiting) == count and all(waiting)

    await until(registry, so)


async def pods_run(registry: Registry, count: int) -> list[Pod]:
    """Waits until they are bound, and says that they run."""

    async def bound() -> bool:
        return sum(bool(pod.spec.node_name) for pod in await every(registry, PODS)) == count

    await until(registry, bound)
    return await reported(registry, await every(registry, PODS), "Running")


async def reported(registry: Registry, pods: list[Pod], phase: str, *, gone: bool = False) -> list[Pod]:
    """As the agent says it."""
    reports = [
        StatusReport(
            namespace=pod.metadata.namespace,
            name=pod.metadata.name,
            uid=pod.metadata.uid,
            status=replace(pod.status, phase=phase),
            gone=gone,
        )
        for pod in pods
    ]
    outcomes = await accept(registry, PODS, reports, lambda _: True)
    assert [each.code for each in outcomes] == [200] * len(pods)
    return pods


async def test_an_empty_one_goes(registry: Registry) -> None:
    async with running(registry, NamespaceController):
        await delete(registry)
        await is_gone(registry)

    await put_again(registry)


async def put_again(registry: Registry) -> None:
    """The name is free."""
    await create(registry, NAMESPACES, named(example(NAMESPACES), name=SPACE))
    assert (await there(registry)).status.phase == "Active"


async def test_everything_in_it_goes_and_nothing_else(registry: Registry) -> None:
    for kind in CONTENT.values():
        for name in ("one", "two"):
            await put(registry, kind, name)
        await create(registry, kind, one(kind, "elsewhere", "default"))
    assert await registry.store.count(list(CONTENT), SPACE) == dict.fromkeys(CONTENT, 2)
    elsewhere = await registry.store.count(list(CONTENT), "default")

    async with running(registry, NamespaceController):
        await delete(registry)
        await is_gone(registry)

    assert await registry.store.count(list(CONTENT), "default") == elsewhere


async def test_more_than_one_write_set_holds_goes(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(namespaces, "TOGETHER", 7)
    await asyncio.gather(
        *(put(registry, kind, f"n{n}") for n in range(10) for kind in (CONFIGMAPS, CONTENT["secrets"]))
    )

    async with running(registry, NamespaceController):
        await delete(registry)
        await is_gone(registry)


async def test_a_running_job_ends_as_a_deleted_one_does(registry: Registry, caplog: pytest.LogCaptureFixture) -> None:
    """Its pods have their grace, and keep the namespace, and what they need, until their agent says that they are gone."""
    await joins(registry, a_node(cpu="8"))
    for kind in (CONFIGMAPS, CONTENT["secrets"], CONTENT["serviceaccounts"]):
        await put(registry, kind, "needed")
    async with running(registry):
        await create(registry, JOBS, a_job(metadata={"namespace": SPACE}, parallelism=3, completions=9))
        running_pods = await pods_run(registry, 3)
        assert (await registry.store.count(list(CONTENT), SPACE))["events"] >= 6

        await delete(registry)
        await only_waits(registry, 3)
        await settled(registry, 0.1)
        left = await every(registry, PODS)
        assert {pod.metadata.uid for pod in left} == {pod.metadata.uid for pod in running_pods}  # none is new
        assert {(pod.metadata.deletion_grace_period_seconds, pod.metadata.finalizers) for pod in left} == {(30, ())}
        await it_says(registry, "Some resources are remaining: pods. has 3 resource instances")
        there = await registry.store.count(list(CONTENT), SPACE)
        assert {"configmaps", "secrets", "serviceaccounts", "events"} <= set(there)
        assert "jobs.batch" not in there

        await reported(registry, left[:2], "Failed", gone=True)
        await it_says(registry, "Some resources are remaining: pods. has 1 resource instances")
        await reported(registry, left[2:], "Failed", gone=True)
        await is_gone(registry)
        await settled(registry, 0.1)

    assert await registry.store.count(list(CONTENT), SPACE) == {}
    assert caplog.messages == []


async def it_says(registry: Registry, *messages: str) -> None:
    async def so() -> bool:
        namespace = await there(registry)
        assert namespace is not None
        assert namespace.status.phase == "Terminating"
        return [each.message for each in namespace.status.conditions if each.status == "True"] == list(messages)

    await until(registry, so)


async def test_a_job_that_is_held_is_still_counted(registry: Registry) -> None:
    """For instance by a queue that wants to see its end: a pod that is deleted has failed, and none replaces it."""
    held = a_job(metadata={"namespace": SPACE, "finalizers": ("example.com/queue",)}, parallelism=2, completions=2)
    await joins(registry, a_node())
    async with running(registry) as controllers:
        await create(registry, JOBS, held)
        await pods_run(registry, 2)
        await delete(registry)

        async def marked() -> bool:
            return all(pod.metadata.deletion_timestamp for pod in await every(registry, PODS))

        await until(registry, marked)
        await reported(registry, await every(registry, PODS), "Failed", gone=True)

        async def counted() -> bool:
            job = await get(registry, JOBS, "pi", SPACE)
            return (job.status.failed, job.status.active) == (2, 0) and not await every(registry, PODS)

        await until(registry, counted)

        await objects.edit(registry, JOBS, SPACE, "pi", lambda job: named(job, finalizers=()))
        controllers.move(seconds=5)
        await is_gone(registry)


async def test_what_a_finalizer_holds_is_waited_for(registry: Registry) -> None:
    for name in ("a", "b"):
        await put(registry, CONFIGMAPS, name, finalizers=("example.com/hold",))
    held = "Some content in the namespace has finalizers remaining: example.com/hold in {} resource instances"
    async with running(registry, NamespaceController) as controllers:
        await delete(registry)
        await it_says(registry, "Some resources are remaining: configmaps. has 2 resource instances", held.format(2))

        await objects.edit(registry, CONFIGMAPS, SPACE, "a", lambda old: named(old, finalizers=()))
        await it_says(registry, "Some resources are remaining: configmaps. has 1 resource instances", held.format(1))
        await objects.edit(registry, CONFIGMAPS, SPACE, "b", lambda old: named(old, finalizers=()))
        controllers.move(seconds=5)
        await is_gone(registry)


async def test_one_that_another_finalizer_holds_is_empty_and_stays(registry: Registry) -> None:
    def held(old: Any) -> Namespace:
        return replace(old, spec=NamespaceSpec(finalizers=(*old.spec.finalizers, "example.com/hold")))

    await objects.rewrite(registry, NAMESPACES, "", SPACE, held)
    await put(registry, CONFIGMAPS, "one")
    async with running(registry, NamespaceController):
        await delete(registry)

        async def emptied() -> bool:
            return (await there(registry)).spec.finalizers == ("example.com/hold",)

        await until(registry, emptied)
    conditions = (await there(registry)).status.conditions
    assert [each.status for each in conditions] == ["False"] * 5
    assert await registry.store.count(list(CONTENT), SPACE) == {}


@pytest.mark.parametrize("propagation", ["Foreground", "Orphan"])
async def test_no_policy_holds_it_or_saves_its_content(registry: Registry, propagation: Any) -> None:
    await put(registry, CONFIGMAPS, "one")
    async with running(registry):
        await delete(registry, propagation=propagation)
        await is_gone(registry)


async def test_a_started_controller_goes_on_with_it(registry: Registry) -> None:
    await put(registry, CONFIGMAPS, "one")
    await delete(registry)

    async with running(registry, NamespaceController):
        await is_gone(registry)


async def test_nothing_is_created_in_it_meanwhile(registry: Registry) -> None:
    """However many try: what was let in is deleted, and the rest is refused."""

    async def tries(number: int) -> None:
        with contextlib.suppress(ApiError):
            await put(registry, CONFIGMAPS, f"n{number}")

    async with running(registry, NamespaceController):
        creating = [asyncio.ensure_future(tries(number)) for number in range(60)]
        await creating[5]
        await delete(registry)
        await asyncio.gather(*creating)
        await is_gone(registry)


async def test_events_are_not_told_where_nobody_will_look(registry: Registry) -> None:
    """One in a namespace that is going would outlive it. Whoever tells it does the rest, also in other namespaces."""
    for name in (SPACE, "default"):
        await create(registry, PODS, named(a_pod("p"), namespace=name))
    await delete(registry)
    await joins(registry, a_node())

    async with running(registry, Scheduler):

        async def bound() -> bool:
            return all(pod.spec.node_name == "n1" for pod in await every(registry, PODS))

        await until(registry, bound)

    events = await every(registry, CONTENT["events"])
    assert [(each.metadata.namespace, each.reason) for each in events] == [("default", "Scheduled")]


async def test_its_logs_are_gone_before_its_name_is_free(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the next owner of the name could read them until they are missed."""
    monkeypatch.setattr(namespaces, "TOGETHER", 2)
    logs = [Append(Stream(str(each), "main", 0), SPACE, f"p{each}", 0, b"secret\n") for each in range(5)]
    await registry.store.logs.append([*logs, Append(Stream("x", "main", 0), "default", "p", 0, b"theirs\n")])
    async with running(registry, NamespaceController):
        await delete(registry)
        await is_gone(registry)

    assert await registry.store.kept_logs.of(SPACE) == []
    assert len(await registry.store.kept_logs.of("default")) == 1
