"""One process at a time: an advisory lock on a connection of its own, which ends with the process that holds it."""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator

import asyncpg

from app.store.errors import AWAY
from app.store.store import Store

_RETRY_SECONDS = 0.5


@contextlib.asynccontextmanager
async def elected(store: Store, name: str) -> AsyncIterator[asyncio.Event]:
    """Enter when this process is the elected one; the event is set when it is no longer."""
    connection = await _win(store.dsn, zlib.crc32(name.encode()))
    lost = asyncio.Event()
    connection.add_termination_listener(lambda _: lost.set())
    try:
        yield lost
    finally:
        connection.terminate()


async def _win(dsn: str, lock: int) -> asyncpg.Connection:
    """Waiting in the server, not polling: a successor takes over at once."""
    while True:
        try:
            connection = await asyncpg.connect(dsn, server_settings={"application_name": "jobplane election"})
        except AWAY:
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        try:
            await connection.execute("select pg_advisory_lock($1)", lock, timeout=None)
        except BaseException as error:
            connection.terminate()  # or it goes on waiting, and would win for nobody
            if not isinstance(error, AWAY):
                raise
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        return connection
