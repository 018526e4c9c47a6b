"""Waiting for a database that is still starting, or not yet migrated: processes may start in any order."""

import asyncio
import logging

import asyncpg

from app.store.migrate import newest, revision_of

log = logging.getLogger(__name__)
_PAUSE = 0.05
_LONGEST = 1.0


async def reachable(dsn: str, *, migrated: bool = True) -> None:
    """Return when the database answers and, unless told otherwise, has the tables. Says once what it waits for."""
    pause, told = _PAUSE, False
    while True:
        try:
            connection = await asyncpg.connect(dsn, timeout=5)
            try:
                if not migrated or await revision_of(connection) >= newest():
                    return
                problem = "it does not have this version's tables yet: `jobplane migrate` makes them"
            finally:
                await connection.close()
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError) as error:
            problem = str(error) or type(error).__name__
        if pause >= _LONGEST and not told:
            log.warning("waiting for the database: %s", problem)
            told = True
        await asyncio.sleep(pause)
        pause = min(pause * 1.5, _LONGEST)
