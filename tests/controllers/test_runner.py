"""The loop around every controller: what it does when told to look, when refused, when things break, and when it is time."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Self

import asyncpg
import pytest

from app.controllers import runner
from app.controllers.planned_write import PlannedWrite
from app.controllers.runner import Runner
from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.kinds.core.configmap import ConfigMap
from app.machinery.base import Object, ObjectMeta
from app.plans.plan import Create, Plan, Update
from app.registry import leader_election
from app.registry.leader_election import Epoch
from app.registry.plan_writer import write_set
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from app.store import Key, Mirror, OutcomeUnknown, Store, Write, open_store
from tests.conftest import Clock
from tests.controllers.running import every, settled, until
from tests.log_lines import lines
from tests.registry.examples import create, get, named
from tests.store.proxy import Proxy

KEY = Key("numbers", "", "one")
Planned = Sequence[PlannedWrite] | Iterator[PlannedWrite]
Decide = Callable[[Mirror, datetime], Planned]


class Controller:
    """Looks at one key, and does what the test says."""

    component = "test-controller"

    def __init__(self, mirror: Mirror, decide: Decide) -> None:
        self.mirror = mirror
        self.decide = decide
        self.looked: list[datetime] = []

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        return []

    def enqueue_all(self) -> Iterable[Key]:
        return [KEY]

    def reconcile(self, key: Key, now: datetime) -> Planned:
        self.looked.append(now)
        return self.decide(self.mirror, now)


class Loop:
    """A runner of that controller."""

    def __init__(
        self, registry: Registry, decide: Decide, epoch: Epoch | None = None, kind: type[Controller] = Controller
    ) -> None:
        self.registry = registry
        self.mirror = Mirror({CONFIGMAPS.resource: ConfigMap})
        self.controller = kind(self.mirror, decide)
        self.runner = Runner(registry, self.mirror, self.controller, epoch)

    async def __aenter__(self) -> Self:
        await self.registry.store.fill(self.mirror)
        self.task = asyncio.ensure_future(self.runner.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.wait([self.task])

    async def looked(self, times: int) -> None:
        async with asyncio.timeout(20):
            while len(self.controller.looked) < times:
                await self.registry.store.feed.changed_within(0.02)

    def move(self, **span: float) -> None:
        self.registry.clock.move(**span)
        self.runner._wake.set()


def a_map(name: str, value: str = "") -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name, namespace="default"), data={"value": value})


def here(mirror: Mirror, name: str) -> ConfigMap | None:
    found = mirror.get(Key(CONFIGMAPS.resource, "default", name))
    return found if isinstance(found, ConfigMap) else None


def count_up(mirror: Mirror, _: datetime) -> list[PlannedWrite]:
    """Adds one to the number, up to 20: refused if another did so meanwhile."""
    old = here(mirror, "number")
    value = int(old.data["value"]) if old else 20
    if old is None or value >= 20:
        return []
    new = ConfigMap(metadata=old.metadata, data={"value": str(value + 1)})
    return [PlannedWrite(Plan((Update(new, old),), again_at=datetime(2000, 1, 1, tzinfo=UTC)))]


@pytest.fixture
async def other(dsn: str, clock: Clock) -> AsyncIterator[Registry]:
    """A second process."""
    async with open_store(dsn) as store:
        yield Registry(store, clock)


def dear(_: Mirror, __: datetime) -> list[PlannedWrite]:
    """Takes long to plan."""
    ends = time.thread_time() + 0.02
    while time.thread_time() < ends:
        pass
    return []


async def test_changes_of_a_key_that_is_dear_to_plan_gather(registry: Registry) -> None:
    async with Loop(registry, dear) as loop:
        await loop.looked(1)
        for _ in range(10):
            loop.runner.enqueue(KEY)
            await asyncio.sleep(0)
        await loop.looked(2)
        await settled(registry, 0.3)

    assert len(loop.controller.looked) == 2


async def test_a_change_of_an_idle_key_waits_for_no_timer(registry: Registry) -> None:
    async with Loop(registry, lambda *_: []) as loop:
        await loop.looked(1)
        for times in range(2, 20):
            await asyncio.sleep(0)  # the round before ends
            await asyncio.sleep(0)
            loop.runner.enqueue(KEY)
            for _ in range(5):  # turns of the event loop, in which no time need pass
                await asyncio.sleep(0)
            assert len(loop.controller.looked) == times


async def test_a_plan_is_carried_out_whole(registry: Registry) -> None:
    async with Loop(registry, lambda *_: [PlannedWrite(Plan((Create(a_map("a")), Create(a_map("b")))))]):
        await until(registry, lambda: get(registry, CONFIGMAPS, "b"))

    a, b = await every(registry, CONFIGMAPS)
    assert int(b.metadata.resource_version) == int(a.metadata.resource_version) + 1
    assert a.metadata.uid != b.metadata.uid
    assert a.metadata.creation_timestamp == registry.clock()


async def test_of_an_iterator_the_next_is_planned_while_those_before_are_committed(registry: Registry) -> None:
    """No more than a few at a time: what waits for the database takes memory."""
    on_their_way: list[int] = []

    def plan() -> Iterator[PlannedWrite]:
        for number in range(60):
            on_their_way.append(number - len(loop.mirror._objects[CONFIGMAPS.resource]))
            yield PlannedWrite(Plan((Create(a_map(f"map-{number}")),)))

    loop = Loop(registry, lambda mirror, _: plan() if here(mirror, "map-59") is None else iter(()))
    async with loop:
        await until(registry, lambda: get(registry, CONFIGMAPS, "map-59"))

    assert len(await every(registry, CONFIGMAPS)) == 60
    assert 1 < max(on_their_way) <= runner._MOST_ON_THEIR_WAY + 1


async def test_once_a_write_is_refused_nothing_more_is_planned_before_the_key_is_looked_at_anew(
    registry: Registry,
) -> None:
    await create(registry, CONFIGMAPS, a_map("taken"))
    planned: list[int] = []

    def plan() -> Iterator[PlannedWrite]:
        yield PlannedWrite(Plan((Create(a_map("taken")),)))
        for number in range(100_000):
            planned.append(number)
            yield PlannedWrite(Plan())

    def decide(*_: object) -> Planned:
        is_first = len(loop.controller.looked) < 2
        return plan() if is_first else [PlannedWrite(Plan((Create(a_map("free")),)))]

    async with Loop(registry, decide) as loop:
        await until(registry, lambda: get(registry, CONFIGMAPS, "free"))

    assert 0 < len(planned) < 100_000


async def test_what_an_iterator_has_begun_is_awaited_when_it_breaks(registry: Registry) -> None:
    def plan() -> Iterator[PlannedWrite]:
        yield PlannedWrite(Plan((Create(a_map("begun")),)))
        raise RuntimeError("broken")

    async with Loop(registry, lambda *_: plan() if len(loop.controller.looked) < 2 else iter(())) as loop:
        await until(registry, lambda: get(registry, CONFIGMAPS, "begun"))
        await settled(registry, 0.1)
        assert [*loop.runner.delayed.due] == [KEY]
        loop.move(seconds=1)
        await loop.looked(2)


async def test_two_that_act_at_once_lose_nothing_and_do_nothing_twice(registry: Registry, other: Registry) -> None:
    await create(registry, CONFIGMAPS, a_map("number", "0"))

    async with Loop(registry, count_up), Loop(other, count_up):

        async def done() -> bool:
            return (await get(registry, CONFIGMAPS, "number")).data["value"] == "20"

        await until(registry, done)
        await settled(registry)

    sql = "select object->'data'->>'value' as value from configmaps_history order by revision"
    rows = await registry.store.pool.fetch(sql)
    assert [row["value"] for row in rows] == [str(number) for number in range(21)]


async def test_a_stale_plan_is_refused_and_made_again(registry: Registry, other: Registry) -> None:
    number = await create(registry, CONFIGMAPS, a_map("number", "17"))
    async with Loop(registry, lambda *_: []) as loop:
        await loop.looked(1)
        loop.mirror.is_paused = True
        loop.controller.decide = count_up
        changed = named(ConfigMap(metadata=number.metadata, data={"value": "18"}))
        await create_version(other, changed)
        await registry.store.feed.reach(await other.store.revision())
        loop.runner.enqueue(KEY)
        await loop.looked(4)
        assert (await get(registry, CONFIGMAPS, "number")).data["value"] == "18"

        async def waits() -> bool:
            return KEY in loop.runner.delayed.due

        await until(registry, waits)  # a plan under way would be refused when the clock has moved
        loop.mirror.is_paused = False

        async def done() -> bool:
            return (await get(registry, CONFIGMAPS, "number")).data["value"] == "20"

        loop.move(seconds=60)
        await until(registry, done)


async def create_version(registry: Registry, obj: ConfigMap) -> None:
    await objects.update(registry, CONFIGMAPS, "default", obj.metadata.name, obj)


async def test_what_is_refused_for_good_is_not_tried_without_end(registry: Registry) -> None:
    """For instance a pod in a namespace that is gone."""
    lost = named(a_map("a"), namespace="gone")

    async with Loop(registry, lambda *_: [PlannedWrite(Plan((Create(lost),)))]) as loop:
        await loop.looked(6)
        await settled(registry)
        assert len(loop.controller.looked) == 6  # the clock stands still: no more until it moves

        loop.move(seconds=10)
        await loop.looked(7)


async def test_it_looks_again_when_the_plan_says_so(registry: Registry) -> None:
    start = registry.now()
    at = start + timedelta(seconds=30, microseconds=400_000)

    def decide(_: Mirror, now: datetime) -> list[PlannedWrite]:
        return [PlannedWrite(Plan(again_at=at))] if now < at else []

    async with Loop(registry, decide) as loop:
        await loop.looked(1)
        loop.move(seconds=29)
        loop.move(seconds=1.5)  # plans see whole seconds: it is not yet time
        await settled(registry, 0.1)
        assert len(loop.controller.looked) == 1

        loop.move(seconds=0.5)
        await loop.looked(2)
        await settled(registry, 0.1)

    assert loop.controller.looked == [start, start + timedelta(seconds=31)]


async def test_asked_often_to_look_later_it_looks_once(registry: Registry) -> None:
    at = registry.now() + timedelta(seconds=30)
    async with Loop(registry, lambda *_: [PlannedWrite(Plan(again_at=at))]) as loop:
        for times in range(1, 20):
            await loop.looked(times)
            loop.runner.enqueue(KEY)
        await loop.looked(20)

        assert [*loop.runner.delayed.due] == [KEY]


async def test_one_that_breaks_does_not_stop_the_others(registry: Registry, caplog: pytest.LogCaptureFixture) -> None:
    def decide(mirror: Mirror, now: datetime) -> list[PlannedWrite]:
        if len(loop.controller.looked) < 2:
            raise RuntimeError("broken")
        return [PlannedWrite(Plan((Create(a_map("a")),)))] if here(mirror, "a") is None else []

    loop = Loop(registry, decide)
    async with loop:
        await loop.looked(1)
        loop.move(seconds=1)
        await until(registry, lambda: get(registry, CONFIGMAPS, "a"))

    assert any("object=numbers/one attempt=1 error=broken" in line for line in lines(caplog))


async def test_a_database_that_goes_away_is_waited_for(registry: Registry, dsn: str) -> None:
    await create(registry, CONFIGMAPS, a_map("number", "0"))
    async with Loop(registry, count_up) as loop:

        async def done() -> bool:
            loop.move(seconds=1)
            found = await until_answer(lambda: get(registry, CONFIGMAPS, "number"))
            return found.data["value"] == "20"

        for _ in range(3):
            await registry.store.feed.changed_within(0.2)
            await kill_all(dsn)
        await until(registry, done)

    sql = "select object->'data'->>'value' as value from configmaps_history order by revision"
    values = [row["value"] for row in await registry.store.pool.fetch(sql)]
    assert values == [str(number) for number in range(21)]


async def until_answer(ask: Callable[[], object]) -> ConfigMap:
    while True:
        try:
            return await ask()
        except Exception:  # killed as well
            continue


async def kill_all(dsn: str) -> None:
    connection = await asyncpg.connect(dsn)
    sql = "select pg_terminate_backend(pid) from pg_stat_activity where datname = current_database() and pid <> pg_backend_pid()"
    await connection.execute(sql)
    await connection.close()


async def test_after_an_unknown_outcome_it_plans_from_what_has_come_of_it(
    registry: Registry, store: Store, dsn: str
) -> None:
    """The commit happens and its answer is lost: the runner must not plan before the mirror has it."""
    async with Proxy(dsn) as proxy, open_store(proxy.dsn) as far:
        planned: list[list[str]] = []

        def decide(mirror: Mirror, _: datetime) -> list[PlannedWrite]:
            there = sorted(each.metadata.name for each in mirror.all(CONFIGMAPS.resource))
            planned.append(there)
            if len(there) >= 2:
                return []
            return [PlannedWrite(Plan((Create(a_map(f"n{len(planned)}")),), again_at=datetime(2000, 1, 1, tzinfo=UTC)))]

        async with Loop(Registry(far, registry.clock), lambda *_: []) as loop:
            await loop.looked(1)
            await far.commit([])
            proxy.lose_the_next_answer("jobplane writer")
            loop.controller.decide = decide
            loop.runner.enqueue(KEY)

            async def done() -> bool:
                loop.move(seconds=1)
                return len(await every(registry, CONFIGMAPS)) >= 2

            await until(registry, done)
            await settled(registry)

    assert planned[:2] == [[], ["n1"]]
    assert len(await every(registry, CONFIGMAPS)) == 2


async def test_a_status_that_was_planned_from_is_a_demand_even_if_it_stays(registry: Registry) -> None:
    """Whoever acts writes what it looked at, so that of two plans from one state the second is refused."""
    number = await create(registry, CONFIGMAPS, a_map("number"))
    writes = write_set(Plan((Create(a_map("a")),)), [number], "test", registry.now())

    assert [(each.change, each.key.name) for each in writes] == [("A", "a"), ("M", "number"), ("G", "default")]
    assert write_set(Plan(), [number], "test", registry.now()) == []


async def test_told_to_end_in_the_moment_that_it_is_woken_it_ends(registry: Registry) -> None:
    async with Loop(registry, lambda _mirror, _now: []) as loop:
        await loop.looked(1)
        await asyncio.sleep(0)  # it waits again
        loop.runner.enqueue(KEY)
        await asyncio.sleep(0)
        loop.task.cancel()
        done, _ = await asyncio.wait([loop.task], timeout=5)
        assert done


@dataclass(frozen=True, kw_only=True)
class Interrupted(Epoch):
    """Calls `stop` when a write has just been put into the queue, and before the writer looks there."""

    stop: Callable[[], object]

    async def commit(self, store: Store, writes: Sequence[Write]) -> list[int]:
        asyncio.get_running_loop().call_soon(self.stop)
        return await super().commit(store, writes)


async def test_told_to_end_it_withdraws_what_has_not_been_sent(registry: Registry) -> None:
    def stop() -> None:
        loop.task.cancel()

    epoch = Interrupted(precondition=(await leader_election.begin(registry, "test")).precondition, stop=stop)
    loop = Loop(registry, lambda *_: [PlannedWrite(Plan((Create(a_map("late")),)))], epoch)
    async with loop:
        await asyncio.wait([loop.task], timeout=5)

    await registry.store.commit([])  # returns when all that was sent is done
    assert loop.task.cancelled()
    assert not await every(registry, CONFIGMAPS)


async def test_what_is_planned_in_an_epoch_that_is_over_does_not_happen(registry: Registry, other: Registry) -> None:
    epoch = await leader_election.begin(registry, "test")
    await leader_election.begin(other, "test")
    async with Loop(registry, lambda *_: [PlannedWrite(Plan((Create(a_map("late")),)))], epoch) as loop:
        async with asyncio.timeout(20):
            await epoch.over.wait()
        assert await settled(registry) == await registry.store.revision()

    assert len(loop.controller.looked) == 1
    assert not await every(registry, CONFIGMAPS)


async def test_nothing_is_planned_before_the_mirror_shows_what_was_written(registry: Registry, other: Registry) -> None:
    """Before our own changes the feed reads what others wrote. If it fails to, they are stored, but not yet seen here."""
    feed = registry.store.feed
    read, seen = feed._read, []

    async def broken(after: int, up_to: int | None) -> Any:
        if up_to is not None:
            feed._read = read
        raise OSError("away")

    def twice(mirror: Mirror, now: datetime) -> list[PlannedWrite]:
        seen.append(here(mirror, "written") is not None)
        return [] if len(seen) > 1 else [PlannedWrite(Plan((Create(a_map("written")),), again_at=now))]

    await settled(registry)
    feed._read = broken
    await create(other, CONFIGMAPS, a_map("before"))
    async with Loop(registry, twice) as loop:
        await loop.looked(2)

    assert seen == [False, True]


class Serial(Controller):
    """Two keys that write the same, one after the other."""

    def __init__(self, mirror: Mirror, decide: Decide) -> None:
        super().__init__(mirror, decide)
        self._lock = asyncio.Lock()

    def enqueue_all(self) -> Iterable[Key]:
        return [KEY, KEY._replace(name="two")]

    def lock(self, _: Key) -> asyncio.Lock:
        return self._lock


@dataclass(frozen=True, kw_only=True)
class Mute(Epoch):
    """Commits, and does not tell."""

    async def commit(self, store: Store, writes: Sequence[Write]) -> list[int]:
        await store.commit(writes)
        raise OutcomeUnknown("mute")


async def test_who_has_waited_for_a_lock_plans_from_what_came_of_the_write_before(registry: Registry) -> None:
    planned_unsure: list[bool] = []

    def decide(mirror: Mirror, _: datetime) -> list[PlannedWrite]:
        planned_unsure.append(loop.runner._unsure)
        return [PlannedWrite(Plan((Create(a_map("a")),)))] if here(mirror, "a") is None else []

    epoch = Mute(precondition=(await leader_election.begin(registry, "test")).precondition)
    loop = Loop(registry, decide, epoch, Serial)
    async with loop:
        await loop.looked(2)

    assert planned_unsure == [False, False]


@pytest.mark.parametrize(
    ("hours", "seconds"), [pytest.param(-1, 10, id="it is set back"), pytest.param(1, 0, id="it is set forward")]
)
async def test_a_key_that_waits_is_looked_at_whatever_becomes_of_the_clock(
    registry: Registry, hours: int, seconds: float
) -> None:
    """Set back, after as much time as was left; set forward, at once."""
    passed = 1_000.0
    registry = Registry(registry.store, registry.clock, monotonic=lambda: passed)
    first = registry.clock()

    def later(_: Mirror, now: datetime) -> list[PlannedWrite]:
        return [PlannedWrite(Plan(again_at=first + timedelta(seconds=10)))] if now == first else []

    async with Loop(registry, later) as loop:
        await loop.looked(1)
        await settled(registry, 0.1)
        loop.move(hours=hours)
        passed += seconds
        loop.runner._wake.set()
        await loop.looked(2)


class Woken(Controller):
    """Looks again at every change."""

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        return [KEY]


def set_to_five(mirror: Mirror, _: datetime) -> list[PlannedWrite]:
    old = here(mirror, "number")
    if old is None or old.data["value"] == "5":
        return []
    new = ConfigMap(metadata=old.metadata, data={"value": "5"})
    return [
        PlannedWrite(
            Plan((Update(new, old), Create(named(a_map("found"), name=f"was-{old.data['value']}"))), None, True)
        )
    ]


async def test_what_a_plan_writes_that_settles_its_key_is_no_reason_to_look_again(registry: Registry) -> None:
    await create(registry, CONFIGMAPS, a_map("number", "1"))
    async with Loop(registry, set_to_five, kind=Woken) as loop:
        await until(registry, lambda: get(registry, CONFIGMAPS, "was-1"))
        await settled(registry)
        assert len(loop.controller.looked) == 1

        await create_version(registry, named(await get(registry, CONFIGMAPS, "number"), labels={"another": "change"}))
        await loop.looked(2)
        await create_version(registry, ConfigMap(metadata=ObjectMeta(name="number"), data={"value": "2"}))
        await until(registry, lambda: get(registry, CONFIGMAPS, "was-2"))
        await settled(registry)
        assert len(loop.controller.looked) == 3


async def test_a_change_by_another_while_a_settling_plan_is_written_is_looked_at(
    registry: Registry, other: Registry
) -> None:
    number = await create(registry, CONFIGMAPS, a_map("number", "1"))
    await create(registry, CONFIGMAPS, a_map("other"))
    async with Loop(registry, lambda *_: [], kind=Woken) as loop:
        await loop.looked(1)
        async with other.store.pool.acquire() as connection, connection.transaction():
            await connection.execute("select * from counter for update")
            loop.controller.decide = set_to_five
            loop.runner.enqueue(KEY)
            await loop.looked(2)
            change = asyncio.create_task(
                create_version(other, named(await get(other, CONFIGMAPS, "other"), labels={"a": "b"}))
            )
            stale = asyncio.create_task(create_version(other, named(number, labels={"a": "b"})))
        await asyncio.wait([change, stale])
        await until(registry, lambda: get(registry, CONFIGMAPS, "was-1"))
        await loop.looked(3)
