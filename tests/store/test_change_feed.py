"""Following: every committed change once, in order, whoever committed it, for as long as it is remembered."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta

import pytest
from msgspec.structs import replace

from app.machinery.base import Object, ObjectMeta
from app.store import Change, Compacted, Feed, SelectorIndex, Store, Unavailable, open_store
from app.store.change_feed import POLL_SECONDS, ChangeBuffer, OwnVersion
from app.store.compaction import compact
from app.store.errors import NewTimeline
from app.store.reader import HISTORY_ROWS
from tests.store.writes import KIND, body, create, delete, key, modify

NO_TIME = timedelta(0)


@pytest.fixture
async def other(dsn: str) -> AsyncIterator[Store]:
    """A second process on the same database."""
    async with open_store(dsn) as opened:
        yield opened


async def heard(store: Store, since: int | None = None) -> list[Change]:
    """A list that fills with what the feed delivers."""
    changes: list[Change] = []
    await store.feed.listen(changes.extend, store.feed.cursor if since is None else since)
    return changes


def names(changes: Sequence[Change]) -> list[str]:
    return [each.key.name for each in changes]


async def test_own_changes_are_delivered_before_the_commit_returns(store: Store) -> None:
    seen = await heard(store)

    revisions = await store.commit([create("a"), create("b")])

    assert [each.revision for each in seen] == revisions
    assert store.feed.cursor == revisions[-1]


async def test_what_another_process_committed_comes_before_what_this_one_commits_after_it(
    store: Store, other: Store
) -> None:
    seen = await heard(store)

    for number in range(3):
        await other.commit([create(f"other{number}")])
    await store.commit([create("own")])

    assert names(seen) == ["other0", "other1", "other2", "own"]
    assert [each.revision for each in seen] == sorted({each.revision for each in seen})


async def test_another_process_wakes_this_one_before_the_poll(store: Store, other: Store) -> None:
    await other.commit([create("a")])  # whoever listens does so by now
    await store.feed.reach(await store.revision())
    seen = await heard(store)

    async with asyncio.timeout(POLL_SECONDS * 10):
        waiting = asyncio.ensure_future(store.feed.changed(KIND))
        await other.commit([create("b")])
        await waiting

    assert names(seen) == ["b"]


async def test_a_change_is_delivered_as_it_is_stored(store: Store, other: Store) -> None:
    """From memory in the process that wrote it, from history in every other: no difference."""
    own, others = await heard(store), await heard(other)
    (revision,) = await store.commit([create("a", {"n": 1}, team="x")])
    (revision,) = await store.commit([modify("a", revision, 2)])
    await store.commit([delete("a", revision)])
    await other.feed.reach(store.feed.cursor)

    def told(change: Change) -> tuple[object, ...]:
        return (
            change.revision,
            change.key,
            change.uid,
            change.change,
            change.wire,
            change.selector_index,
            change.old_selector_index,
        )

    assert list(map(told, own)) == list(map(told, others))


async def test_a_backlog_longer_than_a_page_is_read_in_one_go(store: Store, other: Store) -> None:
    seen = await heard(other)
    count = HISTORY_ROWS + 50
    await store.commit([create(f"n{number}") for number in range(count)])

    await other.feed.catch_up()

    assert names(seen) == [f"n{number}" for number in range(count)]


def changes(*revisions: int) -> list[Change]:
    return [Change(n, key(f"n{n}"), f"uid-{n}", "A", body(f"n{n}"), SelectorIndex(), None) for n in revisions]


async def test_own_changes_that_a_page_of_history_cut_in_two_are_delivered_once() -> None:
    """The feed's own task may be quicker than the writer to see a commit, and see only its beginning."""

    async def first_page(_: int, __: int | None) -> tuple[Sequence[Change], int, bool]:
        return changes(1, 2), 2, False

    feed, seen = Feed(first_page, 1_000), []
    await feed.listen(seen.extend, 0)
    await feed.catch_up()
    await feed.on_commit(0, changes(1, 2, 3, 4), 4)

    assert [each.revision for each in seen] == [1, 2, 3, 4]


async def test_own_changes_that_come_from_history_need_not_be_decoded() -> None:
    """If they come so while the commit is not answered, and as they were sent: another may have written in their place."""

    async def history(after: int, __: int | None) -> tuple[Sequence[Change], int, bool]:
        return changes(after + 1, after + 2), after + 2, False

    feed, seen = Feed(history, 1_000), list[Object | None]()
    await feed.listen(lambda changes: seen.extend(each.object for each in changes), 0)
    known = Object(metadata=ObjectMeta(name="n1"))
    sent = {key("n1"): OwnVersion(body("n1"), known), key("n2"): OwnVersion(body("other"), known)}
    feed.note_sent(sent | {key("n3"): OwnVersion(body("n3"), known)})
    await feed.catch_up()
    feed.note_answered({key("n3"): OwnVersion(body("n3"), known)})  # of another commit
    await feed.catch_up()
    feed.note_sent(answered := {key("n5"): OwnVersion(body("n5"), known)})
    feed.note_answered(answered)
    await feed.catch_up()

    assert seen == [known, None, known, None, None, None]


