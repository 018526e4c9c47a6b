"""Waiting for a database that is still starting, not yet migrated or gone again: processes may start in any order."""

import asyncio
import logging
from collections.abc import Awaitable, Callable

import asyncpg

from app.store.errors import AWAY, OutcomeUnknown, Unavailable
from app.store.migrate import newest, revision_of

log = logging.getLogger(__name__)
_PAUSE = 0.05
_LONGEST = 1.0


async def problem_of(dsn: str, *, migrated: bool = True) -> str:
    """Why the database cannot be used: it does not answer, or, unless told otherwise, has no tables. Empty if it can."""
    try:
        connection = await asyncpg.connect(dsn, timeout=5)
        try:
            if not migrated or await revision_of(connection) >= newest():
                return ""
            return "it does not have this version's tables yet: `jobplane migrate` makes them"
        finally:
            connection.terminate()
    except (*AWAY, asyncpg.PostgresError) as error:
        return str(error) or type(error).__name__


async def reachable(dsn: str, *, migrated: bool = True) -> None:
    """Return when the database can be used. Says once what it waits for."""
    pause, told = _PAUSE, False
    while problem := await problem_of(dsn, migrated=migrated):
        if pause >= _LONGEST and not told:
            log.warning("waiting for the database: %s", problem)
            told = True
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST)


async def despite_outages(
    dsn: str, work: Callable[[], Awaitable[None]], *, migrated: bool = True, pause: float = _LONGEST
) -> None:
    """Do what needs the database; from its beginning again, after a pause (seconds), if that goes away before it is done."""
    while True:
        await reachable(dsn, migrated=migrated)
        try:
            return await work()
        except (Unavailable, OutcomeUnknown) as error:
            log.warning("beginning again: %s", error)
        await asyncio.sleep(pause)
