"""Database wait: for a database that is still starting, not yet migrated or gone again: processes may start in any order."""

import asyncio
import re
from collections.abc import Awaitable, Callable
from urllib.parse import parse_qs, urlsplit

import asyncpg

from app.store.errors import AWAY, OutcomeUnknown, Unavailable
from app.store.postgres_connection import connect
from app.store.schema.migrate import newest, revision_of
from app.structured_logging import Logger

logger = Logger(__name__)
_PAUSE = 0.05
_LONGEST = 1.0
_GROWTH = 1.1  # slow: a database that initdb makes is there within a second, and a start waits for it
_QUIET, _QUIET_STARTING = 2.0, 30.0  # seconds
_PORT = re.compile(r":\d+$")


class UrlError(ValueError):
    """No database can be reached by such a URL, however long one waits."""


async def problem_of(dsn: str, *, migrated: bool = True) -> str:
    """Return why the database cannot be used: it does not answer, or, unless told otherwise, has no tables. Empty if it can.

    Raises UrlError.
    """
    try:
        connection = await connect(dsn)
        try:
            if not migrated or await revision_of(connection) >= newest():
                return ""
            return "it does not have this version's tables yet: `jobplane migrate` makes them"
        finally:
            connection.terminate()
    except asyncpg.exceptions.ClientConfigurationError as error:
        raise UrlError(str(error)) from error
    except (*AWAY, asyncpg.PostgresError) as error:
        return str(error) or type(error).__name__
    except ValueError:  # of its port, say: the text may hold a part of the password
        raise UrlError(
            "not a valid URL: postgresql://user:password@host:5432/database, with special characters as %XX"
        ) from None


def place_of(dsn: str) -> str:
    """The address of the database, for logs: host:port, several with commas, or the folder of a socket. No password."""
    parts = urlsplit(dsn)
    query = parse_qs(parts.query)
    hosts = parts.netloc.rpartition("@")[2] or ",".join(query.get("host", [])) or "localhost"
    ports = ",".join(query.get("port", ["5432"]))
    return ",".join(
        each if each.startswith("/") or _PORT.search(each) else f"{each}:{ports}" for each in hosts.split(",")
    )


def quiet_seconds(dsn: str) -> float:
    """Seconds to wait for a database before that is logged.

    More for one at a socket of this machine: it has probably been started just now, as by `jobplane up`.
    """
    return _QUIET_STARTING if place_of(dsn).startswith("/") else _QUIET


async def reachable(dsn: str, *, migrated: bool = True) -> None:
    """Return when the database can be used; log why it cannot, but not at once. Raises UrlError."""
    pause, loop = _PAUSE, asyncio.get_running_loop()
    quiet_until = loop.time() + quiet_seconds(dsn)
    while problem := await problem_of(dsn, migrated=migrated):
        if loop.time() >= quiet_until:
            logger.warning("waiting for the database", address=place_of(dsn), error=problem)
        await asyncio.sleep(pause)
        pause = min(pause * _GROWTH, _LONGEST)


async def despite_outages(
    dsn: str, work: Callable[[], Awaitable[None]], *, migrated: bool = True, pause: float = _LONGEST
) -> None:
    """Do what needs the database; from its beginning again, after a pause (seconds), if that goes away before it is done."""
    while True:
        await reachable(dsn, migrated=migrated)
        try:
            return await work()
        except (Unavailable, OutcomeUnknown) as error:
            logger.warning("lost the database; starting again", error=error)
        await asyncio.sleep(pause)
