"""The end of a store: nothing of it goes on once the event loop is through, however it is hurried, whatever Postgres does."""

import asyncio
import os
from contextlib import suppress

import asyncpg
import pytest

from app.store import open_store
from tests.conftest import END_OTHERS, execute


async def hold(dsn: str, opened: "asyncio.Future[asyncpg.Pool]") -> None:
    """As a process does, until it is told to end."""
    async with open_store(dsn) as store:
        opened.set_result(store.pool)
        await asyncio.Event().wait()


async def end(holder: "asyncio.Task[None]", times: int) -> None:
    """By a signal, by the next one, and because the parent is gone: each while it is still busy with the one before."""
    for _ in range(times):
        holder.cancel()
        await asyncio.sleep(0)
    with suppress(asyncio.CancelledError):
        await holder


async def lost(pool: asyncpg.Pool) -> None:
    """Return when the pool has heard that its connections are gone."""
    async with asyncio.timeout(10):
        while pool.get_size():  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(0)


async def lose_at_the_end(dsn: str, pool: asyncpg.Pool) -> None:
    """Postgres ends the connections when the loop has been told to end, and waits for its last task."""
    try:
        await asyncio.Event().wait()
    finally:
        await execute(dsn, END_OTHERS)
        await lost(pool)


@pytest.mark.parametrize("times", [1, 2])
def test_a_connection_that_is_lost_while_the_loop_ends_is_not_replaced(dsn: str, times: int) -> None:
    async def run() -> "asyncio.Task[None]":
        opened = asyncio.get_running_loop().create_future()
        holder = asyncio.create_task(hold(dsn, opened))
        last = asyncio.create_task(lose_at_the_end(dsn, await opened))
        await end(holder, times)
        return last

    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        last = runner.run(run())

    assert last.cancelled()
    assert asyncio.all_tasks(loop) == set()


@pytest.mark.skipif("JOBPLANE_TEST_DATABASE_URL" in os.environ, reason="others use that server, too")
@pytest.mark.parametrize("times", [1, 2])
def test_nobody_waits_for_a_postgres_that_does_not_answer(dsn: str, times: int) -> None:
    async def run() -> asyncpg.Connection:
        opened = asyncio.get_running_loop().create_future()
        holder = asyncio.create_task(hold(dsn, opened))
        pool = await opened
        blocker = await asyncpg.connect(dsn)
        try:
            await blocker.execute("begin; lock pg_authid")  # who connects now waits until this connection ends
            await blocker.execute(END_OTHERS)
            await lost(pool)
            async with asyncio.timeout(10):
                await end(holder, times)
        except BaseException:
            blocker.terminate()
            raise
        return blocker

    with asyncio.Runner() as runner:
        loop = runner.get_loop()
        runner.run(run()).terminate()

    assert asyncio.all_tasks(loop) == set()
