"""Preemption on a real database: victims, conditions and events, and nominated nodes."""

from datetime import datetime, timedelta
from typing import Any

from msgspec.structs import replace

from app.controllers.scheduling.preemption_writes import PendingReports, write_result
from app.controllers.scheduling.scheduler import Scheduler
from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.node import KIND as NODES
from app.kinds.core.poddisruptionbudget import KIND as BUDGETS
from app.kinds.core.poddisruptionbudget import PodDisruptionBudget, PodDisruptionBudgetSpec, PodDisruptionBudgetStatus
from app.kinds.pod.container import Container, ResourceRequirements
from app.kinds.pod.pod import Pod, condition
from app.kinds.scheduling.priorityclass import KIND as CLASSES
from app.kinds.scheduling.priorityclass import PriorityClass
from app.machinery.base import LabelSelector, ObjectMeta
from app.plans.plan import Update
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from app.scheduler.fit_hints import without_hint
from app.scheduler.scheduling_round import PostFilterResult
from tests.build import NOW
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


def a_pod_requesting(
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


async def start_pods(registry: Registry, *pods: Pod) -> None:
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


async def end_pod(registry: Registry, name: str) -> None:
    await objects.delete(registry, PODS, "default", name, Demand(grace_seconds=0))


async def wait_until_nominated(registry: Registry, name: str, node: str) -> None:
    async def so() -> bool:
        return (await pod(registry, name)).status.nominated_node_name == node

    await until(registry, so)


async def wait_until_bound(registry: Registry, name: str, node: str) -> None:
    async def so() -> bool:
        return (await pod(registry, name)).spec.node_name == node

    await until(registry, so)


async def wait_for_message(registry: Registry, name: str, why: str) -> None:
    async def so() -> bool:
        said = condition((await pod(registry, name)).status.conditions, "PodScheduled")
        return said is not None and without_hint(said.message) == why

    await until(registry, so)


async def list_terminating(registry: Registry) -> set[str]:
    return {each.metadata.name for each in await every(registry, PODS) if each.metadata.deletion_timestamp is not None}


async def test_the_less_important_goes_and_the_more_important_takes_its_place(registry: Registry) -> None:
    await classes(registry)
    await create(registry, NODES, a_node())
    async with running(registry, Scheduler):
        await start_pods(registry, a_pod_requesting("low"), a_pod_requesting("mid", priority=10))
        await create(registry, PODS, a_pod_requesting("high", priority=20))
        await wait_until_nominated(registry, "high", "n1")
        high, low = await pod(registry, "high"), await pod(registry, "low")
        assert await list_terminating(registry) == {"low"}
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
        hint = "Fits if a node has 1 free CPU: the most free is 0 on n1."
        assert (said.status, said.reason, said.message) == ("False", "Unschedulable", f"{LACKING} {hint}")
        assert high.spec.node_name == ""

        await end_pod(registry, "low")
        await wait_until_bound(registry, "high", "n1")

    assert (await pod(registry, "high")).status.nominated_node_name == ""
    found = [each for each in await every(registry, EVENTS) if each.reason == "Preempted"]
    assert [(each.type, each.involved_object.name, each.message) for each in found] == [
        ("Normal", "low", f"Preempted by pod {high.metadata.uid} on node n1")
    ]


async def test_while_its_victim_goes_nobody_else_does_and_that_is_told(registry: Registry) -> None:
    await classes(registry)
    await create(registry, NODES, a_node("n1"))
    async with running(registry, Scheduler) as controllers:
        await start_pods(registry, a_pod_requesting("low", "2"))
        await create(registry, NODES, a_node("n2"))
        await start_pods(registry, a_pod_requesting("mid", "2", 10))
        await create(registry, PODS, a_pod_requesting("high", "2", 20))
        await wait_until_nominated(registry, "high", "n1")
        controllers.move(seconds=16)
        await create(registry, NODES, a_node("n3", cpu="1"))
        why = "not eligible due to a terminating pod on the nominated node."
        await wait_for_message(registry, "high", f"0/3 nodes are available: 3 Insufficient cpu. preemption: {why}")

    assert await list_terminating(registry) == {"low"}
    assert (await pod(registry, "high")).status.nominated_node_name == "n1"


async def test_room_that_is_made_is_not_for_the_less_important(registry: Registry) -> None:
    await classes(registry)
    await create(registry, NODES, a_node())
    async with running(registry, Scheduler):
        await start_pods(registry, a_pod_requesting("a"), a_pod_requesting("b"))
        await create(registry, PODS, a_pod_requesting("high", "2", 20))
        await wait_until_nominated(registry, "high", "n1")
        assert await list_terminating(registry) == {"a", "b"}
        await create(registry, PODS, a_pod_requesting("low", priority=10))
        await end_pod(registry, "a")
        await settled(registry, 0.15)
        assert (await pod(registry, "low")).spec.node_name == ""
        await end_pod(registry, "b")
        await wait_until_bound(registry, "high", "n1")

    assert (await pod(registry, "low")).spec.node_name == ""


async def test_room_that_is_made_is_for_the_still_more_important(registry: Registry) -> None:
    await classes(registry)
    await create(registry, NODES, a_node())
    async with running(registry, Scheduler):
        await start_pods(registry, a_pod_requesting("low", "2"))
        await create(registry, PODS, a_pod_requesting("high", "2", 20))
        await wait_until_nominated(registry, "high", "n1")
        await create(registry, PODS, a_pod_requesting("urgent", "2", 30))
        await wait_until_nominated(registry, "urgent", "n1")
        await end_pod(registry, "low")
        await wait_until_bound(registry, "urgent", "n1")
        await wait_for_message(registry, "high", LACKING)
        await wait_until_nominated(registry, "high", "")


async def test_what_was_kept_for_a_pod_that_is_deleted_is_free_for_others(registry: Registry) -> None:
    await classes(registry)
    await create(registry, NODES, a_node())
    async with running(registry, Scheduler):
        await start_pods(registry, a_pod_requesting("low", "2"))
        await create(registry, PODS, a_pod_requesting("high", "2", 20))
        await wait_until_nominated(registry, "high", "n1")
        await create(registry, PODS, a_pod_requesting("next", "2"))
        await end_pod(registry, "high")
        await end_pod(registry, "low")
        await wait_until_bound(registry, "next", "n1")


async def test_a_node_that_does_not_do_any_more_is_kept_no_longer(registry: Registry) -> None:
    await classes(registry)
    await create(registry, NODES, a_node())
    async with running(registry, Scheduler):
        await start_pods(registry, a_pod_requesting("low", "2"))
        await create(registry, PODS, a_pod_requesting("high", "2", 20))
        await wait_until_nominated(registry, "high", "n1")

        def cordon(node: Any) -> Any:
            return replace(node, spec=replace(node.spec, unschedulable=True))

        await objects.edit(registry, NODES, "", "n1", cordon)
        await wait_until_nominated(registry, "high", "")


async def test_who_never_preempts_waits_and_is_told_so(registry: Registry) -> None:
    await classes(registry)
    await create(registry, NODES, a_node())
    async with running(registry, Scheduler):
        await start_pods(registry, a_pod_requesting("low", "2"))
        await create(registry, PODS, a_pod_requesting("polite", "2", "never"))
        await wait_for_message(registry, "polite", f"{LACKING} preemption: not eligible due to preemptionPolicy=Never.")

    assert await list_terminating(registry) == set()


async def test_equals_do_not_go_and_that_is_told(registry: Registry) -> None:
    await create(registry, NODES, a_node())
    async with running(registry, Scheduler):
        await start_pods(registry, a_pod_requesting("first", "2"))
        await create(registry, PODS, a_pod_requesting("second", "2"))
        await wait_for_message(registry, "second", f"{LACKING} preemption: 0/1 nodes are available: 1 {NO_VICTIMS}")


async def test_disruption_budgets_are_weighed(registry: Registry) -> None:
    await classes(registry)
    selector = LabelSelector(match_labels={"app": "kept"})
    spec, status = PodDisruptionBudgetSpec(selector=selector), PodDisruptionBudgetStatus(disruptions_allowed=0)
    budget = PodDisruptionBudget(metadata=ObjectMeta(name="b", namespace="default"), spec=spec, status=status)
    await create(registry, BUDGETS, budget)
    await create(registry, NODES, a_node())
    async with running(registry, Scheduler):
        await start_pods(
            registry, a_pod_requesting("kept", labels={"app": "kept"}), a_pod_requesting("mid", priority=10)
        )
        await create(registry, PODS, a_pod_requesting("high", priority=20))
        await wait_until_nominated(registry, "high", "n1")
        assert await list_terminating(registry) == {"mid"}
        await create(registry, PODS, a_pod_requesting("urgent", priority=30))
        await wait_until_nominated(registry, "urgent", "n1")

        async def both_go() -> bool:
            return await list_terminating(registry) == {"mid", "kept"}  # weighed, not obeyed

        await until(registry, both_go)
        assert (await pod(registry, "high")).status.nominated_node_name == "n1"


async def test_many_find_their_places_one_after_the_other(registry: Registry) -> None:
    await classes(registry)
    await create(registry, NODES, a_node(cpu="4"))
    async with running(registry, Scheduler):
        lows = [f"low{number}" for number in range(4)]
        await start_pods(registry, *(a_pod_requesting(name) for name in lows))
        for number in range(5):
            await create(registry, PODS, a_pod_requesting(f"high{number}", priority=20))

        async def all_go() -> bool:
            return await list_terminating(registry) == set(lows)

        await until(registry, all_go)
        for name in lows:
            await end_pod(registry, name)

        async def four_are_there() -> bool:
            return sum(bool(each.spec.node_name) for each in await every(registry, PODS)) == 4

        await until(registry, four_are_there)
    waiting = [each for each in await every(registry, PODS) if not each.spec.node_name]
    assert [each.status.nominated_node_name for each in waiting] == [""]


def test_a_hint_alone_is_written_every_five_minutes_and_with_every_other_reason() -> None:
    """Hints change with each pod that ends: to write them all would cost as many writes as there are pending pods."""

    def message(free: int, reason: str = "3 Insufficient cpu") -> str:
        return f"0/3 nodes are available: {reason}. Fits if a node has 4 free CPUs: the most free is {free} on n1."

    def written(pod: Pod, text: str, now: datetime) -> Pod | None:
        write = write_result(PostFilterResult(pod, text), now)
        return (
            next((action.object for action in write.plan.actions if isinstance(action, Update)), None)
            if write
            else None
        )

    first = written(a_pod("p"), message(1), NOW)
    assert first is not None
    assert written(first, message(2), NOW + timedelta(minutes=4)) is None
    reports = PendingReports()
    reports.add([PostFilterResult(first, message(2))], NOW + timedelta(seconds=1))
    assert reports.next_due_at() is None
    later = written(first, message(2), NOW + timedelta(minutes=5))
    assert later is not None
    assert written(first, message(1), NOW + timedelta(hours=1)) is None
    changed = written(first, message(2, "2 Insufficient cpu"), NOW + timedelta(seconds=15))
    assert changed is not None
    said = condition(changed.status.conditions, "PodScheduled")
    assert said is not None
    assert said.message == message(2, "2 Insufficient cpu")
