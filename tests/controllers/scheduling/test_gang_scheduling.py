"""Gang scheduling on a real database: bound in one write set with the PodGroup's condition, or the message what is missing."""

import asyncio
import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from app.controllers.batch.jobs import JobController
from app.controllers.scheduling import scheduler
from app.controllers.scheduling.scheduler import Scheduler
from app.kinds.batch.job import KIND as JOBS
from app.kinds.batch.job_scheduling import (
    JobSchedulingConfiguration,
    WorkloadPodGroupGangSchedulingPolicy,
    WorkloadPodGroupSchedulingPolicy,
)
from app.kinds.core.node import KIND as NODES
from app.kinds.pod.pod import Pod, PodSchedulingGroup
from app.kinds.pod.pod import condition as pod_condition
from app.kinds.scheduling.pod_group_schema import (
    GangSchedulingPolicy,
    PodGroupSchedulingConstraints,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
    TopologyConstraint,
)
from app.kinds.scheduling.podgroup import KIND as POD_GROUPS
from app.kinds.scheduling.podgroup import SCHEDULED, PodGroup
from app.machinery.base import ObjectMeta
from app.machinery.feature_gates import GENERIC_WORKLOAD, TOPOLOGY_AWARE, WORKLOAD_WITH_JOB
from app.machinery.meta.meta_condition import condition
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from tests.controllers.machines import a_node
from tests.controllers.running import events, every, running, settled, until
from tests.controllers.scheduling.test_scheduler import (
    a_pod_requesting,
    break_connections,
    finish_pod,
    wait_for_message,
)
from tests.registry.examples import PODS, a_job, create, get

GATES = frozenset({GENERIC_WORKLOAD, TOPOLOGY_AWARE})


@pytest.fixture
def registry(registry: Registry) -> Registry:
    """With the feature gates of PodGroups on."""
    return dataclasses.replace(registry, features=GATES)


def a_group(name: str = "g", least: int = 2, topology: str = "") -> PodGroup:
    near = PodGroupSchedulingConstraints(topology=(TopologyConstraint(key=topology),)) if topology else None
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=least))
    return PodGroup(
        metadata=ObjectMeta(name=name), spec=PodGroupSpec(scheduling_policy=policy, scheduling_constraints=near)
    )


def member(name: str, group: str = "g", cpu: str = "1", **spec: Any) -> Pod:
    return a_pod_requesting(name, cpu, scheduling_group=PodSchedulingGroup(pod_group_name=group), **spec)


async def members(registry: Registry, count: int, group: str = "g", start: int = 0) -> None:
    numbers = range(start, start + count)
    await asyncio.gather(*(create(registry, PODS, member(f"{group}-{n}", group)) for n in numbers))


async def on_nodes(registry: Registry, group: str = "g") -> int:
    pods = [pod for pod in await every(registry, PODS) if pod.metadata.name.startswith(f"{group}-")]
    return sum(bool(pod.spec.node_name) for pod in pods)


async def read_condition(registry: Registry, group: str = "g") -> tuple[str, str, str] | None:
    found = condition((await get(registry, POD_GROUPS, group)).status.conditions, SCHEDULED)
    return (found.status, found.reason, found.message) if found is not None else None


async def wait_for_condition(registry: Registry, group: str, *words: str) -> None:
    async def so() -> bool:
        return await read_condition(registry, group) == words

    await until(registry, so)


async def test_a_gang_is_bound_in_one_write_set_with_its_condition(registry: Registry) -> None:
    await create(registry, NODES, a_node(cpu="200", memory="99Gi", pods="200"))
    async with running(registry, Scheduler):
        await create(registry, POD_GROUPS, a_group(least=100))
        await members(registry, 100)
        await wait_for_condition(registry, "g", "True", "Scheduled", "")

    assert await on_nodes(registry) == 100
    writes = [*await every(registry, PODS), await get(registry, POD_GROUPS, "g")]
    revisions = [int(each.metadata.resource_version) for each in writes]
    assert max(revisions) - min(revisions) == 100  # nothing came between
    group = await get(registry, POD_GROUPS, "g")
    assert condition(group.status.conditions, SCHEDULED).observed_generation == 1


async def test_of_two_gangs_that_each_half_fit_one_runs_and_the_other_waits_for_it(registry: Registry) -> None:
    await create(registry, NODES, a_node(cpu="3"))
    for group in ("a", "b"):
        await create(registry, POD_GROUPS, a_group(group))
        await members(registry, 2, group)
    async with running(registry, Scheduler) as controllers:
        await wait_for_condition(registry, "a", "True", "Scheduled", "")
        why = "1/2 pods of the group can be placed: 0/1 nodes are available: 1 Insufficient cpu."
        await wait_for_condition(registry, "b", "False", "Unschedulable", why)
        await wait_for_message(registry, "b-0", why)
        await wait_for_message(registry, "b-1", why)

        await finish_pod(registry, "a-0")
        await wait_for_condition(registry, "b", "True", "Scheduled", "")
        controllers.move(seconds=1)

    assert await on_nodes(registry, "b") == 2
    assert [why for reason, why in await events(registry) if reason == "FailedScheduling"] == [why, why]


async def test_pods_wait_for_their_group_and_for_each_other(registry: Registry) -> None:
    await create(registry, NODES, a_node())
    async with running(registry, Scheduler) as controllers:
        await members(registry, 1)
        await settled(registry, 0.1)
        controllers.move(seconds=3)
        await wait_for_message(registry, "g-0", 'waiting for pod\'s pod group "g" to appear in scheduling queue')

        await create(registry, POD_GROUPS, a_group())
        why = "waiting for minCount pods from a gang to appear in scheduling queue: 1/2 pods of the group are there"
        await wait_for_condition(registry, "g", "False", "Unschedulable", why)
        assert await on_nodes(registry) == 0

        await members(registry, 1, start=1)
        await wait_for_condition(registry, "g", "True", "Scheduled", "")

    assert await on_nodes(registry) == 2


