"""Errors of the store, by what callers do about them, and the keys of objects."""

import asyncio
from collections.abc import Awaitable
from typing import NamedTuple, TypeVar

import asyncpg

T = TypeVar("T")
AWAY = (
    OSError,
    asyncpg.PostgresConnectionError,
    asyncpg.InterfaceError,
    asyncpg.OperatorInterventionError,  # shutting down, starting up, crashed, session ended, query cancelled
    asyncpg.InternalClientError,  # what asyncpg may raise on the connection to a server that crashed
    asyncpg.InsufficientResourcesError,  # connections, memory, disk
    asyncpg.ReadOnlySQLTransactionError,  # a standby, for as long as a failover takes
)


class Key(NamedTuple):
    """Which object: kind is the resource, such as `jobs.batch`; namespace is empty for cluster-wide kinds."""

    kind: str
    namespace: str
    name: str


class Unavailable(Exception):
    """The database cannot be reached: nothing was written, try again."""


class OutcomeUnknown(Exception):
    """The connection broke during a commit: it may have happened or not. Never retried blindly."""


class Conflict(Exception):
    """A write set was refused whole, because the objects named here are not as it expected."""

    def __init__(self, keys: list[Key], revision: int) -> None:
        super().__init__(f"changed meanwhile: {', '.join('/'.join(key) for key in keys)}")
        self.keys = keys
        self.revision = revision  # the store's revision at the refusal: what changed is visible there


class Compacted(Exception):
    """History no longer reaches back to the revision asked for."""

    def __init__(self, revision: int, floor: int) -> None:
        super().__init__(f"too old resource version: {revision} ({floor})")
        self.floor = floor  # what lies at or below it may be gone


class NewTimeline(Exception):
    """The database was read on another timeline than the one that the feed follows, or behind what the feed knows."""


async def call_database(call: Awaitable[T]) -> T:
    """Await a call of the database; a database that is away becomes `Unavailable`.

    A cancelled call ends as cancelled: asyncpg may replace the cancellation by an error of the connection that it closes,
    and a task that catches `Unavailable` to try again would never stop.
    """
    try:
        return await call
    except AWAY as error:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise asyncio.CancelledError from error
        raise Unavailable(f"the database cannot be reached: {error}") from error
