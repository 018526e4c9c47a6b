"""A database that goes away while something begins: it begins again, and says so in a line."""

import asyncio
import logging
from functools import partial

import asyncpg
import pytest

from app.registry.bootstrap import bootstrap
from app.registry.verbs.objects import Registry
from app.store import OutcomeUnknown, Unavailable, despite_outages, notifications, open_store, problem_of
from app.store.errors import call_database
from app.store.schema.migrate import migrate
from tests.conftest import Clock
from tests.store.proxy import Proxy
from tests.store.writes import create, key


async def test_a_migration_gets_done_whenever_the_database_goes_away(empty: str) -> None:
    async with Proxy(empty) as proxy, asyncio.timeout(60):
        proxy.break_ever_later(5)
        await despite_outages(proxy.dsn, lambda: migrate(proxy.dsn), migrated=False, pause=0)

    assert proxy.broken > 10
    assert await problem_of(empty) == ""


async def test_a_start_gets_done_whenever_the_database_goes_away(dsn: str, caplog: pytest.LogCaptureFixture) -> None:
    async def work() -> None:
        async with open_store(proxy.dsn) as store:
            await bootstrap(Registry(store, Clock()))

    async with Proxy(dsn) as proxy, asyncio.timeout(60):
        proxy.break_ever_later(1)
        await despite_outages(proxy.dsn, work, pause=0)

    assert proxy.broken > 10
    assert {record.levelno for record in caplog.records} == {logging.WARNING}
    assert all(record.exc_info is None for record in caplog.records)
    async with open_store(dsn) as store:
        assert await store.count(["namespaces"], "") == {"namespaces": 4}


async def test_what_is_wrong_with_a_database_is_told(empty: str) -> None:
    assert "`jobplane migrate`" in await problem_of(empty)
    assert await problem_of(empty, migrated=False) == ""
    assert "does not exist" in await problem_of(empty.replace("empty_", "no_such_"))
    assert "Connect call failed" in await problem_of("postgresql://127.0.0.1:1/any")


async def test_a_cancelled_call_ends_as_cancelled_even_if_its_connection_breaks_meanwhile() -> None:
    async def call() -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            raise asyncpg.InterfaceError("the connection was closed in the middle of an operation")

    begun = asyncio.Event()
    task = asyncio.create_task(call_database(call()))
    await begun.wait()
    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_database_that_hangs_before_anybody_listens_is_noticed(
    dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(notifications, "SILENT_SECONDS", 0.2)
    noticed = asyncio.Event()
    async with Proxy(dsn) as proxy, asyncio.timeout(60):

        async def check(connection: asyncpg.Connection) -> None:
            proxy.freeze()
            await connection.execute("select 1")

        listening = asyncio.create_task(notifications.listen(proxy.dsn, {}, check, lambda: None, noticed.set))
        await noticed.wait()
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
        proxy.thaw()
    assert any("database does not answer" in record.message for record in caplog.records)


async def test_calls_of_a_database_that_hangs_end_and_go_on_once_it_answers(
    dsn: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its kernel acknowledges everything: only that no answer comes tells."""
    monkeypatch.setattr(notifications, "_HEARTBEAT_SECONDS", 0.05)
    async with Proxy(dsn) as proxy, open_store(proxy.dsn) as store, asyncio.timeout(60):
        await store.commit([create("before")])
        monkeypatch.setattr(notifications, "SILENT_SECONDS", 0.2)
        proxy.freeze()
        reading = asyncio.create_task(store.revision())
        writing = asyncio.create_task(store.commit([create("meanwhile")]))
        with pytest.raises(Unavailable):
            await reading
        with pytest.raises((OutcomeUnknown, Unavailable)):
            await writing
        monkeypatch.setattr(
            notifications, "SILENT_SECONDS", 10.0
        )  # a busy machine is slower than the freeze was told to be
        proxy.thaw()
        await despite_outages(proxy.dsn, partial(store.commit, [create("after")]), pause=0)
        assert await store.get(key("after")) is not None

    assert any("database does not answer" in record.message for record in caplog.records)
