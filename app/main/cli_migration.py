"""Migration of the database in a process of its own, called by `jobplane api --migrate`.

Alembic and SQLAlchemy would otherwise stay in the memory of the API for as long as it runs: 25 MiB.
"""

import asyncio
import os

import typer

from app.main.cli_errors import LAST_WORDS
from app.main.cli_process import PARENT
from app.settings import Settings, variable
from jobplane.program import command


async def migrate_apart(made: Settings, dsn: str) -> None:
    """Run `jobplane migrate` if the schema is not current. Raises typer.Exit with its code, after its message, if it fails."""
    from app.store.schema.migrate import is_current

    if await is_current(dsn):
        return
    child = await asyncio.create_subprocess_exec(*command("app.main.cli"), "migrate", env=_environment(made, dsn))
    if code := await child.wait():
        raise typer.Exit(max(code, 1))


def _environment(made: Settings, dsn: str) -> dict[str, str]:
    """The environment of the child, which ends with this process and prints its errors itself."""
    given = {
        variable("database_url"): dsn,
        variable("data_dir"): str(made.data_dir),
        variable("log_format"): made.log_format,
        PARENT: str(os.getpid()),
    }
    return {name: value for name, value in os.environ.items() if name != LAST_WORDS} | given
