"""Scheduler on a real database: bindings, messages of pods that stay pending, and retries after events."""

import asyncio
import contextlib
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.controllers.scheduling import scheduler
from app.controllers.scheduling.scheduler import Scheduler
from app.kinds.core.node import KIND as NODES
from app.kinds.core.node import Taint
from app.kinds.pod.affinity import Toleration
from app.kinds.pod.container import Container, ResourceRequirements
from app.kinds.pod.pod import Pod, PodSchedulingGate, condition
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from app.scheduler.fit_hints import without_hint
from app.store import OutcomeUnknown, Unavailable
from tests.controllers.machines import a_node, alter
from tests.controllers.running import events, every, held_copy, running, settled, until
from tests.registry.examples import PODS, a_pod, create, get


def a_pod_requesting(name: str, cpu: str = "1", **spec: Any) -> Pod:
    needs = ResourceRequirements(requests={"cpu": cpu})
    return a_pod(name, containers=(Container(name="main", image="busybox", resources=needs),), **spec)


async def nodes_of_pods(registry: Registry) -> dict[str, str]:
    return {pod.metadata.name: pod.spec.node_name for pod in await every(registry, PODS)}


async def wait_until_placed(registry: Registry, wanted: dict[str, str]) -> None:
    async def so() -> bool:
        return await nodes_of_pods(registry) == wanted

    await until(registry, so)


async def wait_until_bound(registry: Registry, count: int) -> None:
    async def so() -> bool:
        return sum(bool(node) for node in (await nodes_of_pods(registry)).values()) == count

    await until(registry, so)


async def wait_for_message(registry: Registry, name: str, why: str) -> None:
    """What it says of preemption is left to the tests of that."""

    async def so() -> bool:
        said = condition((await get(registry, PODS, name)).status.conditions, "PodScheduled")
        return bool(said) and (said.status, said.reason, _short(said.message)) == ("False", "Unschedulable", why)

    await until(registry, so)


def _short(message: str) -> str:
    return without_hint(message).partition(" preemption: ")[0]


async def finish_pod(registry: Registry, name: str) -> None:
    pod = await get(registry, PODS, name)
    ended = replace(pod, status=replace(pod.status, phase="Succeeded"))
    await objects.update(registry, PODS, "default", name, ended, status=True)


async def test_a_pod_is_bound(registry: Registry) -> None:
    await create(registry, NODES, a_node())
    async with running(registry, Scheduler):
        await create(registry, PODS, a_pod_requesting("p"))
        await wait_until_placed(registry, {"p": "n1"})
        await settled(registry, 0.1)

    pod = await get(registry, PODS, "p")
    said = condition(pod.status.conditions, "PodScheduled")
    assert (said.status, said.last_transition_time) == ("True", registry.clock())
    assert await events(registry) == [("Scheduled", "Successfully assigned default/p to n1")]


async def test_without_nodes_a_pod_waits_for_one(registry: Registry) -> None:
    await create(registry, PODS, a_pod_requesting("p"))
    async with running(registry, Scheduler):
        await wait_for_message(registry, "p", "no nodes available to schedule pods")
        await create(registry, NODES, a_node())
        await wait_until_placed(registry, {"p": "n1"})

    assert [reason for reason, _ in await events(registry)] == ["FailedScheduling", "Scheduled"]


async def test_pods_are_spread(registry: Registry) -> None:
    for name in ("n1", "n2", "n3"):
        await create(registry, NODES, a_node(name))
    async with running(registry, Scheduler):
        await asyncio.gather(*(create(registry, PODS, a_pod_requesting(f"p{number}")) for number in range(6)))
        await wait_until_bound(registry, 6)

    assert Counter((await nodes_of_pods(registry)).values()) == {"n1": 2, "n2": 2, "n3": 2}


@pytest.mark.parametrize("how", ["succeeded", "deleted"])
async def test_room_that_is_freed_is_taken(registry: Registry, how: str) -> None:
    await create(registry, NODES, a_node(cpu="1"))
    async with running(registry, Scheduler):
        await create(registry, PODS, a_pod_requesting("first"))
        await wait_until_placed(registry, {"first": "n1"})
        await create(registry, PODS, a_pod_requesting("second"))
        await wait_for_message(registry, "second", "0/1 nodes are available: 1 Insufficient cpu.")

        if how == "succeeded":
            await finish_pod(registry, "first")
        else:
            await objects.delete(registry, PODS, "default", "first", Demand(grace_seconds=0))

        async def so() -> bool:
            return (await nodes_of_pods(registry))["second"] == "n1"

        await until(registry, so)


