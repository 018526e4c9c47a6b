"""Bringing a database to this version's schema. Called by `jobplane migrate` and `jobplane up`; many may call at once."""

from pathlib import Path

from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, text
from sqlalchemy.engine import make_url
from sqlalchemy.ext.asyncio import create_async_engine
from sqlalchemy.pool import NullPool

_LOCK = 7_021_996  # any number, as long as every version of this program uses the same


async def migrate(dsn: str, revision: str = "head") -> None:
    """Upgrade (or downgrade, to an older `revision` or `base`) in one go, one process at a time."""
    engine = create_async_engine(make_url(dsn).set(drivername="postgresql+asyncpg"), poolclass=NullPool)
    async with engine.connect() as connection:
        await connection.execute(text("select pg_advisory_lock(:lock)"), {"lock": _LOCK})
        await connection.commit()
        await connection.run_sync(_migrate, revision)
        await connection.commit()
    await engine.dispose()


def config() -> Config:
    """Alembic's, with the migrations that this version carries."""
    made = Config()
    made.set_main_option("script_location", str(Path(__file__).resolve().parents[2] / "migrations"))
    return made


def _migrate(connection: Connection, revision: str) -> None:
    made = config()
    made.attributes["connection"] = connection
    if revision == "base" or revision.startswith("-"):
        command.downgrade(made, revision)
    else:
        command.upgrade(made, revision)
