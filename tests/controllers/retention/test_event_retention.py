"""Events on a real database: told again they are counted, nothing about them stops a plan, and they go after a while."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from app.controllers.planned_write import PlannedWrite
from app.controllers.retention.event_retention import BATCH, EventRetention
from app.controllers.runner import Runner
from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.event import Event
from app.kinds.core.event_v1 import outward
from app.plans.plan import Create, Emit, Plan
from app.registry import leader_election
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from app.store import Key, Mirror, Write
from tests.controllers.running import every
from tests.controllers.test_runner import Controller, a_map
from tests.registry.examples import JOBS, a_job, create, example, get, named

HOUR = timedelta(hours=1)


async def told(registry: Registry) -> list[Event]:
    return await every(registry, EVENTS)


class TestTellingAgain:
    """By a runner that carries out plans of the test's own."""

    @pytest.fixture
    async def runner(self, registry: Registry) -> Runner:
        mirror = Mirror({"configmaps": type(a_map("a"))})
        return Runner(registry, mirror, Controller(mirror, lambda *_: []))

    async def tell(self, registry: Registry, runner: Runner, *others: Any, message: str = "again") -> None:
        job = await get(registry, JOBS, "pi") or await create(registry, JOBS, a_job())
        emit = Emit("Normal", "Reason", message, job)
        await runner._execute(Key("numbers", "", "one"), PlannedWrite(Plan((*others, emit))))

    async def test_the_same_is_counted(self, registry: Registry, runner: Runner) -> None:
        await self.tell(registry, runner)
        registry.clock.move(minutes=2)
        await self.tell(registry, runner)

        (event,) = await told(registry)
        assert (event.count, event.last_timestamp) == (2, registry.now())
        assert event.last_timestamp - event.first_timestamp == timedelta(minutes=2)
        assert outward(event).deprecated_count == 2

    async def test_one_that_is_gone_is_told_anew(self, registry: Registry, runner: Runner) -> None:
        await self.tell(registry, runner)
        (event,) = await told(registry)
        await objects.delete(registry, EVENTS, "default", event.metadata.name, Demand())

        await self.tell(registry, runner, Create(a_map("a")))

        (new,) = await told(registry)
        assert (new.count, new.metadata.name != event.metadata.name) == (1, True)
        assert await get(registry, CONFIGMAPS, "a") is not None  # the rest of the plan has happened, too

    async def test_one_that_was_changed_is_told_anew(self, registry: Registry, runner: Runner) -> None:
        await self.tell(registry, runner)
        (event,) = await told(registry)
        await objects.edit(registry, EVENTS, "default", event.metadata.name, lambda old: named(old, labels={"a": "b"}))

        await self.tell(registry, runner)
        await self.tell(registry, runner)

        assert sorted(each.count for each in await told(registry)) == [1, 2]

    async def test_of_many_the_last_are_combined(self, registry: Registry, runner: Runner) -> None:
        for n in range(12):
            await self.tell(registry, runner, message=f"n{n}")

        messages = {each.message: each.count for each in await told(registry)}
        assert len(messages) == 10
        assert messages["(combined from similar events): n11"] == 3


async def an_event(registry: Registry, name: str, **metadata: Any) -> Event:
    return await create(registry, EVENTS, named(example(EVENTS), name=name, namespace="default", **metadata))


async def age(registry: Registry, span: timedelta, *names: str) -> None:
    """As if the newest versions of these had been written so long ago."""
    sql = """update history set recorded_at = recorded_at - $1::interval
        where kind = 'events' and name = any($2)"""
    await registry.store.pool.execute(sql, span, list(names))


async def names(registry: Registry) -> list[str]:
    return sorted(each.metadata.name for each in await told(registry))


async def clean_up(registry: Registry, batch: int = BATCH) -> int:
    """One run, by the leader of a moment."""
    return (await retention(registry, batch).run_once(registry.now()))["deleted events"]


def retention(registry: Registry, batch: int = BATCH) -> EventRetention:
    return EventRetention(registry.store, registry.store.commit, HOUR, batch)


async def test_old_events_go_and_watchers_see_it(registry: Registry) -> None:
    for name in ("a", "b", "c"):
        await an_event(registry, name)
    await age(registry, 2 * HOUR, "a", "b")
    before = await registry.store.revision()

    assert await clean_up(registry) == 2

    assert await names(registry) == ["c"]
    changes = await registry.store.history_of("events", before, await registry.store.revision())
    assert [(each.key.name, each.change) for each in changes] == [("a", "D"), ("b", "D")]


async def test_one_that_happened_again_stays(registry: Registry) -> None:
    for name in ("a", "b"):
        await an_event(registry, name)
    await age(registry, 2 * HOUR, "a", "b")
    await objects.edit(registry, EVENTS, "default", "a", lambda old: named(old, labels={"a": "b"}))

    assert await clean_up(registry) == 1

    assert await names(registry) == ["a"]


async def test_no_finalizer_holds_them(registry: Registry) -> None:
    await an_event(registry, "a", finalizers=("example.com/hold",))
    await age(registry, 2 * HOUR, "a")

    assert await clean_up(registry) == 1

    assert await names(registry) == []


async def test_they_are_looked_at_again_in_a_while(registry: Registry) -> None:
    await an_event(registry, "a")
    task = retention(registry)
    assert await task.run_once(registry.now()) == {"deleted events": 0}
    await age(registry, 2 * HOUR, "a")

    assert await task.run_once(registry.now()) == {"deleted events": 1}

    assert await names(registry) == []


async def test_many_go_in_parts(registry: Registry) -> None:
    made = [f"n{n}" for n in range(15)]
    for name in made:
        await an_event(registry, name)
    await age(registry, 2 * HOUR, *made[:11])

    assert await clean_up(registry, batch=4) == 11

    assert await names(registry) == sorted(made[11:])


async def test_one_that_happens_again_meanwhile_stays_and_the_others_go(registry: Registry) -> None:
    for name in ("a", "b"):
        await an_event(registry, name)
    await age(registry, 2 * HOUR, "a", "b")
    tries: list[int] = []

    async def commit(writes: Sequence[Write]) -> list[int]:
        tries.append(len(writes))
        if len(tries) == 1:
            await objects.edit(registry, EVENTS, "default", "a", lambda old: named(old, labels={"a": "b"}))
        return await registry.store.commit(writes)

    await EventRetention(registry.store, commit, HOUR).run_once(registry.now())

    assert (tries, await names(registry)) == ([2, 1], ["a"])


async def test_a_leader_that_is_none_any_more_deletes_nothing(registry: Registry) -> None:
    await an_event(registry, "a")
    await age(registry, 2 * HOUR, "a")
    epoch = await leader_election.begin(registry, "test")
    await leader_election.begin(registry, "test")
    task = EventRetention(registry.store, partial(epoch.commit, registry.store), HOUR)

    running = asyncio.ensure_future(task.run_once(registry.now()))
    await epoch.over.wait()
    running.cancel()

    assert await names(registry) == ["a"]