async def test_a_pod_that_is_being_deleted_keeps_its_room(registry: Registry) -> None:
    await create(registry, NODES, a_node(cpu="1"))
    async with running(registry, Scheduler):
        await create(registry, PODS, a_pod_requesting("first"))
        await wait_until_placed(registry, {"first": "n1"})
        await objects.delete(registry, PODS, "default", "first", Demand())
        await create(registry, PODS, a_pod_requesting("second"))
        await wait_for_message(registry, "second", "0/1 nodes are available: 1 Insufficient cpu.")


async def test_a_started_scheduler_knows_what_runs_where(registry: Registry) -> None:
    await create(registry, NODES, a_node(cpu="1"))
    await create(registry, PODS, a_pod_requesting("there", node_name="n1"))
    await create(registry, PODS, a_pod_requesting("p"))
    async with running(registry, Scheduler):
        await wait_for_message(registry, "p", "0/1 nodes are available: 1 Insufficient cpu.")


async def test_the_reasons_of_all_nodes_are_told(registry: Registry) -> None:
    await create(registry, NODES, a_node("full", cpu="1"))
    await create(registry, NODES, a_node("cordoned", unschedulable=True))
    await create(registry, NODES, a_node("tainted", taints=(Taint(key="gpu", value="yes", effect="NoSchedule"),)))
    await create(registry, PODS, a_pod_requesting("p", "2"))
    async with running(registry, Scheduler):
        why = (
            "0/3 nodes are available: 1 Insufficient cpu, 1 node(s) had untolerated taint {gpu: yes}, "
            "1 node(s) were unschedulable."
        )
        await wait_for_message(registry, "p", why)
        await settled(registry, 0.1)

    ((reason, message),) = await events(registry)
    assert (reason, _short(message)) == ("FailedScheduling", why)


async def test_a_changed_reason_is_told_after_a_while(registry: Registry) -> None:
    await create(registry, NODES, a_node("n1", cpu="1"))
    await create(registry, PODS, a_pod_requesting("p", "2"))
    async with running(registry, Scheduler) as controllers:
        await wait_for_message(registry, "p", "0/1 nodes are available: 1 Insufficient cpu.")
        await create(registry, NODES, a_node("n2", cpu="1"))
        await settled(registry, 0.15)
        await wait_for_message(registry, "p", "0/1 nodes are available: 1 Insufficient cpu.")

        controllers.move(seconds=15)  # though nothing else happens
        await wait_for_message(registry, "p", "0/2 nodes are available: 2 Insufficient cpu.")


async def test_uncordoned_a_node_takes_what_waits(registry: Registry) -> None:
    await create(registry, NODES, a_node(unschedulable=True))
    await create(registry, PODS, a_pod_requesting("p"))
    async with running(registry, Scheduler):
        await wait_for_message(registry, "p", "0/1 nodes are available: 1 node(s) were unschedulable.")
        await alter(registry, "n1", unschedulable=False)
        await wait_until_placed(registry, {"p": "n1"})


async def test_a_label_added_to_a_node_is_seen(registry: Registry) -> None:
    await create(registry, NODES, a_node())
    await create(registry, PODS, a_pod_requesting("p", node_selector={"disk": "ssd"}))
    async with running(registry, Scheduler):
        await wait_for_message(
            registry, "p", "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector."
        )

        def label(node: Any) -> Any:
            return replace(node, metadata=replace(node.metadata, labels={"disk": "ssd"}))

        await objects.edit(registry, NODES, "", "n1", label)
        await wait_until_placed(registry, {"p": "n1"})


async def test_a_toleration_added_to_a_waiting_pod_is_seen(registry: Registry) -> None:
    await create(registry, NODES, a_node(taints=(Taint(key="gpu", effect="NoSchedule"),)))
    await create(registry, PODS, a_pod_requesting("p"))
    async with running(registry, Scheduler):
        await wait_for_message(registry, "p", "0/1 nodes are available: 1 node(s) had untolerated taint {gpu: }.")

        def tolerate(pod: Any) -> Any:
            more = (*pod.spec.tolerations, Toleration(key="gpu", operator="Exists"))
            return replace(pod, spec=replace(pod.spec, tolerations=more))

        await objects.edit(registry, PODS, "default", "p", tolerate)
        await wait_until_placed(registry, {"p": "n1"})


async def test_a_gated_pod_waits_until_its_gates_are_gone(registry: Registry) -> None:
    await create(registry, NODES, a_node())
    await create(registry, PODS, a_pod_requesting("p", scheduling_gates=(PodSchedulingGate(name="example.com/g"),)))
    async with running(registry, Scheduler):
        await settled(registry, 0.15)
        assert await nodes_of_pods(registry) == {"p": ""}

        def open_gates(pod: Any) -> Any:
            return replace(pod, spec=replace(pod.spec, scheduling_gates=()))

        await objects.edit(registry, PODS, "default", "p", open_gates)
        await wait_until_placed(registry, {"p": "n1"})


