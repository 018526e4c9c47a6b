"""The limit of open files: each process that serves raises its own at start; containers keep the one that it was started with.

Most systems start processes with a soft limit of 1,024, for the sake of programs that use select(); the hard limit is what
a process may have. A connection takes a file, and an agent two or three connections of its API. Called by the command line
and the agent's process, and by whoever starts programs that are not ours.
"""

import resource
from collections.abc import Iterator
from contextlib import contextmanager

from app.structured_logging import Logger

logger = Logger(__name__)


def raise_limit() -> None:
    """Raise the soft limit to the hard one, once at the start of a process."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (ValueError, OSError) as error:  # macOS: its hard limit is infinite, but for files
        logger.warning("cannot raise the limit of open files", limit=soft, error=error)
        return
    _Limit.started_with = soft


class _Limit:
    started_with: int | None = None  # the soft limit before it was raised


@contextmanager
def limit_restored() -> Iterator[None]:
    """For the time that it takes to start a program: the program inherits the limit that this process was started with."""
    if _Limit.started_with is None:
        yield
        return
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (_Limit.started_with, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
