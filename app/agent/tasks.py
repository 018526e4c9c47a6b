"""Tasks that run beside their owner until they are through, or until it closes. Kept by whoever in the agent starts some."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, TypeVar

from app.machinery.errors import ApiError

T = TypeVar("T")


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
    return logging.DEBUG if isinstance(error, ApiError) and error.code == 401 else logging.WARNING
