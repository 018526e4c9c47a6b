"""Forgetting: old versions go, what lives keeps its only body, and nobody is given a gap."""

import asyncio
from datetime import timedelta
from functools import partial

import pytest

from app.kinds import by_name
from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.machinery.errors import ApiError
from app.registry.verbs.lists import Scope
from app.registry.verbs.objects import Registry
from app.registry.verbs.watch import Watch
from app.store import Compacted, Feed, Query, Store, compaction, open_store, timeline
from app.store.compaction import compact, compact_secrets
from tests.conftest import Clock
from tests.store.writes import KIND, create, delete, key, modify

NO_TIME = timedelta(0)
A_DAY = timedelta(days=1)


async def revisions(store: Store) -> list[int]:
    return [row["revision"] for row in await store.pool.fetch("select revision from history order by revision")]


async def test_versions_that_are_nobodys_newest_go(store: Store) -> None:
    a, b, gone = await store.commit([create("a", 1), create("b", 1), create("gone")])
    (newer,) = await store.commit([modify("a", a, 2)])
    await store.commit([delete("gone", gone)])

    assert await compact(store.pool, NO_TIME) == 3

    assert await revisions(store) == [b, newer]
    page = await store.list(Query(kind=KIND))
    assert [head.revision for head in page.heads] == [newer, b]


async def test_a_table_that_was_empty_when_postgres_looked_is_compacted_as_fast(store: Store) -> None:
    """By its statistics a join with the table costs nothing: 2,000 times all of it took more than the 60 s of a statement."""
    await store.pool.execute("analyze versions")
    revisions = await store.commit([create(f"n-{number}") for number in range(2_000)])
    await store.commit([delete(f"n-{number}", revision) for number, revision in enumerate(revisions)])
    assert await compact(store.pool, NO_TIME) == 4_000


async def test_what_is_young_enough_stays(store: Store) -> None:
    (a,) = await store.commit([create("a")])
    await store.commit([modify("a", a)])

    assert await compact(store.pool, A_DAY) == 0
    assert len(await revisions(store)) == 2
    assert await store.pool.fetchval("select floor from counter") == 0


async def test_what_was_looked_at_is_not_looked_at_again(store: Store) -> None:
    kept, a = await store.commit([create("kept"), create("a")])
    progress = compaction.Progress()
    assert await compact(store.pool, NO_TIME, progress) == 0
    assert progress.revision == a

    (second,) = await store.commit([modify("a", a)])
    (third,) = await store.commit([modify("kept", kept)])
    assert await compact(store.pool, NO_TIME, progress) == 2
    assert progress.revision == third
    assert await revisions(store) == [second, third]

    await store.commit([delete("a", second), delete("kept", third)])
    assert await compact(store.pool, NO_TIME, progress) == 4
    assert await revisions(store) == []


async def age(store: Store, *revisions: int) -> None:
    sql = "update history set recorded_at = now() - interval '2 days' where revision = any($1)"
    await store.pool.execute(sql, revisions)


async def test_only_what_is_old_goes(store: Store) -> None:
    (a,) = await store.commit([create("a")])
    (newer,) = await store.commit([modify("a", a)])
    await age(store, a, newer)
    (newest,) = await store.commit([modify("a", newer)])

    assert await compact(store.pool, A_DAY) == 1

    assert await revisions(store) == [newer, newest]
    changes = await store.reader.history_of(KIND, newer, newest)
    assert [each.revision for each in changes] == [newest]


async def test_what_was_there_at_the_floor_can_still_be_listed(store: Store) -> None:
    """Though it is old, and nobody's newest: it was replaced after the floor."""
    a, b, c = await store.commit([create("a", 1), create("b", 1), create("c", 1)])
    await age(store, a, b, c)
    (second,) = await store.commit([modify("a", a, 2)])
    await store.commit([delete("b", b)])

    assert await compact(store.pool, A_DAY) == 0

    for revision in (c, second):
        page = await store.list(Query(kind=KIND, at=revision))
        assert [head.revision for head in page.heads] == [second if revision == second else a, b, c]


async def test_a_list_from_below_is_refused(store: Store) -> None:
    (first,) = await store.commit([create("a")])
    (second,) = await store.commit([modify("a", first)])
    await compact(store.pool, NO_TIME)

    with pytest.raises(Compacted):
        await store.list(Query(kind=KIND, at=first))
    assert len((await store.list(Query(kind=KIND, at=second))).heads) == 1


async def test_it_goes_in_slices(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compaction, "SLICE", 3)
    (revision,) = await store.commit([create("a")])
    for _ in range(10):
        (revision,) = await store.commit([modify("a", revision)])

    assert await compact(store.pool, NO_TIME) == 10
    assert await revisions(store) == [revision]
    assert await store.get(key("a"))


async def test_twice_does_no_harm(store: Store) -> None:
    await store.commit([create("a")])

    assert [await compact(store.pool, NO_TIME) for _ in range(2)] == [0, 0]
    assert await store.get(key("a"))


