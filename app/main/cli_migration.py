"""Migration of the database by a process of its own, for a service that needs none of its tools afterwards.

Alembic and SQLAlchemy would stay in the memory of an API for as long as it runs: 25 MiB.
"""

import asyncio
import os

import typer

from app.main.cli_errors import LAST_WORDS
from app.main.cli_process import PARENT
from app.settings import Settings, variable
from jobplane.program import command


async def migrate_apart(made: Settings, dsn: str) -> None:
    """Run `jobplane migrate` if there is anything to do. Ends with its exit code, after its message, if it fails."""
    from app.store.schema.migrate import is_current

    if await is_current(dsn):
        return
    child = await asyncio.create_subprocess_exec(*command("app.main.cli"), "migrate", env=_environment(made, dsn))
    if code := await child.wait():
        raise typer.Exit(max(code, 1))


def _environment(made: Settings, dsn: str) -> dict[str, str]:
    """It ends with this process, and says itself why it fails."""
    given = {
        variable("database_url"): dsn,
        variable("data_dir"): str(made.data_dir),
        variable("log_format"): made.log_format,
        PARENT: str(os.getpid()),
    }
    return {name: value for name, value in os.environ.items() if name != LAST_WORDS} | given
