"""Clock of the agent, passed in so that tests can move it by hand. No other part of the agent reads the time."""

import asyncio
import time
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Protocol


class Alarm(Protocol):
    """A call that is to come."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """`elapsed` counts seconds that only go forward, those of a suspended machine included."""

    def now(self) -> datetime: ...

    def elapsed(self) -> float: ...

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Alarm: ...

    async def sleep(self, seconds: float) -> None: ...


class WallClock:
    """The machine's."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def elapsed(self) -> float:
        # A lease runs out while a laptop sleeps; the monotonic clock does not count that on Linux.
        return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))

    def call_later(self, seconds: float, callback: Callable[[], None]) -> Alarm:
        return asyncio.get_running_loop().call_later(seconds, callback)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