async def test_a_watch_from_below_is_told_410(dsn: str) -> None:
    async with open_store(dsn, ring_bytes=1) as store:  # nothing is remembered but what is stored
        start = await store.revision()
        (first,) = await store.commit([create("a", kind=CONFIGMAPS.resource)])
        (second,) = await store.commit([modify("a", first, kind=CONFIGMAPS.resource)])
        await compact(store.pool, NO_TIME)

        with pytest.raises(ApiError, match="too old resource version") as caught:
            await Watch(Registry(store, Clock()), Scope(kind=CONFIGMAPS), start).next_events(1)
        assert caught.value.code == 410
        assert caught.value.reason == "Expired"
        assert await Watch(Registry(store, Clock()), Scope(kind=CONFIGMAPS), second).next_events(0.01) == []


# --- Secrets, of which old versions are kept for minutes

SECRETS = by_name("", "Secret")
SECRET = SECRETS.resource


async def aged(store: Store) -> tuple[int, int, int]:
    """A secret that was replaced, one that was deleted, and another kind's change: all old."""
    a, b, other = await store.commit([create("a", 1, kind=SECRET), create("b", 1, kind=SECRET), create("x", 1)])
    (newer,) = await store.commit([modify("a", a, 2, kind=SECRET)])
    (gone,) = await store.commit([delete("b", b, 1, kind=SECRET)])
    (last,) = await store.commit([modify("x", other, 2)])
    await age(store, a, b, other, newer, gone, last)
    return other, newer, gone


async def test_old_versions_of_secrets_go_and_nothing_else(store: Store) -> None:
    other, newer, gone = await aged(store)

    assert await compact_secrets(store.pool, A_DAY) == 3  # a's first version, and b with its deletion

    assert await revisions(store) == [other, newer, gone + 1]
    assert tuple(await store.pool.fetchrow("select floor, secrets_floor from counter")) == (0, gone)
    assert [each.revision for each in await store.history_of(KIND, 0, gone + 1)] == [other, gone + 1]
    assert [head.revision for head in (await store.list(Query(kind=KIND, at=newer))).heads] == [other]
    assert await compact_secrets(store.pool, A_DAY) == 0


async def test_secrets_that_are_young_enough_stay(store: Store) -> None:
    (a,) = await store.commit([create("a", 1, kind=SECRET)])
    (newer,) = await store.commit([modify("a", a, 2, kind=SECRET)])

    assert await compact_secrets(store.pool, A_DAY) == 0
    assert [head.revision for head in (await store.list(Query(kind=SECRET, at=a))).heads] == [a]
    assert [each.revision for each in await store.history_of(SECRET, a, newer)] == [newer]


@pytest.mark.parametrize("ring_bytes", [pytest.param(1, id="from history"), pytest.param(32 << 20, id="from memory")])
async def test_lists_and_watches_of_secrets_from_below_are_told_410(dsn: str, ring_bytes: int) -> None:
    async with open_store(dsn, ring_bytes=ring_bytes) as store:
        start = await store.revision()
        _, newer, gone = await aged(store)
        await compact_secrets(store.pool, A_DAY)

        for revision in (start, newer):
            with pytest.raises(Compacted):
                await store.list(Query(kind=SECRET, at=revision))
            with pytest.raises(ApiError, match="too old resource version") as caught:
                await Watch(Registry(store, Clock()), Scope(kind=SECRETS), revision).next_events(1)
            assert (caught.value.code, caught.value.reason) == (410, "Expired")
        assert len((await store.list(Query(kind=SECRET, at=gone))).heads) == 1
        assert await Watch(Registry(store, Clock()), Scope(kind=SECRETS), gone).next_events(0.01) == []


async def test_a_watch_of_secrets_reads_history_once(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    start = await store.revision()
    (a,) = await store.commit([create("a", 1, kind=SECRET)])
    watching = Watch(Registry(store, Clock()), Scope(kind=SECRETS), start)
    assert [event.object.key.name for event in await watching.next_events(1)] == ["a"]

    monkeypatch.setattr(store, "history_of", None)
    await store.commit([modify("a", a, 2, kind=SECRET)])
    assert [event.type for event in await watching.next_events(1)] == ["MODIFIED"]


async def test_a_feed_that_missed_the_deletion_of_a_secret_starts_anew(store: Store) -> None:
    """Or a mirror would hold that secret for ever."""
    (a,) = await store.commit([create("a", 1, kind=SECRET)])

    async def check_timeline() -> None:
        async with store.pool.acquire() as connection:
            await timeline.check_timeline(connection, behind)

    behind = Feed(partial(store.reader.history, store.pool), 1 << 20, check_timeline)
    behind.start_at(a)
    (gone,) = await store.commit([delete("a", a, 1, kind=SECRET)])
    await age(store, a, gone)
    await compact_secrets(store.pool, A_DAY)

    running = asyncio.ensure_future(behind.run())
    async with asyncio.timeout(20):
        await behind.lost_touch.wait()
    running.cancel()

    assert behind.unbroken_since == gone
