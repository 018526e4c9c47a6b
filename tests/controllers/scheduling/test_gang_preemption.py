"""Gang preemption on a real database: one write set, and nominated nodes for all pods until the victims are gone."""

import dataclasses
from typing import Any

import pytest
from msgspec.structs import replace

from app.controllers.scheduling.scheduler import Scheduler
from app.kinds.core.node import KIND as NODES
from app.kinds.pod.pod import PodSchedulingGroup
from app.kinds.scheduling.pod_group_schema import (
    AllDisruptionMode,
    DisruptionMode,
    GangSchedulingPolicy,
    PodGroupSchedulingPolicy,
    PodGroupSpec,
)
from app.kinds.scheduling.podgroup import DISRUPTED, PodGroup
from app.kinds.scheduling.podgroup import KIND as POD_GROUPS
from app.machinery.base import ObjectMeta
from app.machinery.feature_gates import GENERIC_WORKLOAD
from app.machinery.meta.meta_condition import condition
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from tests.controllers.machines import a_node
from tests.controllers.running import events, running, settled, until
from tests.controllers.scheduling.test_gang_scheduling import read_condition, wait_for_condition
from tests.controllers.scheduling.test_preemption_writes import (
    a_pod_requesting,
    classes,
    end_pod,
    list_terminating,
    pod,
    start_pods,
    wait_for_message,
    wait_until_bound,
    wait_until_nominated,
)
from tests.registry.examples import PODS, create, get

LACKING = "0/2 pods of the group can be placed: 0/2 nodes are available: 2 Insufficient cpu."


@pytest.fixture
def registry(registry: Registry) -> Registry:
    """With the feature gate of PodGroups on."""
    return dataclasses.replace(registry, features=frozenset({GENERIC_WORKLOAD}))


async def a_gang(registry: Registry, name: str = "g", mode: DisruptionMode | None = None) -> None:
    policy = PodGroupSchedulingPolicy(gang=GangSchedulingPolicy(min_count=2))
    spec = PodGroupSpec(scheduling_policy=policy, disruption_mode=mode, priority_class_name="p20")
    await create(registry, POD_GROUPS, PodGroup(metadata=ObjectMeta(name=name), spec=spec))


def member(name: str, priority: int | str = 20, group: str = "g") -> Any:
    """It needs all of a node."""
    return a_pod_requesting(name, "2", priority, scheduling_group=PodSchedulingGroup(pod_group_name=group))


async def two_nodes(registry: Registry) -> None:
    await classes(registry)
    for name in ("n1", "n2"):
        await create(registry, NODES, a_node(name))


async def test_they_go_for_all_of_it_in_one_write_set_and_it_is_bound_when_the_last_is_gone(registry: Registry) -> None:
    await two_nodes(registry)
    await a_gang(registry)
    async with running(registry, Scheduler) as controllers:
        await start_pods(registry, a_pod_requesting("a", "2"), a_pod_requesting("b", "2"))
        for name in ("g0", "g1"):
            await create(registry, PODS, member(name))
        await wait_until_nominated(registry, "g0", "n1")
        await wait_until_nominated(registry, "g1", "n2")
        assert await list_terminating(registry) == {"a", "b"}
        all_of_it = [await pod(registry, name) for name in ("a", "b", "g0", "g1")]
        revisions = [int(each.metadata.resource_version) for each in all_of_it]
        assert max(revisions) - min(revisions) <= 7  # with an event for each of the four
        target = condition(all_of_it[0].status.conditions, DISRUPTED)
        assert target is not None
        assert target.message == "default-scheduler: preempting to accommodate a higher priority pod group"
        assert ("Preempted", "Preempted by pod group default/g on node n2") in await events(registry)
        await wait_for_message(registry, "g0", LACKING)
        await wait_for_message(registry, "g1", LACKING)

        await create(registry, PODS, a_pod_requesting("late", "2", 10))
        await end_pod(registry, "a")
        await settled(registry, 0.15)
        for name in ("late", "g0", "g1"):
            assert (await pod(registry, name)).spec.node_name == ""

        await end_pod(registry, "b")
        controllers.move(seconds=1)
        await wait_for_condition(registry, "g", "True", "Scheduled", "")
        await wait_until_bound(registry, "g0", "n1")
        await wait_until_bound(registry, "g1", "n2")
    assert (await pod(registry, "g0")).status.nominated_node_name == ""


