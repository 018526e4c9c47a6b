"""Migrations: brings a database to this version's schema. Called by `jobplane migrate` and `jobplane up`; many may call at
once.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

import asyncpg

from app.store.errors import AWAY, Unavailable

if TYPE_CHECKING:
    from alembic.config import Config

_LOCK = 7_021_996  # any number, as long as every version of this program uses the same
# What `run_alembic` and `migrations/env.py` import. By name, as the import contract keeps SQLAlchemy out of what serves.
_TOOLS = (
    "alembic.autogenerate",
    "alembic.command",
    "alembic.config",
    "app.store.schema.schema",
    "app.store.schema.tables",
    "sqlalchemy.dialects.postgresql.asyncpg",
    "sqlalchemy.ext.asyncio",
)
MIGRATIONS = Path(__file__).resolve().parents[3] / "migrations"


async def migrate(dsn: str, revision: str = "head") -> None:
    """Upgrade (or downgrade, to an older `revision` or `base`) in one go, one process at a time.

    Raises Unavailable if the database goes away; the migrations that were done then stay.
    """
    with _outages():
        if revision != "head" or not await _is_current(dsn):
            await run_alembic(dsn, lambda config: _migrate(config, revision))


async def is_current(dsn: str) -> bool:
    """Return whether there is nothing to migrate. Raises Unavailable."""
    with _outages():
        return await _is_current(dsn)


@contextmanager
def _outages() -> Iterator[None]:
    """Raise Unavailable for errors that mean the database is away."""
    try:
        yield
    except Exception as error:
        away = next((each for each in _causes(error) if isinstance(each, AWAY)), None)
        if away is None:
            raise
        raise Unavailable(f"the database went away while it was migrated: {away}") from error


def load_tools() -> None:
    """Import what migrations need, which takes a quarter of a second: for a process that waits for its database anyway."""
    for each in _TOOLS:
        import_module(each)


def _migrate(config: "Config", revision: str) -> None:
    from alembic import command

    if revision == "base" or revision.startswith("-"):
        command.downgrade(config, revision)
    else:
        command.upgrade(config, revision)


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    """An error, and what it was made of: SQLAlchemy wraps twice."""
    while error:
        yield error
        error = error.__cause__


async def run_alembic(dsn: str, command: Callable[["Config"], object], migrations: Path = MIGRATIONS) -> None:
    """Call one of Alembic's commands with a connection, while no other process does."""
    from alembic.config import Config
    from sqlalchemy import Connection, text
    from sqlalchemy.ext.asyncio import create_async_engine
    from sqlalchemy.pool import NullPool

    config = Config()
    config.set_main_option("script_location", str(migrations))
    config.set_main_option("file_template", "%%(rev)s_%%(slug)s")

    def run(connection: Connection) -> None:
        config.attributes["connection"] = connection
        command(config)

    # asyncpg reads the URL, as it does everywhere else: SQLAlchemy does not know one with several hosts.
    engine = create_async_engine(
        "postgresql+asyncpg://", async_creator=lambda: asyncpg.connect(dsn), poolclass=NullPool
    )
    async with engine.connect() as connection:
        await connection.execute(text("select pg_advisory_lock(:lock)"), {"lock": _LOCK})
        await connection.commit()
        await connection.run_sync(run)
        await connection.commit()
    await engine.dispose()


async def _is_current(dsn: str) -> bool:
    """Return whether there is nothing to do: then the half second that loading the tools takes is saved at every start."""
    connection = await asyncpg.connect(dsn)
    try:
        return await revision_of(connection) == newest()
    finally:
        await connection.close()


def newest(migrations: Path = MIGRATIONS) -> str:
    """The revision that this version needs. Later ones sort behind it."""
    return max(path.name.partition("_")[0] for path in (migrations / "versions").glob("[0-9]*_*.py"))


async def revision_of(connection: asyncpg.Connection) -> str:
    """Of a database; empty if it has no tables. It goes up migration by migration."""
    if not await connection.fetchval("select to_regclass('alembic_version') is not null"):
        return ""
    return str(await connection.fetchval("select version_num from alembic_version") or "")
