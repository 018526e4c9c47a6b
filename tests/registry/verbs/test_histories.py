"""Random histories, with two replicas, many writers and watchers, and a database that is restarted in their midst.

Whatever happens: what a watcher was told, applied to the list that it started from, is the list at the end; it is told
each change of each object once and in order; and a list at any revision is what the history leads to there.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.kinds.core.configmap import ConfigMap
from app.machinery.base import ObjectMeta
from app.machinery.errors import ApiError
from app.postgres.embedded_postgres import Postgres
from app.registry.bootstrap import bootstrap
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.lists import Place, Scope, list_page, place_of
from app.registry.verbs.objects import Registry
from app.registry.verbs.watch import Event, Watch
from app.store import Change, Compacted, Key, OutcomeUnknown, Store, StoredObject, Unavailable, open_store
from app.store.compaction import compact
from app.store.errors import call_database
from app.store.schema.migrate import migrate
from app.store.timeline import read_position
from tests.conftest import Clock
from tests.registry.examples import named

NAMES = [f"n{number}" for number in range(8)]
SPACES, TEAMS = ("default", "kube-public"), ("red", "blue")
WRITERS, WRITES = 5, 60  # in all, and of each
WATCHERS = 14
PATIENCE = 60
State = dict[Key, tuple[int, bytes]]


def team(wanted: str) -> Scope:
    return Scope(kind=CONFIGMAPS, matches=lambda _, selector_index: selector_index.labels.get("team") == wanted)


SCOPES: Sequence[Scope] = (
    Scope(kind=CONFIGMAPS),
    Scope(kind=CONFIGMAPS, namespace="default"),
    Scope(kind=CONFIGMAPS, name="n3"),
    team("red"),
    team("blue"),
    Scope(kind=CONFIGMAPS, namespace="kube-public", matches=team("red").matches),
)


@dataclass
class World:
    """Both replicas, and what happens to them."""

    replicas: list[Registry]
    chance: Random
    watchers: "list[Watcher]" = field(default_factory=list)
    writing: int = WRITERS

    def replica(self) -> Registry:
        return self.chance.choice(self.replicas)

    def store(self) -> Store:
        return self.replica().store


async def trying(act: Callable[[], Any]) -> Any:
    """Again and again while the database is away."""
    while True:
        try:
            return await act()
        except Unavailable:
            await asyncio.sleep(0.01)


# --- writers


async def write(world: World) -> None:
    for _ in range(WRITES):
        registry, act = world.replica(), world.chance.choice([make, make, fill, relabel, relabel, remove, remove_all])
        try:
            await act(registry, world.chance.choice(SPACES), world.chance.choice(NAMES), world.chance)
        except (ApiError, OutcomeUnknown):  # somebody was quicker, or nobody knows: the history does
            continue
        except Unavailable:
            await asyncio.sleep(0.01)
    world.writing -= 1


async def make(registry: Registry, space: str, name: str, chance: Random) -> None:
    made = ConfigMap(metadata=ObjectMeta(name=name, labels={"team": chance.choice(TEAMS)}))
    await objects.create(registry, CONFIGMAPS, space, made)


async def fill(registry: Registry, space: str, name: str, chance: Random) -> None:
    data = {"number": str(chance.random())}
    await objects.edit(registry, CONFIGMAPS, space, name, lambda old: replace(old, data=data))


async def relabel(registry: Registry, space: str, name: str, chance: Random) -> None:
    labels = {"team": chance.choice(TEAMS)}
    await objects.edit(registry, CONFIGMAPS, space, name, lambda old: named(old, labels=labels))


async def remove(registry: Registry, space: str, name: str, _: Random) -> None:
    await objects.delete(registry, CONFIGMAPS, space, name, Demand())


async def remove_all(registry: Registry, space: str, _: str, chance: Random) -> None:
    if chance.random() < 0.2:
        wanted = replace_space(team("red"), space)
        for head in (await list_page(registry, wanted)).heads:
            await remove(registry, space, head.key.name, chance)


def replace_space(scope: Scope, space: str) -> Scope:
    return Scope(kind=scope.kind, namespace=space, matches=scope.matches)


# --- readers


async def listed(world: World, scope: Scope, at: int | None = None) -> tuple[State, int]:
    """A list in pages of some size, each from some replica, and its revision."""
    limit = world.chance.choice([None, 1, 3, 100])
    state: State = {}
    after: Place | None = None
    while True:
        page = await trying(lambda after=after, at=at: list_page(world.replica(), scope, after, limit, at))
        at = page.revision
        for head in page.heads:
            assert head.key not in state
            state[head.key] = (head.revision, head.wire)
        if not page.more:
            return state, page.revision
        after = place_of(page.heads[-1])


class Watcher:
    """Lists, then watches; goes away now and then, and comes back to some replica with what it has seen last."""

    def __init__(self, world: World, scope: Scope) -> None:
        self._world = world
        self.scope = scope
        self.state: State = {}
        self.seen = 0
        self.events = 0

    async def run(self, until: Callable[[], int | None]) -> None:
        await self._start()
        watch = self._open()
        while (end := until()) is None or watch.revision < end:
            try:
                events = await watch.next_events(0.02)
            except Unavailable:
                await asyncio.sleep(0.01)
                continue
            for event in events:
                self._apply(event)
            if self._world.chance.random() < 0.2:
                if self._world.chance.random() < 0.5:  # or what it knows is the last event, as with most clients
                    self.seen = watch.revision
                watch = self._open()

    async def _start(self) -> None:
        """Now, or as it was some time ago."""
        chance = self._world.chance
        revision, first = await trying(lambda: call_database(read_position(self._world.store().pool)))
        # No client has one from between two timelines.
        at = chance.randint(max(1, first, revision - 50), revision) if chance.random() < 0.5 else None
        self.state, self.seen = await listed(self._world, self.scope, at)

    def _open(self) -> Watch:
        return Watch(self._world.replica(), self.scope, self.seen)

    def _apply(self, event: Event) -> None:
        """Each event must follow from what the watcher knows."""
        thing = event.object
        before = self.state.get(thing.key)
        assert thing.revision > self.seen
        assert b'"resourceVersion":"%d"' % thing.revision in thing.wire
        assert (event.type == "ADDED") == (before is None)
        self.seen = thing.revision
        self.events += 1
        if event.type == "DELETED":
            assert before is not None
            assert self._shows(thing)
            del self.state[thing.key]
        else:
            self.state[thing.key] = (thing.revision, thing.wire)

    def _shows(self, thing: Change | StoredObject) -> bool:
        """What leaves is shown as it was when it was selected."""
        wanted = next((each for each in TEAMS if self.scope is team_scopes.get(each)), None)
        return wanted is None or b'"team":"%b"' % wanted.encode() in thing.wire


team_scopes = {"red": SCOPES[3], "blue": SCOPES[4]}


# --- the whole


@pytest.fixture
async def postgres() -> AsyncIterator[Postgres]:
    """A server of the test's own, that may be restarted."""
    with tempfile.TemporaryDirectory(prefix="jobplane-test-") as folder:
        Path(folder).chmod(0o711)
        server = Postgres(Path(folder) / "pg")
        yield server
        await server.stop()


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # of connections that died in mid-air
async def test_every_watcher_and_every_list_tell_the_same_history(postgres: Postgres, clock: Clock, seed: int) -> None:
    dsn = await postgres.start()
    await migrate(dsn)
    async with AsyncExitStack() as stack, asyncio.timeout(PATIENCE):
        stores = [await stack.enter_async_context(open_store(dsn, ring_bytes=size)) for size in (6_000, 1 << 20)]
        world = World([Registry(store, clock) for store in stores], Random(seed))
        await bootstrap(world.replicas[0])
        await happen(world, postgres)
        final = await trying(stores[0].revision)
        history, _, _ = await stores[0].reader.history(stores[0].pool, 0, None)
        await the_watchers_know_the_end(world, final)
        states = replayed(history)
        await the_lists_are_the_history(world, states, 0)
        floor = sorted(states)[len(states) // 2]
        await forget(stores[0], floor)
        await the_lists_are_the_history(world, states, floor)


async def happen(world: World, postgres: Postgres) -> None:
    """Everything at once; the watchers come one after another, and stay until they know the end."""
    end: list[int] = []
    watching: list[asyncio.Future[None]] = []
    writers = [asyncio.ensure_future(write(world)) for _ in range(WRITERS)]
    restart = asyncio.ensure_future(restarted(world, postgres))
    for number in range(WATCHERS):
        watcher = Watcher(world, SCOPES[number % len(SCOPES)])
        world.watchers.append(watcher)
        watching.append(asyncio.ensure_future(watcher.run(lambda: end[0] if end else None)))
        await world.replicas[0].store.feed.changed_within(0.05)
    await asyncio.gather(restart, *writers)
    end.append(await trying(world.replicas[0].store.revision))
    await asyncio.gather(*watching)


async def restarted(world: World, postgres: Postgres) -> None:
    feed = world.replicas[1].store.feed
    begun = feed.cursor
    while feed.cursor < begun + 60 and world.writing:
        await feed.changed_within(0.1)
    await postgres.stop()
    await postgres.start()


async def the_watchers_know_the_end(world: World, final: int) -> None:
    assert sum(watcher.events for watcher in world.watchers) > 100
    for watcher in world.watchers:
        assert watcher.state == (await listed(world, watcher.scope, final))[0]


def replayed(history: Sequence[Change]) -> dict[int, dict[Key, Change]]:
    """What there was after each change of our kind."""
    states: dict[int, dict[Key, Change]] = {}
    state: dict[Key, Change] = {}
    for change in history:
        if change.key.kind != CONFIGMAPS.resource:
            continue
        before = state.get(change.key)
        assert change.previous == (before.revision if before and change.change != "A" else 0)
        state = {key: each for key, each in state.items() if key != change.key}
        if change.change != "D":
            state[change.key] = change
        states[change.revision] = state
    return states


async def the_lists_are_the_history(world: World, states: dict[int, dict[Key, Change]], floor: int) -> None:
    for revision in world.chance.sample(sorted(states), min(25, len(states))):
        scope = world.chance.choice(SCOPES)
        if revision < floor:
            with pytest.raises(Compacted):
                await listed(world, scope, revision)
            continue
        expected = {
            key: (each.revision, each.wire)
            for key, each in states[revision].items()
            if scope.selects(key, each.selector_index)
        }
        found, shown = await listed(world, scope, revision)
        assert (found, shown) == (expected, revision)
        assert list(found) == sorted(found)


async def forget(store: Store, floor: int) -> None:
    sql = "update history set recorded_at = now() - interval '2 days' where revision <= $1"
    await store.pool.execute(sql, floor)
    await compact(store.pool, timedelta(days=1))
