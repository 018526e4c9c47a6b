"""A migrated, empty Postgres for each cluster that tests start: copied from one that is made once.

Called by `Cluster`, `Parts` and the shell of the manual's pages. initdb and the migrations are a third of what a first start
costs; test_demo, test_compose, test_wheel and the manual's tutorial start without a copy.
"""

import asyncio
import hashlib
import os
import subprocess
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from app.postgres.embedded_postgres import Postgres
from app.store.schema.migrate import MIGRATIONS, migrate
from tests.built_once import built_once

ROOT = Path(__file__).resolve().parents[2]


def copy_into(data_dir: Path, environ: Mapping[str, str] = os.environ) -> None:
    """Give a new data folder of Jobplane its Postgres, without the password, which the first start sets.

    `environ` says which Postgres makes it, as it does in the product.
    """
    target = data_dir / "postgres"
    data_dir.mkdir(mode=0o755, exist_ok=True)
    target.mkdir(mode=0o700)
    original = _find_or_make(environ) / "cluster"
    subprocess.run(["cp", "-a", "--reflink=auto", original, target / "cluster"], check=True)
    owner = original.stat()
    os.chown(target, owner.st_uid, owner.st_gid)


def _find_or_make(environ: Mapping[str, str]) -> Path:
    """Return the folder of this user and version; processes that want it at once wait for the one that makes it."""
    programs = environ.get("JOBPLANE_PG_BIN", "")
    return built_once(f"postgres-{os.geteuid()}-{_digest(programs)}", lambda folder: _build(folder, environ))


def _build(folder: Path, environ: Mapping[str, str]) -> None:
    with ThreadPoolExecutor(1) as thread:  # a process that drives a browser has a loop that runs
        thread.submit(lambda: asyncio.run(_make(folder, environ))).result()


async def _make(folder: Path, environ: Mapping[str, str]) -> None:
    postgres = Postgres(folder, environ=environ)
    try:
        await migrate(await postgres.start())
    finally:
        await postgres.stop()


def _digest(programs: str) -> str:
    """Change with whatever the schema is made of, and with the Postgres that is named."""
    files = [*MIGRATIONS.rglob("*.py"), *(ROOT / "app" / "store").rglob("*.py")]
    return hashlib.sha256(programs.encode() + b"".join(path.read_bytes() for path in sorted(files))).hexdigest()[:12]
