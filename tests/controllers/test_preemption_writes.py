"""Preemption on a real database: who goes for a more important pod, what each is told, and what is kept meanwhile."""

from typing import Any

from msgspec.structs import replace

from app.controllers.scheduler import Scheduler
from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.node import KIND as NODES
from app.kinds.core.poddisruptionbudget import KIND as BUDGETS
from app.kinds.core.poddisruptionbudget import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from app.kinds.pod.container import Container, ResourceRequirements
from app.kinds.pod.pod import Pod, condition
from app.kinds.scheduling.priorityclass import KIND as CLASSES
from app.kinds.scheduling.priorityclass import PriorityClass
from app.machinery.base import LabelSelector, ObjectMeta
from app.registry import objects
from app.registry.deletion import Demand
from app.registry.objects import Registry
from tests.controllers.machines import a_node
from tests.controllers.running import every, running, settled, until
from tests.registry.examples import PODS, a_pod, create, get

NO_VICTIMS = "No preemption victims found for incoming pod."
LACKING = "0/1 nodes are available: 1 Insufficient cpu."


async def classes(registry: Registry) -> None:
    """Each named after its value, and `never`."""
    for value in (10, 20, 30):
        await create(registry, CLASSES, PriorityClass(metadata=ObjectMeta(name=f"p{value}"), value=value))
    never = PriorityClass(metadata=ObjectMeta(name="never"), value=40, preemption_policy="Never")
    await create(registry, CLASSES, never)


def asking(
    name: str, cpu: str = "1", priority: int | str = 0, labels: dict[str, str] | None = None, **spec: Any
) -> Pod:
    """By the name of its class, or by its value."""
    needs = ResourceRequirements(requests={"cpu": cpu})
    class_name = priority if isinstance(priority, str) else f"p{priority}" if priority else ""
    containers = (Container(name="main", image="busybox", resources=needs),)
    return a_pod(name, {"labels": labels or {}}, containers=containers, priority_class_name=class_name, **spec)


async def pod(registry: Registry, name: str) -> Pod:
    found: Pod = await get(registry, PODS, name)
    return found


async def starts(registry: Registry, *pods: Pod) -> None:
    """They are bound, and their node has taken them on: so they end with their grace."""
    for each in pods:
        await create(registry, PODS, each)
        name = each.metadata.name

        async def is_bound(name: str = name) -> bool:
            return bool((await pod(registry, name)).spec.node_name)

        await until(registry, is_bound)
        found = await pod(registry, name)
        started = replace(found.status, phase="Running", start_time=registry.clock())
        await objects.update(registry, PODS, "default", name, replace(found, status=started), status=True)


async def ends(registry: Registry, name: str) -> None:
    await objects.delete(registry, PODS, "default", name, Demand(grace_seconds=0))


async def is_kept(registry: Registry, name: str, node: str) -> None:
    async def so() -> bool:
        return (await pod(registry, name)).status.nominated_node_name == node

    await until(registry, so)


async def is_on(registry: Registry, name: str, node: str) -> None:
    async def so() -> bool:
        return (await pod(registry, name)).spec.node_name == node

    await until(registry, so)


async def told(registry: Registry, name: str, why: str) -> None:
    async def so() -> bool:
        said = condition((await pod(registry, name)).status.conditions, "PodScheduled")
        return said is not None and said.message == why

    await until(registry, so)


async def going(registry: Registry) -> set[str]:
    return {each.metadata.name for each in await every(registry, PODS) if each.metadata.deletion_timestamp is not None}


async def test_the_less_important_goes_and_the_more_important_takes_its_place(registry: Registry) -> None:
    await classes(registry)
    await create(registry, NODES, a_node())
    async with running(registry, Scheduler):
        await starts(registry, asking("low"), asking("mid", priority=10))
        await create(registry, PODS, asking("high", priority=20))
        await is_kept(registry, "high", "n1")
        high, low = await pod(registry, "high"), await pod(registry, "low")
        assert await going(registry) == {"low"}
        target = condition(low.status.conditions, "DisruptionTarget")
        assert target is not None
        assert (target.status, target.reason, target.message) == (
            "True",
            "PreemptionByScheduler",
            "default-scheduler: preempting to accommodate a higher priority pod",
        )
        assert low.metadata.deletion_grace_period_seconds == 30
        said = condition(high.status.conditions, "PodScheduled")
        assert said is not None
        assert (said.status, said.reason, said.message) == ("False", "Unschedulable", LACKING)
        assert high.spec.node_name == ""

        await ends(registry, "low")
        await is_on(registry, "high", "n1")

    assert (await pod(registry, "high")).status.nominated_node_name == ""
    found = [each for each in await every(registry, EVENTS) if each.reason == "Preempted"]
    assert [(each.type, each.involved_object.name, each.message) for each in found] == [
        ("Normal", "low", f"Preempted by pod {high.metadata.uid} on node n1")
    ]


async def test_while_its_victim_goes_nobody_else_does_and_that_is_told(registry: Registry) -> None:
    await classes(registry)
    await create(registry, NODES, a_node("n1"))
    async with running(registry, Scheduler) as controllers:
        await starts(registry, asking("low", "2"))
        await create(registry, NODES, a_node("n2"))
        await starts(registry, asking("mid", "2", 10))
        await create(registry, PODS, asking("high", "2", 20))
        await is_kept(registry, "high", "n1")
        controllers.move(seconds=16)
        await create(registry, NODES, a_node("n3", cpu="1"))
        why = "not eligible due to a terminating pod on the nominated node."
        await told(registry, "high", f"0/3 nodes are available: 3 Insufficient cpu. preemption: {why}")

    assert await going(registry) == {"low"}
    assert (await pod(registry, "high")).status.nominated_node_name == "n1"


