"""Leader lock: an advisory lock on a connection of its own, which ends with the process that holds it.

A process that is killed closes its sockets, so the lock is free at once. One that hangs, or whose machine is gone, does
not: it sends a heartbeat every second, and the server itself ends the connection of one that has been silent for a
while.
"""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator

import asyncpg

from app.store.errors import AWAY
from app.store.postgres_connection import connect
from app.store.store import READ_ONLY, Store, is_read_only
from app.structured_logging import Logger

logger = Logger(__name__)

_RETRY_SECONDS = 0.5
_HEARTBEAT_SECONDS = 1.0
SILENT_SECONDS = 5  # longer than anything that the holder does in one go
_WAIT_SECONDS = 10  # for the lock; then it is asked for again, in case the server has gone without a word
_SETTINGS = {"application_name": "jobplane election", "lock_timeout": f"{_WAIT_SECONDS}s"}
_IDLE_TIMEOUT_VERSION = 14  # the first version of Postgres that ends connections that are silent


@contextlib.asynccontextmanager
async def hold_leader_lock(store: Store, name: str) -> AsyncIterator[asyncio.Event]:
    """Enter when this process is elected leader; the event is set when it is no longer.

    It may learn of that late. Whoever must not act beside a successor demands that its epoch is not over
    (`app.registry.leader_election`).
    """
    connection = await _acquire(store.dsn, zlib.crc32(name.encode()))
    lost = asyncio.Event()
    connection.add_termination_listener(lambda _: lost.set())
    heartbeats = asyncio.create_task(_send_heartbeats(connection, lost))
    try:
        yield lost
    finally:
        heartbeats.cancel()
        connection.terminate()


async def _send_heartbeats(connection: asyncpg.Connection, lost: asyncio.Event) -> None:
    """That we are there, for as long as the server hears it."""
    try:
        while True:
            await asyncio.sleep(_HEARTBEAT_SECONDS)
            await connection.execute("select 1", timeout=SILENT_SECONDS)
    except AWAY:
        lost.set()


async def _acquire(dsn: str, lock: int) -> asyncpg.Connection:
    """Waiting in the server, not polling: a successor takes over at once. A standby elects nobody until it is promoted."""
    while True:
        try:
            connection = await connect(dsn, server_settings=_SETTINGS)
        except AWAY:
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        try:
            if await is_read_only(connection):
                logger.warning("cannot stand for election; retrying", error=READ_ONLY)
                raise asyncpg.ReadOnlySQLTransactionError(READ_ONLY)
            if connection.get_server_version().major >= _IDLE_TIMEOUT_VERSION:
                await connection.execute(f"set idle_session_timeout = '{SILENT_SECONDS}s'")
            await _wait_for_lock(connection, lock)
        except BaseException as error:
            connection.terminate()  # or it goes on waiting, and would win for nobody
            if not isinstance(error, AWAY):
                raise
            await asyncio.sleep(_RETRY_SECONDS)
            continue
        return connection


async def _wait_for_lock(connection: asyncpg.Connection, lock: int) -> None:
    while True:
        try:
            await connection.execute("select pg_advisory_lock($1)", lock, timeout=_WAIT_SECONDS + SILENT_SECONDS)
        except asyncpg.LockNotAvailableError:
            continue
        return