async def test_a_replacement_is_placed_by_itself(registry: Registry) -> None:
    await create(registry, NODES, a_node())
    await create(registry, POD_GROUPS, a_group())
    await members(registry, 2)
    async with running(registry, Scheduler):
        await wait_for_condition(registry, "g", "True", "Scheduled", "")
        await objects.delete(registry, PODS, "default", "g-0", Demand(grace_seconds=0))
        await members(registry, 1, start=2)

        async def so() -> bool:
            return await on_nodes(registry) == 2

        await until(registry, so)
    assert await read_condition(registry) == ("True", "Scheduled", "")


async def test_all_in_one_zone(registry: Registry) -> None:
    for name, zone in (("n1", "a"), ("n2", "b"), ("n3", "b")):
        await create(registry, NODES, a_node(name, labels={"zone": zone}))
    await create(registry, POD_GROUPS, a_group(least=4, topology="zone"))
    await members(registry, 4)
    async with running(registry, Scheduler):
        await wait_for_condition(registry, "g", "True", "Scheduled", "")

    assert {pod.spec.node_name for pod in await every(registry, PODS)} == {"n2", "n3"}


async def test_a_job_that_is_resumed_is_a_gang_again(registry: Registry) -> None:
    gangs = dataclasses.replace(registry, features=registry.features | {WORKLOAD_WITH_JOB})
    await create(registry, NODES, a_node(cpu="2"))
    scheduling = JobSchedulingConfiguration(
        scheduling_policy=WorkloadPodGroupSchedulingPolicy(gang=WorkloadPodGroupGangSchedulingPolicy())
    )
    job = a_job("j", parallelism=2, completions=2, completion_mode="Indexed", scheduling=scheduling)
    main = replace(job.spec.template.spec, containers=a_pod_requesting("p").spec.containers)
    job = replace(job, spec=replace(job.spec, template=replace(job.spec.template, spec=main)))
    async with running(gangs, Scheduler, JobController):
        await create(gangs, JOBS, job)

        async def wait_until_placed() -> list[Pod]:
            pods = [pod for pod in await every(registry, PODS) if pod.spec.node_name and pod.metadata.name != "other"]
            return pods if len(pods) == 2 else []

        await until(registry, wait_until_placed)
        await suspend(registry, True)

        async def gone() -> bool:
            for pod in await every(registry, PODS):
                await objects.delete(registry, PODS, "default", pod.metadata.name, Demand(grace_seconds=0))
            return not await every(registry, PODS)

        await until(registry, gone)
        await create(registry, PODS, a_pod_requesting("other"))

        async def taken() -> bool:
            return bool((await get(registry, PODS, "other")).spec.node_name)

        await until(registry, taken)
        await suspend(registry, False)
        (group,) = await every(registry, POD_GROUPS)
        why = "1/2 pods of the group can be placed: 0/1 nodes are available: 1 Insufficient cpu."

        async def waits() -> bool:
            found = [pod_condition(pod.status.conditions, "PodScheduled") for pod in await every(registry, PODS)]
            return [each.message for each in found if each is not None].count(why) == 2

        await until(registry, waits)
        await wait_for_condition(registry, group.metadata.name, "True", "Scheduled", "")  # once and for all
        assert await wait_until_placed() == []

        await finish_pod(registry, "other")
        await until(registry, wait_until_placed)


async def suspend(registry: Registry, wanted: bool) -> None:
    def change(job: Any) -> Any:
        return replace(job, spec=replace(job.spec, suspend=wanted))

    await objects.edit(registry, JOBS, "default", "j", change)


async def test_whatever_breaks_no_moment_shows_a_part_of_a_gang(registry: Registry) -> None:
    """While connections break, and the scheduler is killed and started: by the history, at every revision."""
    await create(registry, NODES, a_node(cpu="9"))
    for number in range(6):
        await create(registry, POD_GROUPS, a_group(f"g{number}", 3))
        await members(registry, 3, f"g{number}")
        async with running(registry, Scheduler) as controllers:
            await break_connections(registry)
            controllers.move(seconds=1)
    async with running(registry, Scheduler) as controllers:
        controllers.move(seconds=1)

        async def so() -> bool:
            return sum([await on_nodes(registry, f"g{number}") for number in range(6)]) == 9

        await until(registry, so)

    await check_no_gang_was_bound_in_part(registry, 3)


async def check_no_gang_was_bound_in_part(registry: Registry, size: int) -> None:
    changes, _, _ = await registry.store.reader.history(registry.store.pool, 0, None)
    bound = [
        change.key.name.partition("-")[0]
        for change in changes
        if change.key.kind == PODS.resource and change.selector_index.fields.get("spec.nodeName")
    ]
    runs = [bound[n : n + size] for n in range(0, len(bound), size)]
    assert bound
    assert all(len(set(run)) == 1 for run in runs)


async def test_a_gang_larger_than_a_round_is_bound_whole(registry: Registry, monkeypatch: Any) -> None:
    monkeypatch.setattr(scheduler, "MAX_ROUND_PODS", 3)
    await create(registry, NODES, a_node(cpu="10", pods="20"))
    await create(registry, POD_GROUPS, a_group(least=8))
    await members(registry, 8)
    async with running(registry, Scheduler):
        await wait_for_condition(registry, "g", "True", "Scheduled", "")
    assert await on_nodes(registry) == 8
