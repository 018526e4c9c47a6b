"""Background tasks of the agent, their pace, and the log levels of failures that repeat. Used by all parts of the agent."""

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine
from typing import Any, TypeVar

from app.client.api import NotUpYetError
from app.machinery.errors import ApiError

T = TypeVar("T")


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
