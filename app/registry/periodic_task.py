"""Periodic task: work that repeats at an interval, whatever has changed: retention, compaction, certificates.

The controllers' manager runs those of the leader, the API those that each process does for itself. A task that fails is run
again at its next time; whatever it does is harmless to do twice.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime, timedelta
from typing import Protocol

from app.store import Feed, OutcomeUnknown, Unavailable
from app.structured_logging import Logger

logger = Logger(__name__)


class PeriodicTask(Protocol):
    """One such work, in a file of its own with its interval and its limits."""

    name: str  # in the log
    interval: timedelta  # from the end of a run to the next

    async def run_once(self, now: datetime, /) -> Mapping[str, int]:
        """Do all that is due. How many of what it did, for the log; what was nothing is not told."""


class Committed:
    """Waits for a commit. A periodic task that reads history runs again only after one."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed
        self._seen: tuple[int, ...] | None = None

    async def wait(self) -> None:
        while (now := self._now()) == self._seen:
            await self._feed.changed()
        self._seen = now

    def forget(self) -> None:
        """The run failed: the next one does not wait."""
        self._seen = None

    def _now(self) -> tuple[int, ...]:
        return (self._feed.unbroken_since, self._feed.timeline, self._feed.known)


async def run_periodically(
    task: PeriodicTask,
    clock: Callable[[], datetime],
    sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    work: Committed | None = None,
) -> None:
    """Run until cancelled. The first run comes somewhere within the interval, so that not all tasks run at the same time.

    work: each run waits for it as well as for the interval.
    """
    interval = task.interval.total_seconds()
    await sleep(random.uniform(0, interval))  # noqa: S311 - spreads load
    while True:
        if work:
            await work.wait()
        if not await _run(task, clock()) and work:
            work.forget()
        await sleep(interval)


async def _run(task: PeriodicTask, now: datetime) -> bool:
    """Return whether it succeeded."""
    try:
        _log_counts(task, await task.run_once(now))
    except (OSError, Unavailable, OutcomeUnknown) as error:
        logger.warning("periodic task failed; retrying", task=task.name, error=error)
    except Exception as error:
        logger.warning("periodic task failed; retrying", task=task.name, traceback_of=error)
    else:
        return True
    return False


def _log_counts(task: PeriodicTask, counts: Mapping[str, int]) -> None:
    for what, count in counts.items():
        if count:
            logger.info("periodic task finished", task=task.name, names=what, count=count)