async def test_room_that_is_made_is_not_for_the_less_important(registry: Registry) -> None:
    await classes(registry)
    await create(registry, NODES, a_node())
    async with running(registry, Scheduler):
        await starts(registry, asking("a"), asking("b"))
        await create(registry, PODS, asking("high", "2", 20))
        await is_kept(registry, "high", "n1")
        assert await going(registry) == {"a", "b"}
        await create(registry, PODS, asking("low", priority=10))
        await ends(registry, "a")
        await settled(registry, 0.15)
        assert (await pod(registry, "low")).spec.node_name == ""
        await ends(registry, "b")
        await is_on(registry, "high", "n1")

    assert (await pod(registry, "low")).spec.node_name == ""


async def test_room_that_is_made_is_for_the_still_more_important(registry: Registry) -> None:
    await classes(registry)
    await create(registry, NODES, a_node())
    async with running(registry, Scheduler):
        await starts(registry, asking("low", "2"))
        await create(registry, PODS, asking("high", "2", 20))
        await is_kept(registry, "high", "n1")
        await create(registry, PODS, asking("urgent", "2", 30))
        await is_kept(registry, "urgent", "n1")
        await ends(registry, "low")
        await is_on(registry, "urgent", "n1")
        await told(registry, "high", LACKING)
        await is_kept(registry, "high", "")


async def test_what_was_kept_for_a_pod_that_is_deleted_is_free_for_others(registry: Registry) -> None:
    await classes(registry)
    await create(registry, NODES, a_node())
    async with running(registry, Scheduler):
        await starts(registry, asking("low", "2"))
        await create(registry, PODS, asking("high", "2", 20))
        await is_kept(registry, "high", "n1")
        await create(registry, PODS, asking("next", "2"))
        await ends(registry, "high")
        await ends(registry, "low")
        await is_on(registry, "next", "n1")


async def test_a_node_that_does_not_do_any_more_is_kept_no_longer(registry: Registry) -> None:
    await classes(registry)
    await create(registry, NODES, a_node())
    async with running(registry, Scheduler):
        await starts(registry, asking("low", "2"))
        await create(registry, PODS, asking("high", "2", 20))
        await is_kept(registry, "high", "n1")

        def cordon(node: Any) -> Any:
            return replace(node, spec=replace(node.spec, unschedulable=True))

        await objects.edit(registry, NODES, "", "n1", cordon)
        await is_kept(registry, "high", "")


async def test_who_never_preempts_waits_and_is_told_so(registry: Registry) -> None:
    await classes(registry)
    await create(registry, NODES, a_node())
    async with running(registry, Scheduler):
        await starts(registry, asking("low", "2"))
        await create(registry, PODS, asking("polite", "2", "never"))
        await told(registry, "polite", f"{LACKING} preemption: not eligible due to preemptionPolicy=Never.")

    assert await going(registry) == set()


async def test_equals_do_not_go_and_that_is_told(registry: Registry) -> None:
    await create(registry, NODES, a_node())
    async with running(registry, Scheduler):
        await starts(registry, asking("first", "2"))
        await create(registry, PODS, asking("second", "2"))
        await told(registry, "second", f"{LACKING} preemption: 0/1 nodes are available: 1 {NO_VICTIMS}")


async def test_disruption_budgets_are_weighed(registry: Registry) -> None:
    await classes(registry)
    selector = LabelSelector(match_labels={"app": "kept"})
    spec, status = PodDisruptionBudgetSpec(selector=selector), PodDisruptionBudgetStatus(disruptions_allowed=0)
    budget = PodDisruptionBudget(metadata=ObjectMeta(name="b", namespace="default"), spec=spec, status=status)
    await create(registry, BUDGETS, budget)
    await create(registry, NODES, a_node())
    async with running(registry, Scheduler):
        await starts(registry, asking("kept", labels={"app": "kept"}), asking("mid", priority=10))
        await create(registry, PODS, asking("high", priority=20))
        await is_kept(registry, "high", "n1")
        assert await going(registry) == {"mid"}
        await create(registry, PODS, asking("urgent", priority=30))
        await is_kept(registry, "urgent", "n1")

        async def both_go() -> bool:
            return await going(registry) == {"mid", "kept"}  # weighed, not obeyed

        await until(registry, both_go)
        assert (await pod(registry, "high")).status.nominated_node_name == "n1"


async def test_many_find_their_places_one_after_the_other(registry: Registry) -> None:
    await classes(registry)
    await create(registry, NODES, a_node(cpu="4"))
    async with running(registry, Scheduler):
        lows = [f"low{number}" for number in range(4)]
        await starts(registry, *(asking(name) for name in lows))
        for number in range(5):
            await create(registry, PODS, asking(f"high{number}", priority=20))

        async def all_go() -> bool:
            return await going(registry) == set(lows)

        await until(registry, all_go)
        for name in lows:
            await ends(registry, name)

        async def four_are_there() -> bool:
            return sum(bool(each.spec.node_name) for each in await every(registry, PODS)) == 4

        await until(registry, four_are_there)
    waiting = [each for each in await every(registry, PODS) if not each.spec.node_name]
    assert [each.status.nominated_node_name for each in waiting] == [""]
