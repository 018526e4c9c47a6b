"""Migration of the database in a process of its own: when it starts early, and what it loads before the database is there."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from app.main.cli_migration import start_migration
from app.settings import Settings


@pytest.mark.parametrize(
    "dsn", ["postgresql:///x?host=/tmp", "postgresql://db:5432/x?host=db", "postgresql://[::1", ""]
)
async def test_no_migration_starts_early_where_the_database_is_there_or_elsewhere(tmp_path: Path, dsn: str) -> None:
    assert await start_migration(Settings(data_dir=tmp_path), dsn) is None


async def test_a_migration_starts_early_where_the_database_is_missing(tmp_path: Path) -> None:
    child = await start_migration(Settings(data_dir=tmp_path), f"postgresql:///x?host={tmp_path}/made&port=none")
    assert child
    assert await child.wait() == os.EX_CONFIG  # it started, and refused the port


def test_the_tools_of_a_migration_are_all_that_it_loads(empty: str) -> None:
    code = """
import asyncio, sys
from app.store.schema.migrate import load_tools, migrate
load_tools()
before = {*sys.modules}
asyncio.run(migrate(sys.argv[1]))
print(sorted(each for each in sys.modules.keys() - before if each.startswith(("alembic", "sqlalchemy", "app."))))
"""
    done = subprocess.run([sys.executable, "-c", code, empty], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout == "[]\n", done.stderr
