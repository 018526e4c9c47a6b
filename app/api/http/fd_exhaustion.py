"""Logs when the API runs out of file descriptors, which the event loop does not: it closes new connections. Run by `app`."""

import os
import resource
from datetime import datetime, timedelta

from app.structured_logging import Logger

SPARE = 16  # descriptors; with fewer left, connections are refused now, or will be any moment

logger = Logger(__name__)


class FileDescriptorWatch:
    """Periodic task: logs a line when they run out, and one when there are some again; not one for every connection."""

    name = "watch of file descriptors"
    interval = timedelta(seconds=1)

    def __init__(self) -> None:
        self._were_left = True

    async def run_once(self, _: datetime) -> dict[str, int]:
        are_left = can_open(SPARE)
        if self._were_left and not are_left:
            logger.error(
                "file descriptors run out; new connections are refused. Raise the hard limit: LimitNOFILE= of a systemd "
                "unit, or `ulimit -Hn` before the start",
                limit=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
            )
        elif are_left and not self._were_left:
            logger.warning("file descriptors are free again; new connections are accepted")
        self._were_left = are_left
        return {}


def can_open(count: int) -> bool:
    """Return whether this process can open so many files more."""
    opened: list[int] = []  # not by Path.open: this runs every second, and that takes much longer
    try:
        while len(opened) < count:
            opened.append(os.open(os.devnull, os.O_RDONLY))
    except OSError:
        return False
    finally:
        for each in opened:
            os.close(each)
    return True
