"""Forgetting: old versions go, what lives keeps its only body, and nobody is given a gap."""

from datetime import timedelta

import pytest

from app.kinds.configmap import KIND as CONFIGMAPS
from app.kinds.errors import ApiError
from app.registry.lists import Scope
from app.registry.watch import Watch
from app.store import Compacted, Query, Store, open_store
from app.store import compact as compaction
from app.store.compact import compact
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


async def test_what_is_young_enough_stays(store: Store) -> None:
    (a,) = await store.commit([create("a")])
    await store.commit([modify("a", a)])

    assert await compact(store.pool, A_DAY) == 0
    assert len(await revisions(store)) == 2
    assert await store.pool.fetchval("select floor from counter") == 0


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
            await Watch(store, Scope(kind=CONFIGMAPS), start).next_events(1)
        assert caught.value.code == 410
        assert caught.value.reason == "Expired"
        assert await Watch(store, Scope(kind=CONFIGMAPS), second).next_events(0.01) == []
