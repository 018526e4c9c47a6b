"""Reads share queries only with those that wait like them, and never see less than they would have seen alone."""

import asyncio
from collections.abc import Sequence

import pytest

from app.store import Key, Page, Query, open_store
from app.store.batching_loader import AT_ONCE, MOST, BatchingLoader
from app.store.change_feed import SelectorIndex
from app.store.reader import StoredObject


class Queries:
    """Answers when told to; remembers what each was asked for."""

    def __init__(self) -> None:
        self.asked: list[list[str]] = []
        self._answers: list[asyncio.Future[dict[Key, StoredObject]]] = []

    async def __call__(self, keys: Sequence[Key]) -> dict[Key, StoredObject]:
        self.asked.append([key.name for key in keys])
        self._answers.append(asyncio.get_running_loop().create_future())
        return await self._answers[-1]

    def answer(self, number: int) -> None:
        found = {
            key(name): StoredObject(key(name), "uid", number, b"{}", SelectorIndex()) for name in self.asked[number]
        }
        self._answers[number].set_result({each: head for each, head in found.items() if each.name != "absent"})

    def fail(self, number: int, error: Exception) -> None:
        self._answers[number].set_exception(error)


def key(name: str) -> Key:
    return Key("pods", "default", name)


@pytest.fixture
def queries() -> Queries:
    return Queries()


async def turn() -> None:
    """Let everything that can go on do so."""
    for _ in range(5):
        await asyncio.sleep(0)


def reads(together: BatchingLoader, *names: str) -> list[asyncio.Task[StoredObject | None]]:
    return [asyncio.create_task(together.get(key(name))) for name in names]


async def test_a_lone_read_goes_at_once(queries: Queries) -> None:
    (read,) = reads(BatchingLoader(queries), "a")
    await turn()
    queries.answer(0)

    found = await read
    assert found is not None
    assert (queries.asked, found.key.name) == ([["a"]], "a")


async def test_what_is_absent_is_none(queries: Queries) -> None:
    (read,) = reads(BatchingLoader(queries), "absent")
    await turn()
    queries.answer(0)

    assert await read is None


async def test_what_comes_while_queries_are_on_their_way_shares_the_next(queries: Queries) -> None:
    together = BatchingLoader(queries)
    first: list[asyncio.Task[StoredObject | None]] = []
    for number in range(AT_ONCE):
        first += reads(together, f"first-{number}")
        await turn()
    later = reads(together, "b", "c", "b", "d")
    await turn()
    assert queries.asked == [[f"first-{number}"] for number in range(AT_ONCE)]

    queries.answer(0)
    await turn()
    assert queries.asked[AT_ONCE:] == [["b", "c", "d"]]
    for number in range(1, AT_ONCE + 1):
        queries.answer(number)
    assert all(await asyncio.gather(*first, *later))


async def test_a_read_never_joins_a_query_that_was_sent_before_it(queries: Queries) -> None:
    together = BatchingLoader(queries)
    (early,) = reads(together, "a")
    await turn()
    (late,) = reads(together, "a")
    await turn()
    assert queries.asked == [["a"], ["a"]]

    queries.answer(1)
    found = await late
    assert found is not None
    assert found.revision == 1
    assert not early.done()
    queries.answer(0)
    await early


async def test_one_query_asks_for_so_many_and_no_more(queries: Queries) -> None:
    together = BatchingLoader(queries)
    tasks = reads(together, *(str(number) for number in range(2 * MOST + 1)))
    await turn()
    queries.answer(0)
    queries.answer(1)
    await turn()
    queries.answer(2)

    assert [len(each) for each in queries.asked] == [MOST, MOST, 1]
    await asyncio.gather(*tasks)


async def test_a_failure_reaches_all_who_asked_and_nobody_else(queries: Queries) -> None:
    together = BatchingLoader(queries)
    tasks = reads(together, "a", "b")
    await turn()
    queries.fail(0, ConnectionError("gone"))
    await turn()
    again = reads(together, "a")
    await turn()
    queries.answer(1)

    assert [str(each) for each in await asyncio.gather(*tasks, return_exceptions=True)] == ["gone", "gone"]
    assert await again[0] is not None


async def test_who_goes_away_takes_nothing_from_others(queries: Queries) -> None:
    together = BatchingLoader(queries)
    leaving, staying = reads(together, "a", "a")
    await turn()
    leaving.cancel()
    await turn()
    queries.answer(0)

    assert await staying is not None
    assert leaving.cancelled()


async def test_who_reads_again_at_once_is_not_left_waiting(queries: Queries) -> None:
    """Also if all queries have just been answered."""
    together = BatchingLoader(queries)

    async def read_twice() -> None:
        await together.get(key("first"))
        await together.get(key("second"))

    twice = asyncio.create_task(read_twice())
    await turn()
    once = [asyncio.create_task(together.get(key(f"other {number}"))) for number in range(AT_ONCE - 1)]
    await turn()
    assert len(queries.asked) == AT_ONCE
    for number in range(AT_ONCE):
        queries.answer(number)
    await turn()

    assert queries.asked[AT_ONCE:] == [["second"]]
    queries.answer(AT_ONCE)
    await asyncio.gather(twice, *once)


async def test_lists_leave_connections_to_reads_of_single_objects(dsn: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_store(dsn, pool_size=2) as store:
        begun, go_on = asyncio.Event(), asyncio.Event()

        async def page(_: Query) -> Page:
            async with store.pool.acquire():
                begun.set()
                await go_on.wait()
            return Page([], 1, more=False)

        monkeypatch.setattr(store.reader, "page", page)
        lists = [asyncio.create_task(store.list(Query(kind="configmaps"))) for _ in range(10)]
        await begun.wait()
        async with asyncio.timeout(60):
            assert await store.get(Key("configmaps", "default", "none")) is None
            go_on.set()
            await asyncio.gather(*lists)