async def test_what_lies_between_the_cursor_and_a_commit_is_read_first() -> None:
    asked: list[tuple[int, int | None]] = []

    async def others(after: int, up_to: int | None) -> tuple[Sequence[Change], int, bool]:
        asked.append((after, up_to))
        return (changes(1, 3), 3, True) if after == 0 else (changes(4), 5, False)

    feed, seen = Feed(others, 1_000), []
    await feed.listen(seen.extend, 0)
    await feed.on_commit(5, changes(6, 7), 8)

    assert [each.revision for each in seen] == [1, 3, 4, 6, 7]
    assert asked == [(0, 5), (3, 5)]
    assert feed.cursor == 8


async def test_who_joins_late_misses_nothing(store: Store, other: Store) -> None:
    since = await store.revision()
    await store.commit([create("a")])
    await other.commit([create("b")])
    await store.commit([create("c")])

    seen = await heard(store, since)
    await store.commit([create("d")])

    assert names(seen) == ["a", "b", "c", "d"]


async def test_who_leaves_hears_no_more(store: Store) -> None:
    seen: list[Change] = []
    await store.feed.listen(seen.extend, store.feed.cursor)
    store.feed.leave(seen.extend)

    await store.commit([create("a")])

    assert seen == []


async def test_reach_returns_when_a_revision_is_delivered(store: Store, other: Store) -> None:
    (revision,) = await other.commit([create("a")])

    async with asyncio.timeout(10):
        await store.feed.reach(revision)

    assert store.feed.cursor >= revision


async def test_changed_within_tells_a_change_from_the_end_of_the_time(store: Store) -> None:
    waiting = asyncio.ensure_future(store.feed.changed_within(10, KIND))
    assert not await store.feed.changed_within(0.01, KIND)

    await store.commit([create("a")])

    assert await waiting


async def test_changes_of_another_kind_do_not_wake(store: Store) -> None:
    waiting = asyncio.ensure_future(store.feed.changed_within(0.05, "others"))

    await store.commit([create("a")])

    assert not await waiting


async def test_the_ring_holds_what_is_newest_and_says_what_it_has_forgotten(dsn: str) -> None:
    async with open_store(dsn, ring_bytes=1_000) as store:
        start = store.feed.cursor
        revisions = [(await store.commit([create(f"n{number}", "x" * 200)]))[0] for number in range(10)]

        assert store.feed.after(KIND, start) is None
        assert store.feed.after("others", start) is None  # it cannot know whether it forgot some of them
        assert store.feed.after(KIND, revisions[-1]) == []
        kept = store.feed.after(KIND, revisions[-3])
        assert kept is not None
        assert [each.revision for each in kept] == revisions[-2:]
        forgotten = await store.reader.history_of(KIND, start, store.feed.cursor)
        assert [each.revision for each in forgotten] == revisions


async def test_a_change_larger_than_the_ring_passes_through(dsn: str) -> None:
    async with open_store(dsn, ring_bytes=1_000) as store:
        seen = await heard(store)
        (revision,) = await store.commit([create("big", "x" * 5_000)])

        assert names(seen) == ["big"]
        assert store.feed.after(KIND, revision - 1) is None
        assert store.feed.after(KIND, revision) == []


async def test_history_says_so_when_it_no_longer_reaches_back(store: Store) -> None:
    start = store.feed.cursor
    (first,) = await store.commit([create("a")])
    (second,) = await store.commit([modify("a", first)])
    await compact(store.pool, NO_TIME)

    with pytest.raises(Compacted):
        await store.reader.history_of(KIND, start, second)
    with pytest.raises(Compacted):
        await store.reader.history(store.pool, start, None)
    assert await store.reader.history_of(KIND, second, second) == []


async def test_a_feed_that_was_away_for_longer_than_history_is_kept_starts_anew(store: Store, other: Store) -> None:
    seen = await heard(other)
    start = other.feed.cursor
    async with other.feed._lock:  # it cannot follow meanwhile
        (first,) = await store.commit([create("a")])
        (second,) = await store.commit([modify("a", first)])
        await compact(store.pool, NO_TIME)
    await other.feed.reach(second)
    await store.commit([create("b")])
    await other.feed.reach(store.feed.cursor)

    assert names(seen) == ["b"]
    assert other.feed.after(KIND, start) is None
    assert other.feed.broken is None
    assert other.feed.lost_touch.is_set()


