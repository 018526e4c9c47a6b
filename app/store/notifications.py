"""Notifications: what Postgres' NOTIFY tells every process at once: changes, grown logs, calls of agents.

Each process LISTENs on one connection, which the store runs. Nothing is stored: after a notification that was lost the feed
polls, readers of logs look again after a time, and whoever waits for an agent posts the call again.

The same connection shows whether the server answers at all: one that hangs, as with a disk that does, ends no connection.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any

import asyncpg

from app.store.errors import AWAY, call_database
from app.store.postgres_connection import connect
from app.structured_logging import Logger

logger = Logger(__name__)
_SETTINGS = {"application_name": "jobplane listener"}
_RETRY_SECONDS = 0.25
_HEARTBEAT_SECONDS = 2.0
SILENT_SECONDS = 10.0  # in which a server answers the simplest query, or counts as gone
OnNotify = Callable[[str], None]
"""Called with the payload of each notification."""


class AgentCalls:
    """Tells every API process that an agent is to be called."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self._listeners: list[OnNotify] = []

    async def post(self, notice: str) -> None:
        """Call all listeners of all processes, this one's too. At most 8,000 bytes."""
        await call_database(self._pool.execute("select pg_notify('calls', $1)", notice))

    def listen(self, listener: OnNotify) -> None:
        self._listeners.append(listener)

    def on_notify(self, notice: str) -> None:
        for listener in self._listeners:
            listener(notice)


class LogGrowth:
    """Wakes followers of logs. `count` rises when any log grows. Note it before reading: the log may grow during the read."""

    def __init__(self) -> None:
        self.count = 0
        self._waiters: set[asyncio.Future[None]] = set()

    async def wait(self, since: int, seconds: float) -> None:
        """Return when some log has grown since `count` was that, or after a time."""
        if self.count != since:
            return
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.add(waiter)
        try:
            async with asyncio.timeout(seconds):
                await waiter
        except TimeoutError:
            pass
        finally:
            self._waiters.discard(waiter)

    def on_notify(self, _: str) -> None:
        self.count += 1
        waiters, self._waiters = self._waiters, set()
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)


async def listen(
    dsn: str,
    channels: dict[str, OnNotify],
    check: Callable[[asyncpg.Connection], Awaitable[None]],
    connected: Callable[[], None],
    silent: Callable[[], None],
) -> None:
    """Hold the LISTEN connection until cancelled; reconnect whenever it is lost.

    check: called with each new connection before it listens. connected: called when it does.
    silent: called when the server has not answered for SILENT_SECONDS, before another connection is made.
    """
    while True:
        lost = asyncio.Event()
        try:
            connection = await connect(dsn, server_settings=_SETTINGS)
        except AWAY:
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        try:
            connection.add_termination_listener(lambda _, lost=lost: lost.set())
            async with _telling(silent), asyncio.timeout(SILENT_SECONDS):
                await check(connection)
                for channel, on_notify in channels.items():
                    await connection.add_listener(channel, _payload_to(on_notify))
            connected()
            await _wait_until_lost(connection, lost, silent)
        except AWAY:
            await asyncio.sleep(_RETRY_SECONDS)
        finally:
            connection.terminate()


async def _wait_until_lost(connection: asyncpg.Connection, lost: asyncio.Event, silent: Callable[[], None]) -> None:
    """Return when the connection is lost. TimeoutError, after `silent`, if the server does not answer."""
    while not lost.is_set():
        with suppress(TimeoutError):
            async with asyncio.timeout(_HEARTBEAT_SECONDS):
                await lost.wait()
                return
        async with _telling(silent):
            await connection.execute("select 1", timeout=SILENT_SECONDS)


@asynccontextmanager
async def _telling(silent: Callable[[], None]) -> AsyncIterator[None]:
    """Call `silent` if what is within ends with TimeoutError, which is raised on."""
    try:
        yield
    except TimeoutError:
        logger.warning("database does not answer; closing all connections to it", seconds=SILENT_SECONDS)
        silent()
        raise


def _payload_to(on_notify: OnNotify) -> Callable[[Any, int, str, object], None]:
    """A listener as asyncpg calls it."""
    return lambda _connection, _pid, _channel, payload: on_notify(str(payload))
