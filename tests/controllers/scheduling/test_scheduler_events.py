"""Events of bindings: with few bindings in the same write set; with many, after all of them."""

import asyncio

import pytest

from app.controllers.scheduling import binding_writes, scheduler
from app.controllers.scheduling.scheduler import Scheduler
from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.node import KIND as NODES
from app.registry.verbs.objects import Registry
from tests.controllers.machines import a_node
from tests.controllers.running import events, every, running, settled, until
from tests.controllers.scheduling.test_scheduler import a_pod_requesting
from tests.registry.examples import PODS, create


async def scheduled(registry: Registry, count: int) -> None:
    """Pods that have waited for a node, and have been told so, get one."""

    async def so(reason: str) -> bool:
        return [each for each, _ in await events(registry)].count(reason) == count

    async with running(registry, Scheduler):
        await asyncio.gather(*(create(registry, PODS, a_pod_requesting(f"p{number}")) for number in range(count)))
        await until(registry, lambda: so("FailedScheduling"))
        await create(registry, NODES, a_node(cpu="100", pods="100"))
        await until(registry, lambda: so("Scheduled"))
        await settled(registry, 0.1)


async def revisions(registry: Registry) -> tuple[list[int], list[int]]:
    """Of the bindings, and of the events about them."""
    bound = [int(pod.metadata.resource_version) for pod in await every(registry, PODS) if pod.spec.node_name]
    wait_for_message = [each for each in await every(registry, EVENTS) if each.reason == "Scheduled"]
    return bound, [int(each.metadata.resource_version) for each in wait_for_message]


async def test_few_bindings_are_committed_with_their_events(registry: Registry) -> None:
    await scheduled(registry, 3)

    bound, wait_for_message = await revisions(registry)
    assert sorted((*bound, *wait_for_message)) == list(range(min(bound), min(bound) + 6))  # one write set


async def test_of_many_bindings_the_events_follow(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "BATCH", 4)
    await scheduled(registry, 12)

    bound, wait_for_message = await revisions(registry)
    assert (len(bound), len(wait_for_message)) == (12, 12)
    assert max(bound) < min(wait_for_message)
    messages = {message for reason, message in await events(registry) if reason == "Scheduled"}
    assert messages == {f"Successfully assigned default/p{number} to n1" for number in range(12)}


async def test_of_very_many_bindings_the_events_come_in_parts(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "BATCH", 2)
    monkeypatch.setattr(binding_writes, "SETS_TOGETHER", 2)
    await scheduled(registry, 15)

    bound, wait_for_message = await revisions(registry)
    assert (len(bound), len(wait_for_message)) == (15, 15)
    assert max(bound) < min(wait_for_message)


async def test_while_more_pods_wait_their_bindings_come_before_the_events_of_others(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "BATCH", 4)
    monkeypatch.setattr(scheduler, "MAX_ROUND_PODS", 6)
    await scheduled(registry, 12)

    bound, wait_for_message = await revisions(registry)
    assert (len(bound), len(wait_for_message)) == (12, 12)
    assert max(bound) < min(wait_for_message)


async def test_no_more_events_than_so_many_are_kept_for_later(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(scheduler, "BATCH", 4)
    monkeypatch.setattr(scheduler, "MAX_ROUND_PODS", 6)
    monkeypatch.setattr(binding_writes, "MAX_DEFERRED", 5)
    await scheduled(registry, 18)

    bound, wait_for_message = await revisions(registry)
    assert (len(bound), len(wait_for_message)) == (18, 18)
    assert min(wait_for_message) < max(bound)
