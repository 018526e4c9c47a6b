"""A database that goes back in time, as one does whose backup is restored, or whose standby is promoted too early."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import asyncpg
from sqlalchemy.engine import make_url

from tests.conftest import execute

TABLES = ("counter", "timelines", "versions", "heads")


async def back_up(dsn: str) -> None:
    """Keep what there is now, beside it."""
    connection = await asyncpg.connect(dsn)
    try:
        for table in TABLES:
            await connection.execute(f"create table saved_{table} as table {table}")
    finally:
        await connection.close()


async def restore(dsn: str, *, same_run: bool = False) -> None:
    """Everybody's connections end, and what was saved is there again, on a server that has just started.

    same_run: it was done by hand, on a server that nobody started.
    """
    connection = await asyncpg.connect(dsn)
    try:
        async with connection.transaction():
            await connection.execute(f"lock table {', '.join(TABLES)} in access exclusive mode")
            for table in TABLES:
                await connection.execute(f"delete from {table}; insert into {table} table saved_{table}")
            if not same_run:
                await connection.execute("delete from server_runs")
            await connection.execute(_END_EARLIER)
        for table in TABLES:
            await connection.execute(f"drop table saved_{table}")
    finally:
        await connection.close()


# Who comes back meanwhile waits for the tables.
_END_EARLIER = """select count(pg_terminate_backend(pid)) from pg_stat_activity
    where datname = current_database() and pid <> pg_backend_pid() and backend_start < now()"""


@asynccontextmanager
async def read_only(dsn: str) -> AsyncIterator[None]:
    """New connections to the database only read, as to a standby."""
    setting = f"alter database {make_url(dsn).database} %s default_transaction_read_only"
    await execute(dsn, f"{setting % 'set'} = on")
    try:
        yield
    finally:
        await execute(
            dsn, "set transaction_read_only = off", "set default_transaction_read_only = off", setting % "reset"
        )
