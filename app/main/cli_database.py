"""Database access of commands: the URL, and a store that fails at once where a service would wait."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING

from app.main.cli_errors import CommandError, ConfigError
from app.settings import Settings

if TYPE_CHECKING:
    from app.store import Store


@asynccontextmanager
async def open_database(made: Settings) -> AsyncIterator["Store"]:
    """Open the store. Raises CommandError if the database cannot be used; services wait for it instead."""
    from app.store import OutcomeUnknown, Unavailable, UrlError, open_store, place_of, problem_of

    dsn = dsn_of(made)
    try:
        if problem := await problem_of(dsn):
            raise CommandError(f"cannot use the database at {place_of(dsn)}: {problem}")
        async with open_store(dsn, ring_bytes=0, pool_size=1) as store:  # these commands look at no Secret
            yield store
    except UrlError as error:
        raise ConfigError(f"--database-url or JOBPLANE_DATABASE_URL: {error}") from error
    except (Unavailable, OutcomeUnknown) as error:
        raise CommandError(str(error)) from error


@asynccontextmanager
async def open_with_keys(made: Settings, **options: int) -> AsyncIterator["Store"]:
    """Open the store of a service, which reads and writes Secrets. Raises ConfigError if they need a key that is not there."""
    from app.store import MasterKeyError, master_keys, open_store

    keys = master_keys(made.secrets_key_file, made.secrets_key_command)
    lead = timedelta(seconds=made.secrets_key_lead_seconds)
    try:
        async with open_store(dsn_of(made), keys=keys, key_lead=lead, **options) as store:
            store.keys.check()
            yield store
    except MasterKeyError as error:
        raise ConfigError(str(error)) from error


def dsn_of(made: Settings) -> str:
    """Return the database URL. Raises ConfigError if there is none."""
    given = made.database_url.get_secret_value()
    if not given:
        raise ConfigError(
            "no database: pass --database-url or set JOBPLANE_DATABASE_URL (`jobplane up` starts its own)"
        )
    return given
