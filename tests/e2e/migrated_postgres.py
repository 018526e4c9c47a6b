"""A migrated, empty Postgres for each cluster that tests start: copied from one that is made once.

Called by `Cluster`, `Parts` and the shell of the manual's pages. initdb and the migrations are a third of what a first start
costs; test_demo, test_compose, test_wheel and the manual's tutorial start without a copy.
"""

import asyncio
import hashlib
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app.postgres.embedded_postgres import Postgres
from app.store.schema.migrate import MIGRATIONS, migrate
from tests.built_once import built_once

ROOT = Path(__file__).resolve().parents[2]


def copy_into(data_dir: Path) -> None:
    """Give a new data folder of Jobplane its Postgres, without the password, which the first start sets."""
    target = data_dir / "postgres"
    data_dir.mkdir(mode=0o755, exist_ok=True)
    target.mkdir(mode=0o700)
    original = _find_or_make() / "cluster"
    subprocess.run(["cp", "-a", "--reflink=auto", original, target / "cluster"], check=True)
    owner = original.stat()
    os.chown(target, owner.st_uid, owner.st_gid)


def _find_or_make() -> Path:
    """Return the folder of this user and version; processes that want it at once wait for the one that makes it."""
    return built_once(f"postgres-{os.geteuid()}-{_digest()}", _build)


def _build(folder: Path) -> None:
    with ThreadPoolExecutor(1) as thread:  # a process that drives a browser has a loop that runs
        thread.submit(lambda: asyncio.run(_make(folder))).result()


async def _make(folder: Path) -> None:
    postgres = Postgres(folder)
    try:
        await migrate(await postgres.start())
    finally:
        await postgres.stop()


def _digest() -> str:
    """Change with whatever the schema is made of."""
    files = [*MIGRATIONS.rglob("*.py"), *(ROOT / "app" / "store").rglob("*.py")]
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(files))).hexdigest()[:12]
