"""Things that take seconds to build, and that all processes of the tests share. Used by `wheel` and `e2e/migrated_postgres`."""

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "build" / "tests"


def built_once(name: str, build: Callable[[Path], None]) -> Path:
    """Return the folder of this name. The first process that wants it builds it; the others wait. Half of one is never seen."""
    made = FOLDER / name
    FOLDER.mkdir(mode=0o755, parents=True, exist_ok=True)
    with made.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            half = made.with_suffix(".new")
            shutil.rmtree(half, ignore_errors=True)
            build(half)
            half.rename(made)
    return made
