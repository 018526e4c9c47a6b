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


class WhenCommitted:
    """A periodic task that works through history: it runs only if something was committed since its last run that succeeded."""

    def __init__(self, task: PeriodicTask, feed: Feed) -> None:
        self.name, self.interval = task.name, task.interval
        self._task, self._feed = task, feed
        self._done: tuple[int, ...] | None = None  # what was committed before the last run

    async def run_once(self, now: datetime) -> Mapping[str, int]:
        feed = self._feed
        committed = (feed.unbroken_since, feed.timeline, feed.known)
        if committed == self._done:
            return {}
        counts = await self._task.run_once(now)
        self._done = committed
        return counts


async def run_periodically(
    task: PeriodicTask, clock: Callable[[], datetime], sleep: Callable[[float], Awaitable[None]] = asyncio.sleep
) -> None:
    """Run until cancelled. The first run comes somewhere within the interval, so that not all tasks run at the same time."""
    interval = task.interval.total_seconds()
    await sleep(random.uniform(0, interval))  # noqa: S311 - spreads load
    while True:
        try:
            _log_counts(task, await task.run_once(clock()))
        except (OSError, Unavailable, OutcomeUnknown) as error:
            logger.warning("periodic task failed; retrying", task=task.name, error=error)
        except Exception as error:
            logger.warning("periodic task failed; retrying", task=task.name, traceback_of=error)
        await sleep(interval)


def _log_counts(task: PeriodicTask, counts: Mapping[str, int]) -> None:
    for what, count in counts.items():
        if count:
            logger.info("periodic task finished", task=task.name, names=what, count=count)
