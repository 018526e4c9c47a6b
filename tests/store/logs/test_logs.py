"""Container logs: appended by offset, whole whatever is sent twice, and read on from anywhere."""

import asyncio
from collections.abc import AsyncIterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from app.store import Append, Store, Stream, open_store

MAIN = Stream("uid-of-p", "main", 0)


def piece(offset: int, data: bytes, stream: Stream = MAIN) -> Append:
    return Append(stream, "default", "p", offset, data)


async def test_what_is_appended_is_read_from_any_offset(store: Store) -> None:
    assert await store.logs.append([piece(0, b"hello "), piece(6, b"world")]) == [6, 11]

    assert (await store.logs.read(MAIN, 0)).data == b"hello world"
    assert (await store.logs.read(MAIN, 4)).data == b"o world"
    assert (await store.logs.read(MAIN, 6)).data == b"world"
    assert (await store.logs.read(MAIN, 11)).data == b""


@pytest.mark.parametrize(
    ("again", "size"),
    [
        pytest.param(piece(0, b"hello"), 5, id="a resend is harmless"),
        pytest.param(piece(0, b"hello world"), 11, id="a resend with more appends what is new"),
        pytest.param(piece(3, b"lo world"), 11, id="an overlap appends what is new"),
        pytest.param(piece(2, b"ll"), 5, id="what lies within is known"),
        pytest.param(piece(9, b"later"), 5, id="a gap appends nothing"),
        pytest.param(piece(5, b""), 5, id="nothing appends nothing"),
    ],
)
async def test_appending_again(store: Store, again: Append, size: int) -> None:
    await store.logs.append([piece(0, b"hello")])

    assert await store.logs.append([again]) == [size]
    assert (await store.logs.read(MAIN, 0)).data == b"hello world"[:size]


async def test_streams_are_kept_apart(store: Store) -> None:
    again, init = Stream("uid-of-p", "main", 1), Stream("uid-of-p", "init", 0)
    sizes = await store.logs.append([piece(0, b"one"), piece(0, b"two!", again), piece(0, b"three", init)])

    assert sizes == [3, 4, 5]
    assert (await store.logs.read(again, 0)).data == b"two!"
    assert await store.logs.attempts("uid-of-p", "main") == [0, 1]
    assert await store.logs.attempts("uid-of-p", "sidecar") == []


async def test_a_read_is_limited_to_about_as_much_as_asked_for(store: Store) -> None:
    await store.logs.append([piece(4 * number, b"%03d\n" % number) for number in range(100)])

    start = (await store.logs.read(MAIN, 0, limit=10)).data
    assert start == b"000\n001\n002\n"
    text = b""
    while more := (await store.logs.read(MAIN, len(text), limit=100)).data:
        text += more
    assert text == b"".join(b"%03d\n" % number for number in range(100))


async def test_who_follows_is_woken_in_every_process(store: Store, dsn: str) -> None:
    async with open_store(dsn) as other:
        await store.commit([])
        waiting = [asyncio.ensure_future(each.log_growth.wait(0, 30)) for each in (store, other)]
        async with asyncio.timeout(10):
            while not all(each.done() for each in waiting):  # the listeners may still be connecting
                await store.logs.append([piece(0, b"x")])


async def test_waiting_ends_with_the_time(store: Store) -> None:
    await store.log_growth.wait(store.log_growth.count, 0.01)


async def test_who_has_read_before_a_log_grew_does_not_wait(store: Store) -> None:
    """It may grow between the read that found nothing and the moment from which the reader waits."""
    growth, grown = store.log_growth, asyncio.Event()
    before = growth.count
    growth.on_notify("")
    waiting = asyncio.create_task(growth.wait(before, 30))
    waiting.add_done_callback(lambda _: grown.set())
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert grown.is_set()


async def test_two_who_send_the_same_streams_in_any_order_both_succeed(store: Store) -> None:
    streams = [Stream(f"uid-{number}", "main", 0) for number in range(8)]
    there = [piece(0, b"x" * 50, stream) for stream in streams]

    for _ in range(5):
        sizes = await asyncio.gather(*(store.logs.append(order) for order in (there, there[::-1]) * 3))

    assert all(each == [50] * 8 for each in sizes)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(cuts=some.lists(some.tuples(some.integers(0, 40), some.integers(0, 15)), max_size=12), salt=some.uuids())
async def test_however_it_is_cut_a_log_is_a_prefix_of_what_was_said(
    store: Store, cuts: list[tuple[int, int]], salt: object
) -> None:
    said = bytes(range(65, 65 + 50))
    stream = Stream(str(salt), "main", 0)
    size = 0
    for start, length in cuts:
        (size,) = await store.logs.append([piece(start, said[start : start + length], stream)])

    assert (await store.logs.read(stream, 0)).data == said[:size]


CAPPED = 4096
LINES = [b"%05d %b\n" % (number, b"x" * (number % 60)) for number in range(600)]


@pytest.fixture
async def capped(dsn: str) -> AsyncIterator[Store]:
    async with open_store(dsn, log_cap=CAPPED) as opened:
        yield opened


@pytest.mark.parametrize("together", [pytest.param(1, id="line by line"), pytest.param(30, id="thirty at a time")])
async def test_of_a_long_log_the_newest_records_are_kept_whole_at_their_true_offsets(
    capped: Store, together: int
) -> None:
    said = b""
    for start in range(0, len(LINES), together):
        text = b"".join(LINES[start : start + together])
        assert await capped.logs.append([piece(len(said), text)]) == [len(said) + len(text)]
        said += text

    start, end = await capped.logs.span(MAIN)
    assert (end, said[start - 1 : start]) == (len(said), b"\n")
    assert CAPPED * 3 // 4 < end - start <= CAPPED
    left = b""
    while (more := await capped.logs.read(MAIN, len(left) and start + len(left), 1000)).data:
        assert more.offset == start + len(left)
        left += more.data
    assert left == said[start:]
    stored = await capped.pool.fetchval("select sum(length(data)) from log_chunks")
    assert stored < CAPPED + 30 * len(LINES[59])


async def test_what_has_no_records_is_cut_anyhow(capped: Store) -> None:
    for number in range(10):
        await capped.logs.append([piece(number * 1000, b"x" * 1000)])

    start, end = await capped.logs.span(MAIN)
    assert (await capped.logs.read(MAIN, 0)).data == b"x" * (end - start)
    assert end == 10_000
    assert 0 < end - start <= CAPPED


async def test_a_resend_of_what_is_no_longer_kept_is_harmless(capped: Store) -> None:
    said = b"".join(LINES)
    for start in range(0, len(said), 1000):
        await capped.logs.append([piece(start, said[start : start + 1000])])
    span = await capped.logs.span(MAIN)

    assert await capped.logs.append([piece(0, said[:5000])]) == [len(said)]
    assert await capped.logs.span(MAIN) == span
