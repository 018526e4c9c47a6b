"""Logs when the API runs out of file descriptors, which the event loop does not: it closes new connections. Run by `app`."""

import asyncio
import os
import resource
from contextlib import ExitStack
from pathlib import Path

from app.structured_logging import Logger

LOOK_SECONDS = 1.0
SPARE = 16  # descriptors; with fewer left, connections are refused now, or will be any moment

logger = Logger(__name__)


async def watch_files_left() -> None:
    """Until cancelled. Logs a line when they run out, and one when there are some again; not one for every connection."""
    were_left = True
    while True:
        are_left = can_open(SPARE)
        if were_left and not are_left:
            logger.error(
                "file descriptors run out; new connections are refused. Raise the hard limit: LimitNOFILE= of a systemd "
                "unit, or `ulimit -Hn` before the start",
                limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            )
        elif are_left and not were_left:
            logger.warning("file descriptors are free again; new connections are accepted")
        were_left = are_left
        await asyncio.sleep(LOOK_SECONDS)


def can_open(count: int) -> bool:
    """Whether this process can open so many files more."""
    with ExitStack() as opened:
        try:
            for _ in range(count):
                opened.enter_context(Path(os.devnull).open("rb", buffering=0))
        except OSError:
            return False
    return True
