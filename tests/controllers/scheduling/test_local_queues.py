"""LocalQueues on a real database: admission, messages of pods, Jobs and queues, and reclaim."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace

from app.controllers.scheduling.scheduler import Scheduler
from app.kinds.batch.job import KIND as JOBS
from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.namespace import KIND as NAMESPACES
from app.kinds.core.namespace import Namespace
from app.kinds.core.node import KIND as NODES
from app.kinds.pod.pod import Pod, condition
from app.kinds.scheduling.localqueue import KIND as QUEUES
from app.kinds.scheduling.localqueue import LocalQueue, LocalQueuePreemption, LocalQueueSpec
from app.machinery.base import ObjectMeta, OwnerReference
from app.machinery.meta.meta_condition import condition as said_of
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from tests.controllers.machines import a_node
from tests.controllers.running import every, running, settled, until
from tests.controllers.scheduling.test_scheduler import (
    a_pod_requesting,
    finish_pod,
    wait_for_message,
    wait_until_placed,
)
from tests.registry.examples import PODS, a_job, create, get

SHORT = "queue default: over its quota of cpu (2 of 2 used)"


def a_queue(name: str = "default", reclaims: bool = False, **spec: Any) -> LocalQueue:
    preemption = LocalQueuePreemption(reclaim_within_cohort="Any") if reclaims else None
    given = {"nominal_quota": {"cpu": "2"}} | spec
    return LocalQueue(metadata=ObjectMeta(name=name), spec=LocalQueueSpec(preemption=preemption, **given))


def of_job(pod: Pod, job: Any) -> Pod:
    owner = OwnerReference(
        api_version="batch/v1", kind="Job", name=job.metadata.name, uid=job.metadata.uid, controller=True
    )
    return replace(pod, metadata=replace(pod.metadata, owner_references=(owner,)))


async def wait_for_queue(registry: Registry, holds: Callable[[LocalQueue], bool], name: str = "default") -> LocalQueue:
    async def so() -> LocalQueue | None:
        found: LocalQueue = await get(registry, QUEUES, name)
        return found if holds(found) else None

    found = await until(registry, so)
    assert found is not None
    return found


async def wait_for_events(registry: Registry, *wanted: tuple[str, str]) -> None:
    """Events about Jobs: reason and message."""

    async def so() -> bool:
        found = [each for each in await every(registry, EVENTS) if each.involved_object.kind == "Job"]
        return sorted((each.reason, each.message) for each in found) == sorted(wanted)

    await until(registry, so)


async def _dying(registry: Registry) -> list[str]:
    return [pod.metadata.name for pod in await every(registry, PODS) if pod.metadata.deletion_timestamp is not None]


async def test_pods_over_quota_wait_and_say_their_place(registry: Registry) -> None:
    await create(registry, NODES, a_node(cpu="9"))
    await create(registry, QUEUES, a_queue())
    async with running(registry, Scheduler):
        for name in ("p0", "p1", "p2", "p3"):
            await create(registry, PODS, a_pod_requesting(name))
        await wait_until_placed(registry, {"p0": "n1", "p1": "n1", "p2": "", "p3": ""})
        await wait_for_message(registry, "p3", f"{SHORT}; pod p3 is 2nd of 2 in line.")
        await finish_pod(registry, "p0")
        await wait_until_placed(registry, {"p0": "n1", "p1": "n1", "p2": "n1", "p3": ""})


async def test_a_queue_says_who_waits_and_what_is_used(registry: Registry) -> None:
    await create(registry, NODES, a_node(cpu="9"))
    async with running(registry, Scheduler) as controllers:
        await create(registry, QUEUES, a_queue())
        for name in ("p0", "p1", "p2"):
            await create(registry, PODS, a_pod_requesting(name))
        await wait_until_placed(registry, {"p0": "n1", "p1": "n1", "p2": ""})
        controllers.move(seconds=2)
        found = await wait_for_queue(
            registry, lambda queue: queue.status.running_pods == 2 and queue.status.pending_pods == 1
        )

    active = said_of(found.status.conditions, "Active")
    assert active is not None
    assert (found.status.usage, active.status, active.reason) == ({"cpu": "2"}, "True", "Ready")


async def test_of_two_queues_the_older_counts(registry: Registry) -> None:
    await create(registry, NODES, a_node(cpu="9"))
    async with running(registry, Scheduler) as controllers:
        await create(registry, QUEUES, a_queue("b"))
        controllers.move(seconds=2)
        await create(registry, QUEUES, a_queue("a", nominal_quota={"cpu": "1"}))
        for name in ("p0", "p1", "p2"):
            await create(registry, PODS, a_pod_requesting(name))
        await wait_until_placed(registry, {"p0": "n1", "p1": "n1", "p2": ""})
        controllers.move(seconds=2)
        found = await wait_for_queue(registry, lambda queue: bool(queue.status.conditions), "a")

    (active,) = found.status.conditions
    assert (active.status, active.reason) == ("False", "Superseded")
    assert active.message == "The namespace has an older queue, which counts: b"


async def test_a_job_is_told_when_it_joins_the_line_and_when_it_has_its_quota(registry: Registry) -> None:
    await create(registry, NODES, a_node(cpu="9"))
    await create(registry, QUEUES, a_queue())
    job = await create(registry, JOBS, a_job("train"))
    async with running(registry, Scheduler):
        await create(registry, PODS, a_pod_requesting("p0", "2"))
        await wait_until_placed(registry, {"p0": "n1"})
        await create(registry, PODS, of_job(a_pod_requesting("train-0"), job))
        text = f"{SHORT}; job train is 1st of 1 in line."
        await wait_for_message(registry, "train-0", text)
        text = f"{text} Fits if 1 more of cpu becomes free in queue default."
        await wait_for_events(registry, ("Pending", text))
        await finish_pod(registry, "p0")
        await wait_for_events(registry, ("Pending", text), ("QuotaReserved", "Quota reserved in queue default"))


async def test_a_job_that_comes_nearer_is_told_and_so_are_its_pods(registry: Registry) -> None:
    await create(registry, NODES, a_node(cpu="9"))
    await create(registry, QUEUES, a_queue())
    job = await create(registry, JOBS, a_job("train"))
    async with running(registry, Scheduler) as controllers:
        await create(registry, PODS, a_pod_requesting("p0", "2"))
        await wait_until_placed(registry, {"p0": "n1"})
        for number in (1, 2):
            await create(registry, PODS, a_pod_requesting(f"p{number}", "2"))
            controllers.move(seconds=1)
        await create(registry, PODS, of_job(a_pod_requesting("train-0"), job))
        await wait_for_message(registry, "train-0", f"{SHORT}; job train is 3rd of 3 in line.")
        controllers.move(seconds=20)
        for number in (0, 1):
            await finish_pod(registry, f"p{number}")
            await settled(registry)
        await wait_for_message(registry, "train-0", f"{SHORT}; job train is 1st of 1 in line.")


async def test_without_its_queue_a_namespace_is_free(registry: Registry) -> None:
    await create(registry, NODES, a_node(cpu="9"))
    queue = await create(registry, QUEUES, a_queue())
    async with running(registry, Scheduler):
        await create(registry, PODS, a_pod_requesting("p0", "2"))
        await create(registry, PODS, a_pod_requesting("p1", "2"))
        await wait_until_placed(registry, {"p0": "n1", "p1": ""})
        more = replace(queue, spec=replace(queue.spec, nominal_quota={"cpu": "4"}))
        await objects.update(registry, QUEUES, "default", "default", replace(more, metadata=ObjectMeta(name="default")))
        await wait_until_placed(registry, {"p0": "n1", "p1": "n1"})


async def test_an_owner_has_a_borrower_go(registry: Registry) -> None:
    await create(registry, NODES, a_node(cpu="9"))
    await create(registry, NAMESPACES, Namespace(metadata=ObjectMeta(name="other")))
    await create(registry, QUEUES, a_queue())
    await objects.create(registry, QUEUES, "other", a_queue(reclaims=True))
    async with running(registry, Scheduler):
        for name in ("p0", "p1", "p2", "p3"):
            await create(registry, PODS, a_pod_requesting(name))
        await wait_until_placed(registry, dict.fromkeys(("p0", "p1", "p2", "p3"), "n1"))
        pod = a_pod_requesting("own", "1")
        await objects.create(registry, PODS, "other", replace(pod, metadata=replace(pod.metadata, namespace="other")))

        (victim,) = await until(registry, lambda: _dying(registry))
        await objects.delete(registry, PODS, "default", victim, Demand(grace_seconds=0))

        async def so() -> bool:
            own = await get(registry, PODS, "own", "other")
            return bool(own.spec.node_name)

        await until(registry, so)

    messages = [each.message for each in await every(registry, EVENTS) if each.reason == "Preempted"]
    assert len(messages) == 1
    assert messages[0].endswith("the quota that it used was lent by namespace other")
    assert condition((await get(registry, PODS, "own", "other")).status.conditions, "PodScheduled").status == "True"