async def test_what_asks_for_another_scheduler_is_left_to_it(registry: Registry) -> None:
    await create(registry, NODES, a_node())
    await create(registry, PODS, a_pod_requesting("p", scheduler_name="theirs"))
    async with running(registry, Scheduler):
        await settled(registry, 0.15)

    assert await nodes_of_pods(registry) == {"p": ""}
    assert await events(registry) == []


async def test_more_than_one_round_takes_are_all_placed(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "MAX_ROUND_PODS", 3)
    await create(registry, NODES, a_node(cpu="10", pods="20"))
    await asyncio.gather(*(create(registry, PODS, a_pod_requesting(f"p{number}")) for number in range(10)))
    async with running(registry, Scheduler):
        await wait_until_bound(registry, 10)


async def test_a_binding_that_is_refused_while_others_are_planned_gives_nothing_away_twice(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds are planned while those before are committed; one of them was planned from a pod that has changed."""
    monkeypatch.setattr(scheduler, "ROUND_PODS", 2)
    for name in ("n1", "n2"):
        await create(registry, NODES, a_node(name, cpu="5", pods="20"))
    for number in range(10):
        await create(registry, PODS, a_pod_requesting(f"p{number}"))
    copy = await held_copy(registry)

    def annotate(pod: Any) -> Any:
        return replace(pod, metadata=replace(pod.metadata, annotations={"changed": "yes"}))

    await objects.edit(registry, PODS, "default", "p4", annotate)
    async with running(registry, Scheduler, copy=copy) as controllers:

        async def refused() -> bool:
            return bool(controllers.runners[0]._failures)

        await until(registry, refused)
        copy.is_paused = False
        controllers.move(seconds=10)
        await wait_until_bound(registry, 10)

    await check_nodes_were_never_overcommitted(registry, 5)


async def test_those_without_a_place_do_not_keep_others_from_theirs(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "MAX_ROUND_PODS", 3)
    await create(registry, NODES, a_node())
    for number in range(7):
        await create(registry, PODS, a_pod_requesting(f"big{number}", "50"))
    await create(registry, PODS, a_pod_requesting("small", "1"))
    async with running(registry, Scheduler) as controllers:
        await wait_until_bound(registry, 1)
        await settled(registry, 0.2)
        assert controllers.runners[0]._dirty == {}  # once all had their turn, it rests
        assert (
            min(controllers.runners[0].delayed.due.values()) - registry.elapsed()
            >= timedelta(minutes=4).total_seconds()
        )

    assert (await nodes_of_pods(registry))["small"] == "n1"


async def test_it_never_gives_away_more_than_there_is(registry: Registry) -> None:
    """While pods come, end and are deleted, and the connections to the database break."""
    for name in ("n1", "n2"):
        await create(registry, NODES, a_node(name, cpu="3", pods="4"))
    async with running(registry, Scheduler) as controllers:
        for number in range(24):
            with contextlib.suppress(OutcomeUnknown, Unavailable):
                await create(registry, PODS, a_pod_requesting(f"p{number}"))
            if number % 8 == 5:
                await break_connections(registry)
            if number % 3 == 2:
                await finish_one_pod(registry)
            controllers.move(seconds=1)
        for _ in range(5):
            controllers.move(seconds=1)
            await settled(registry, 0.1)

    await check_nodes_were_never_overcommitted(registry, 3)


async def break_connections(registry: Registry) -> None:
    sql = """select pg_terminate_backend(pid) from pg_stat_activity
        where datname = current_database() and application_name = 'jobplane writer'"""
    await registry.store.pool.execute(sql)
    await registry.store.feed.changed_within(0.3)


async def finish_one_pod(registry: Registry) -> None:
    running_ones = [p for p in await every(registry, PODS) if p.spec.node_name and p.status.phase == "Pending"]
    for pod in running_ones[:1]:
        with contextlib.suppress(OutcomeUnknown, Unavailable):
            await finish_pod(registry, pod.metadata.name)


async def check_nodes_were_never_overcommitted(registry: Registry, most: int) -> None:
    """By the history: at every revision."""
    changes, _, _ = await registry.store.reader.history(registry.store.pool, 0, None)
    there: dict[str, str] = {}
    for change in changes:
        if change.key.kind != PODS.resource:
            continue
        there.pop(change.key.name, None)
        fields = change.selector_index.fields
        if change.change != "D" and fields.get("spec.nodeName") and fields["status.phase"] == "Pending":
            there[change.key.name] = fields["spec.nodeName"]
        assert max(Counter(there.values()).values(), default=0) <= most
    assert any(there.values())
