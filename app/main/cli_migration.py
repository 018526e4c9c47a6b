"""Migration of the database in a process of its own, called by `jobplane api --migrate`.

Alembic and SQLAlchemy would otherwise stay in the memory of the API for as long as it runs: 25 MiB.
"""

import asyncio
import os
from asyncio.subprocess import Process
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import typer

from app.main.cli_errors import LAST_WORDS
from app.main.cli_process import PARENT
from app.settings import Settings, variable
from jobplane.program import command


async def start_migration(made: Settings, dsn: str) -> Process | None:
    """Start `jobplane migrate` if the database is not there yet: it loads Alembic while `jobplane up` runs initdb."""
    return await _start(made, dsn) if _is_being_made(dsn) else None


async def migrate_apart(made: Settings, dsn: str, child: Process | None = None) -> None:
    """Run `jobplane migrate` if the schema is not current. Raises typer.Exit with its code, after its message, if it fails.

    child: what `start_migration` returned.
    """
    from app.store.schema.migrate import is_current

    if child is None:
        if await is_current(dsn):
            return
        child = await _start(made, dsn)
    if code := await child.wait():
        raise typer.Exit(max(code, 1))


def _is_being_made(dsn: str) -> bool:
    """Return whether the folder of the database's socket is missing.

    With a short path that is the data folder, so initdb has not ended. Where the path is too long for a socket, the folder is
    made at each start: the migration then starts early for nothing, and ends once it finds the schema current.
    """
    try:
        folder = parse_qs(urlsplit(dsn).query).get("host", [""])[0]
    except ValueError:  # not a URL: `reachable` reports it
        return False
    return folder.startswith("/") and not Path(folder).exists()


async def _start(made: Settings, dsn: str) -> Process:
    return await asyncio.create_subprocess_exec(*command("app.main.cli"), "migrate", env=_environment(made, dsn))


def _environment(made: Settings, dsn: str) -> dict[str, str]:
    """The environment of the child, which ends with this process and prints its errors itself."""
    given = {
        variable("database_url"): dsn,
        variable("data_dir"): str(made.data_dir),
        variable("log_format"): made.log_format,
        PARENT: str(os.getpid()),
    }
    return {name: value for name, value in os.environ.items() if name != LAST_WORDS} | given
