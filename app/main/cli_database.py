"""The database, for commands that speak to it themselves: its address, and a store that fails where services would wait."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from app.main.cli_errors import CommandError, ConfigError
from app.settings import Settings

if TYPE_CHECKING:
    from app.store import Store


@asynccontextmanager
async def opened(made: Settings) -> AsyncIterator["Store"]:
    """For a command that is soon done: it fails where others wait for the database."""
    from app.store import OutcomeUnknown, Unavailable, UrlError, open_store, place_of, problem_of

    dsn = dsn_of(made)
    try:
        if problem := await problem_of(dsn):
            raise CommandError(f"the database at {place_of(dsn)} cannot be used: {problem}")
        async with open_store(dsn, ring_bytes=0, pool_size=1) as store:
            yield store
    except UrlError as error:
        raise ConfigError(f"--database-url or JOBPLANE_DATABASE_URL: {error}") from error
    except (Unavailable, OutcomeUnknown) as error:
        raise CommandError(str(error)) from error


def dsn_of(made: Settings) -> str:
    """The address that was given. Raises ConfigError if there is none."""
    given = made.database_url.get_secret_value()
    if not given:
        raise ConfigError("no database: give --database-url or JOBPLANE_DATABASE_URL (`jobplane up` starts its own)")
    return given
