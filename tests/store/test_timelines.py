"""A database that went back in time: every process that knew more starts anew, and no revision is given out twice."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import asyncpg
import pytest

from app.machinery.base import Object
from app.store import (
    Change,
    Compacted,
    Conflict,
    Mirror,
    OutcomeUnknown,
    Query,
    Store,
    Unavailable,
    open_store,
    precondition,
)
from app.store.compaction import compact
from app.store.timeline import read_position
from tests.log_lines import lines
from tests.store.rewinding import back_up, restore
from tests.store.writes import KIND, create, key

SECONDS = 30


@pytest.fixture
async def other(dsn: str) -> AsyncIterator[Store]:
    """A second process on the same database."""
    async with open_store(dsn) as opened:
        yield opened


async def commit(store: Store, *names: str) -> list[int]:
    """As a careful client: again, for as long as the database is away."""
    while True:
        try:
            return [(await store.commit([create(name)]))[0] for name in names]
        except (Unavailable, OutcomeUnknown):  # of a connection that has just been ended: nothing was written
            await asyncio.sleep(0.01)


@asynccontextmanager
async def quiet(dsn: str) -> AsyncIterator[Store]:
    """A process of which nothing runs but what a test runs."""

    async def check_timeline(connection: asyncpg.Connection) -> None:
        await store.check_timeline(connection)

    async with asyncpg.create_pool(dsn, min_size=0, init=check_timeline) as pool:
        store = Store(dsn, pool, 1 << 20)
        store.feed.start_at(*await read_position(pool))
        yield store


async def by_a_write(store: Store) -> None:
    running = asyncio.ensure_future(store.writer.run())
    with pytest.raises(Unavailable, match="went back in time"):
        await store.commit([create("after")])
    running.cancel()


async def by_a_read(store: Store) -> None:
    await store.list(Query(kind=KIND))


async def by_the_feed(store: Store) -> None:
    await _run_until_lost(store, store.feed.run())


async def by_the_listener(store: Store) -> None:
    await _run_until_lost(store, store.listen())


async def _run_until_lost(store: Store, running: Coroutine[Any, Any, None]) -> None:
    task = asyncio.create_task(running)
    await store.feed.lost_touch.wait()
    task.cancel()


@pytest.mark.parametrize("notices", [by_a_write, by_a_read, by_the_feed, by_the_listener])
async def test_whichever_connection_comes_first_notices(
    dsn: str, notices: Callable[[Store], Awaitable[None]], caplog: pytest.LogCaptureFixture
) -> None:
    async with open_store(dsn) as writing:
        await commit(writing, "kept")
        await back_up(dsn)
        kept = await writing.revision()
        lost = await commit(writing, "lost-1", "lost-2")
    async with asyncio.timeout(SECONDS), quiet(dsn) as store:
        await restore(dsn)
        await notices(store)

        assert store.feed.lost_touch.is_set()
        assert store.feed.cursor > lost[-1] + 1_000_000
        assert store.feed.after(KIND, lost[-1]) is None
        assert (await store.list(Query(kind=KIND, name="lost-1"))).heads == []
    (line,) = lines(caplog, logging.ERROR)
    assert f"revisions {kept + 1} to {lost[-1]} are lost" in line


async def test_a_process_that_knew_nothing_of_what_is_lost_goes_on(dsn: str, store: Store) -> None:
    """As after a restart of the server: what it delivers has no gap, and what it delivered stays."""
    seen: list[Change] = []
    async with asyncio.timeout(SECONDS), quiet(dsn) as behind:
        await behind.feed.listen(seen.extend, behind.feed.cursor)
        (shared,) = await commit(store, "kept")
        await behind.feed.catch_up()
        await back_up(dsn)
        await commit(store, "lost")
        await restore(dsn)
        (after,) = await commit(store, "after")
        await behind.feed.catch_up()

        assert [each.key.name for each in seen] == ["kept", "after"]
        assert not behind.feed.lost_touch.is_set()
        assert behind.feed.after(KIND, shared + 1) is None  # which may be lost: the database knows
        assert [each.revision for each in await behind.history_of(KIND, shared, after)] == [after]


@pytest.mark.parametrize("lost", [1, 300])
async def test_no_revision_is_given_out_twice_whoever_writes_first(dsn: str, store: Store, lost: int) -> None:
    """Also by a process that has just started, and knows nothing."""
    await back_up(dsn)
    given = await commit(store, *(f"lost-{number}" for number in range(lost)))
    await restore(dsn)
    async with open_store(dsn) as fresh:
        again = await commit(fresh, *(f"new-{number}" for number in range(lost + 10)))

    assert min(again) > max(given)


async def test_a_backup_that_is_restored_twice_gives_out_other_revisions_each_time(dsn: str) -> None:
    given = []
    for name in ("first", "second", "third"):
        async with open_store(dsn) as store:
            await back_up(dsn)
            given += await commit(store, name)
        await restore(dsn)

    assert sorted(set(given)) == given


async def test_a_revision_that_is_lost_is_too_old_and_one_before_it_is_not(dsn: str, store: Store) -> None:
    (kept,) = await commit(store, "kept")
    await back_up(dsn)
    (lost,) = await commit(store, "lost")
    await restore(dsn)
    (after,) = await commit(store, "after")

    for revision in (lost, lost + 1_000, store.feed.timeline - 1):
        assert await store.is_lost(revision)
        with pytest.raises(Compacted):
            await store.history_of(KIND, revision, after)
        with pytest.raises(Compacted):
            await store.list(Query(kind=KIND, at=revision))
    assert [await store.is_lost(each) for each in (kept, store.feed.timeline, after)] == [False] * 3
    assert [each.revision for each in await store.history_of(KIND, kept, after)] == [after]
    assert [head.key.name for head in (await store.list(Query(kind=KIND, at=kept))).heads] == ["kept"]


async def test_what_was_committed_and_not_delivered_yet_is_known_to_be_lost(dsn: str, store: Store) -> None:
    seen: list[Change] = []
    await store.feed.listen(seen.extend, store.feed.cursor)
    await back_up(dsn)
    async with store.feed._lock:  # the commit is done, and nobody is told
        writing = asyncio.ensure_future(store.commit([create("lost")]))
        while store.feed.known == store.feed.cursor:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)
        await restore(dsn)
        await store.revision()
    await writing
    await commit(store, "after")

    assert [each.key.name for each in seen] == ["after"]


async def test_what_was_planned_before_is_not_written_afterwards(dsn: str, store: Store) -> None:
    """It may rest on what is lost, whatever it demands."""
    await back_up(dsn)
    await commit(store, "lost")
    plans = [asyncio.ensure_future(_planned(store, name)) for name in ("a", "b")]
    await restore(dsn)
    await asyncio.wait(plans)

    assert not {"a", "b"} & {head.key.name for head in (await store.list(Query(kind=KIND))).heads}


async def _planned(store: Store, name: str) -> None:
    """Committed for as long as the plan may be: a process plans anew when its feed starts anew."""
    while not store.feed.lost_touch.is_set():
        with contextlib.suppress(Unavailable, OutcomeUnknown, Conflict):
            await store.commit([precondition(key("lost")), create(name)])
        await asyncio.sleep(0.001)


async def test_a_mirror_is_filled_anew_and_holds_nothing_that_is_lost(dsn: str, store: Store) -> None:
    await back_up(dsn)
    await commit(store, "lost")
    before, now = Mirror({KIND: Object}), Mirror({KIND: Object})
    await store.fill(before)
    await restore(dsn)
    await commit(store, "after")
    await store.fill(now)

    assert [each.metadata.name for each in now.all(KIND)] == ["after"]


async def test_a_copy_that_is_read_while_the_database_goes_back_is_refused(dsn: str, store: Store) -> None:
    await back_up(dsn)
    await commit(store, "lost")
    mirror = Mirror({KIND: Object})
    async with store.feed._lock:
        filling = asyncio.ensure_future(store.fill(mirror))
        while not mirror.revision:  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.001)
        await restore(dsn)
        while not store.feed.lost_touch.is_set():
            with contextlib.suppress(Unavailable):
                await store.list(Query(kind=KIND))

    with pytest.raises(Unavailable):
        await filling
    await commit(store, "later")
    assert [each.metadata.name for each in mirror.all(KIND)] == ["lost"]


async def test_tables_that_were_put_back_by_hand_are_noticed_by_their_number(dsn: str, store: Store) -> None:
    """On a running server nobody can tell which revisions were given out twice: none before is good any more."""
    (kept,) = await commit(store, "kept")
    await back_up(dsn)
    (lost,) = await commit(store, "lost")
    async with asyncio.timeout(SECONDS):
        await restore(dsn, same_run=True)
        await store.feed.lost_touch.wait()
        (after,) = await commit(store, "after")

    assert after > lost + 1_000_000
    with pytest.raises(Compacted):
        await store.history_of(KIND, kept, after)


async def test_a_loss_is_told_once_with_what_is_known_of_it(dsn: str, store: Store) -> None:
    await back_up(dsn)
    (before, lost) = await store.revision(), (await commit(store, "a", "b", "c"))[-1]
    await restore(dsn)
    await commit(store, "after")

    loss = store.feed.losses.get_nowait()
    assert (loss.timeline, loss.after, loss.up_to, loss.held) == (store.feed.timeline, before, lost, 3)
    assert store.feed.losses.empty()


async def test_compaction_forgets_timelines_that_are_over_but_never_the_newest(dsn: str, store: Store) -> None:
    for name in ("a", "b"):
        await back_up(dsn)
        await restore(dsn)
        await commit(store, name)
    (row,) = await store.pool.fetch("select count(*) as many from timelines")
    assert row["many"] == 3

    await compact(store.pool, timedelta(0))

    assert [each["began"] for each in await store.pool.fetch("select began from timelines")] == [store.feed.timeline]
    assert (await commit(store, "c"))[0] > store.feed.timeline
    assert not store.feed.lost_touch.is_set()


async def test_what_older_connections_deliver_while_the_database_is_compared_is_known_to_be_lost(dsn: str) -> None:
    """Otherwise the feed would stand at a lost revision, and neither follow nor start anew."""
    async with open_store(dsn) as writing:
        await commit(writing, "kept")
        await back_up(dsn)
    async with quiet(dsn) as store:
        async with open_store(dsn) as writing:
            (lost,) = await commit(writing, "lost")
        await restore(dsn)
        async with open_store(dsn) as writing:
            await commit(writing, "after")
        connection = await asyncpg.connect(dsn)
        async with _locked(dsn, "timelines") as is_waited_for:
            settling = asyncio.ensure_future(store.check_timeline(connection))
            await is_waited_for()
            store.feed.note_committed(lost)
        await settling
        await connection.close()

        assert store.feed.lost_touch.is_set()
        assert store.feed.losses.get_nowait().up_to == lost


@asynccontextmanager
async def _locked(dsn: str, table: str) -> AsyncIterator[Callable[[], Awaitable[None]]]:
    """Nobody else reads the table. What is entered returns once somebody waits for it."""
    connection = await asyncpg.connect(dsn)

    async def is_waited_for() -> None:
        waiting = """select count(*) from pg_locks where not granted and relation = $1::text::regclass
            and database = (select oid from pg_database where datname = current_database())"""
        async with asyncio.timeout(SECONDS):
            while not await connection.fetchval(waiting, table):  # noqa: ASYNC110 - nothing tells
                await asyncio.sleep(0.01)

    try:
        async with connection.transaction():
            await connection.execute(f"lock table {table} in access exclusive mode")
            yield is_waited_for
    finally:
        await connection.close()
