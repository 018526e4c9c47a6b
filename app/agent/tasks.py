"""Background tasks of the agent: pace, restarts, and log levels of failures that repeat. Used by all parts of the agent."""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from app.agent.clock import Clock
from app.client.api import NotUpYetError
from app.machinery.errors import ApiError
from app.structured_logging import Logger

AGAIN = 1.0  # seconds; before a task that failed is tried again
LONGEST_PAUSE = 30.0  # seconds; before one that the API has refused is restarted
FORBIDDEN = (401, 403)

T = TypeVar("T")

logger = Logger(__name__)


class Pace:
    """At most `most` turns a round of the event loop, first come, first served.

    Thousands of pods that arrive at once would otherwise be planned in one round, which takes seconds: longer than a lease's
    renewal can wait.
    """

    def __init__(self, most: int) -> None:
        self._most = self._left = most
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Returns at once if this round has a turn left, else in a later one."""
        loop = asyncio.get_running_loop()
        if self._left == self._most:
            loop.call_soon(self._round)
        if self._left:
            self._left -= 1
            return
        self._waiting.append(loop.create_future())
        await self._waiting[-1]

    def _round(self) -> None:
        self._left = self._most
        while self._waiting and self._left:
            waiting = self._waiting.popleft()
            if not waiting.done():  # its task has not been cancelled
                waiting.set_result(None)
                self._left -= 1
        if self._left < self._most:
            asyncio.get_running_loop().call_soon(self._round)


class Tasks:
    """They are referred to while they run, as the loop itself does not."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.get_running_loop().create_task(work)
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        return task

    async def close(self) -> None:
        """End those that run, and wait until they have ended."""
        running = list(self._running)
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


def level_of(error: Exception) -> int:
    """Level of the log line about a failed call. A refused token is logged once, by the lease; here it would repeat."""
    if isinstance(error, NotUpYetError):
        return logging.INFO
    return logging.DEBUG if isinstance(error, ApiError) and error.code == 401 else logging.WARNING


async def restart_forever(clock: Clock, name: str, loop: Callable[[], Awaitable[None]]) -> None:
    """Run a loop that should not end, and restart it when it does; later each time that the API refuses it at once."""
    pause = AGAIN
    while True:
        began_at = clock.elapsed()
        try:
            await loop()
        except ConnectionError as error:
            logger.at(level_of(error), "task failed; restarting it", task=name, error=error)
        except ApiError as error:
            pause = AGAIN if clock.elapsed() - began_at > LONGEST_PAUSE else min(2 * pause, LONGEST_PAUSE)
            logger.error(
                "task failed; restarting it after a pause",
                task=name,
                seconds=pause,
                error=f"{error.message}{_advice(error)}",
            )
            await clock.sleep(pause)
            continue
        except Exception as error:
            logger.error("task failed; restarting it", task=name, traceback_of=error)
        await clock.sleep(AGAIN)


async def retry_until_done(clock: Clock, name: str, once: Callable[[], Awaitable[T]]) -> T:
    """Return what `once` does, as soon as it does not raise."""
    while True:
        try:
            return await once()
        except ConnectionError as error:
            logger.at(level_of(error), "task cannot start yet; retrying", task=name, error=error)
        except Exception as error:
            logger.error("task cannot start yet; retrying", task=name, traceback_of=error)
        await clock.sleep(AGAIN)


def _advice(error: ApiError) -> str:
    """Advice for a refusal that is the credential's fault; else empty."""
    if error.code not in FORBIDDEN:
        return ""
    return ". The agent's token is not for this node: give it one of `jobplane token --node NAME`, or a --join-token"
