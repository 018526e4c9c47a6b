"""Exclusive lock: held by one writer of all processes while it decides from what the others may be writing, and writes.

For rare writes that depend on objects which they neither write nor can name as a precondition: which names of custom kinds are
free, for which there is `Store.names_lock`. It is an advisory lock on a connection of its own, so a process that is killed frees
it. A connection that breaks frees it, too, while its holder writes: whoever holds it must be able to live with a second one.
"""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator

import asyncpg

from app.store.errors import AWAY, Unavailable
from app.store.postgres_connection import CONNECT_SECONDS, connect

_WAIT_SECONDS = 10
_SETTINGS = {"application_name": "jobplane lock", "lock_timeout": f"{_WAIT_SECONDS}s"}


class ExclusiveLock:
    """A process waits for it with one connection at most."""

    def __init__(self, dsn: str, name: str) -> None:
        self._dsn, self._number = dsn, zlib.crc32(name.encode())
        self._here = asyncio.Lock()

    @contextlib.asynccontextmanager
    async def hold(self) -> AsyncIterator[None]:
        """Hold the lock. Raises `Unavailable` if it cannot be had in some seconds."""
        async with self._here:
            connection = await self._acquire()
            try:
                yield
            finally:
                connection.terminate()  # the server frees the lock when it notices, at once

    async def _acquire(self) -> asyncpg.Connection:
        connection = None
        try:
            connection = await connect(self._dsn, server_settings=_SETTINGS)
            await connection.execute(
                "select pg_advisory_lock($1)", self._number, timeout=_WAIT_SECONDS + CONNECT_SECONDS
            )
        except BaseException as error:
            if connection is not None:
                connection.terminate()
            if isinstance(error, (*AWAY, asyncpg.LockNotAvailableError)):
                raise Unavailable(str(error)) from error
            raise
        return connection