async def test_a_feed_whose_connections_all_die_goes_on(store: Store, other: Store) -> None:
    seen = await heard(other)
    await store.commit([create("a")])
    sql = """select pg_terminate_backend(pid, 5000) from pg_stat_activity
        where datname = current_database() and pid <> pg_backend_pid()"""
    await store.pool.execute(sql)
    for number in range(20):
        try:
            await store.commit([create(f"b{number}")])
        except Exception:
            continue
    async with asyncio.timeout(10):
        await other.feed.reach(await store.revision())

    rows = await store.pool.fetch("select name from history order by revision")
    assert names(seen) == [row["name"] for row in rows]


async def test_a_reader_sees_a_key_only_while_it_lives(store: Store) -> None:
    (revision,) = await store.commit([create("a")])
    await store.commit([delete("a", revision)])

    assert await store.get(key("a")) is None
    assert await store.get_many([key("a")]) == {}


async def test_who_gives_up_waiting_in_the_moment_of_a_change_does_not_miss_it() -> None:
    async def nothing(_: int, up_to: int | None) -> tuple[Sequence[Change], int, bool]:
        return (), up_to or 0, False

    feed, loop = Feed(nothing, 1_000), asyncio.get_running_loop()

    def deliver() -> None:
        with pytest.raises(StopIteration):  # nothing in it waits, so it is all done at once
            feed.on_commit(0, changes(1), 1).send(None)

    waiting = asyncio.ensure_future(feed.quiet_until(KIND, 0, 0))
    await asyncio.sleep(0)  # it waits now, and the end of its time comes next
    loop.call_soon(deliver)  # after that, before it hears of it

    assert await waiting == 0
    assert [each.revision for each in feed.after(KIND, 0) or ()] == [1]


async def test_a_database_that_contradicts_itself_is_asked_again_later_not_for_ever() -> None:
    """Two servers behind one address: one says the timeline is new, the other that it is not."""

    async def read(_after: int, _limit: int | None) -> tuple[Sequence[Change], int, bool]:
        raise NewTimeline

    async def check_timeline() -> None:
        feed.follow(0)

    feed = Feed(read, 1 << 20, check_timeline)
    feed.start_at(1)
    with pytest.raises(Unavailable, match="two timelines at once"):
        await feed.catch_up()


def test_a_ring_that_follows_a_new_timeline_never_answers_for_revisions_before_it() -> None:
    """Also once it has evicted changes that came before the timeline, and were delivered after it was noticed."""
    ring = ChangeBuffer(len(body("n1001")))
    ring.start_at(1_000)
    for change in changes(5, 1_001):
        ring.add(change)

    assert ring.after(KIND, 500) is None


async def test_a_feed_reads_on_at_once_when_it_follows_a_new_timeline(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.store.change_feed.POLL_SECONDS", 3_600)
    read = asyncio.Event()

    async def nothing(after: int, _: int | None) -> tuple[Sequence[Change], int, bool]:
        read.set()
        return [], max(after, feed.timeline), False

    feed = Feed(nothing, 1_000)
    feed.start_at(5)
    running = asyncio.create_task(feed.run())
    await asyncio.sleep(0)
    feed.follow(1_000)
    async with asyncio.timeout(60):
        await read.wait()
    running.cancel()

    assert feed.cursor == 1_000


async def test_a_process_that_starts_remembers_what_was_committed_before(dsn: str, store: Store) -> None:
    """Thousands of agents go on where they were, and none of them reads history."""
    (a,) = await store.commit([create("a")])
    (b,) = await store.commit([modify("a", a)])
    async with open_store(dsn) as other:
        assert [change.revision for change in other.feed.after(KIND, a) or ()] == [b]
        assert other.feed.cursor == b
    async with open_store(dsn, ring_bytes=0) as without:
        assert without.feed.after(KIND, a) is None


async def test_a_process_that_starts_knows_nothing_from_before_the_floor(dsn: str, store: Store) -> None:
    (a,) = await store.commit([create("a")])
    (b,) = await store.commit([modify("a", a)])
    (c,) = await store.commit([modify("a", b)])
    await compact(store.pool, timedelta(0))
    async with open_store(dsn) as other:
        assert other.feed.after(KIND, a) is None
        assert other.feed.cursor == c


async def test_history_of_a_node_has_what_was_bound_to_it(store: Store) -> None:
    here, there = (SelectorIndex({}, {"spec.nodeName": node}) for node in ("here", "there"))
    a, b = await store.commit([
        replace(create("a"), selector_index=here, node="here"), replace(create("b"), selector_index=there, node="there")
    ])  # fmt: skip
    moves = replace(modify("a", a), selector_index=there, old_selector_index=here, node="there")
    (moved,) = await store.commit([moves])

    assert [each.revision for each in await store.history_of(KIND, 0, moved, node="here")] == [a, moved]
    assert [each.revision for each in await store.history_of(KIND, 0, moved, node="there")] == [b, moved]