async def test_nobody_goes_if_that_would_not_be_enough(registry: Registry) -> None:
    await two_nodes(registry)
    await a_gang(registry)
    async with running(registry, Scheduler):
        await start_pods(registry, a_pod_requesting("a", "2"), a_pod_requesting("b", "2", 20))
        for name in ("g0", "g1"):
            await create(registry, PODS, member(name))
        why = "no place for enough pods of the group if those of lower priority went."
        await wait_for_message(registry, "g0", f"{LACKING} preemption: {why}")
        await settled(registry, 0.15)

    assert await list_terminating(registry) == set()
    assert await read_condition(registry) == ("False", "Unschedulable", LACKING)


async def test_who_never_preempts_waits_and_is_told_so(registry: Registry) -> None:
    await two_nodes(registry)
    await a_gang(registry)
    async with running(registry, Scheduler):
        await start_pods(registry, a_pod_requesting("a", "2"), a_pod_requesting("b", "2"))
        for name in ("g0", "g1"):
            await create(registry, PODS, member(name, "never"))
        await wait_for_message(registry, "g1", f"{LACKING} preemption: not eligible due to preemptionPolicy=Never.")

    assert await list_terminating(registry) == set()


async def test_a_gang_that_goes_as_a_whole_says_so_until_it_has_its_places_again(registry: Registry) -> None:
    await two_nodes(registry)
    await a_gang(registry, "whole", DisruptionMode(all=AllDisruptionMode()))
    async with running(registry, Scheduler) as controllers:
        for name in ("w0", "w1"):
            await create(registry, PODS, member(name, 10, "whole"))
        await wait_for_condition(registry, "whole", "True", "Scheduled", "")
        await create(registry, PODS, a_pod_requesting("urgent", "2", 30))

        async def is_disrupted() -> bool:
            found = condition((await get(registry, POD_GROUPS, "whole")).status.conditions, DISRUPTED)
            return found is not None and (found.status, found.reason) == ("True", "PreemptionByScheduler")

        await until(registry, is_disrupted)
        assert await list_terminating(registry) == {"w0", "w1"}
        for name in ("w0", "w1", "urgent"):
            await end_pod(registry, name)
        for name in ("w2", "w3"):
            await create(registry, PODS, member(name, 10, "whole"))
        controllers.move(seconds=1)
        await wait_until_bound(registry, "w2", "n1")
        await wait_for_condition(registry, "whole", "True", "Scheduled", "")

        async def is_at_peace() -> bool:
            return condition((await get(registry, POD_GROUPS, "whole")).status.conditions, DISRUPTED) is None

        await until(registry, is_at_peace)


async def test_a_pod_that_changes_meanwhile_does_not_divide_it(registry: Registry) -> None:
    """What was planned for an older version of one of them is refused as a whole, and planned anew."""
    await two_nodes(registry)
    await a_gang(registry)
    async with running(registry, Scheduler):
        await start_pods(registry, a_pod_requesting("a", "2"), a_pod_requesting("b", "2"))
        for name in ("g0", "g1"):
            await create(registry, PODS, member(name))
            await objects.edit(registry, PODS, "default", name, seen)
        await wait_until_nominated(registry, "g0", "n1")
        await wait_until_nominated(registry, "g1", "n2")

    assert await list_terminating(registry) == {"a", "b"}


def seen(pod: Any) -> Any:
    return replace(pod, metadata=replace(pod.metadata, labels={"seen": "yes"}))
