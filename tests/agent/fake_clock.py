"""A clock that stands still until a test moves it."""

import asyncio
import heapq
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from itertools import count

BEGIN = datetime(2026, 1, 31, 12, 0, 0, tzinfo=UTC)


class _Alarm:
    def __init__(self, callback: Callable[[], None]) -> None:
        self.callback: Callable[[], None] | None = callback

    def cancel(self) -> None:
        self.callback = None


class FakeClock:
    def __init__(self) -> None:
        self._seconds = 0.0
        self._alarms: list[tuple[float, int, _Alarm]] = []
        self._order = count()

    def now(self) -> datetime:
        return BEGIN + timedelta(seconds=self._seconds)

    def elapsed(self) -> float:
        return self._seconds

    def call_later(self, seconds: float, callback: Callable[[], None]) -> _Alarm:
        alarm = _Alarm(callback)
        heapq.heappush(self._alarms, (self._seconds + seconds, next(self._order), alarm))
        return alarm

    async def sleep(self, seconds: float) -> None:
        if seconds <= 0:
            return
        woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.call_later(seconds, lambda: woken.done() or woken.set_result(None))
        await woken

    def advance(self, seconds: float) -> None:
        """Everything that falls due within is called, in order, each at its own time."""
        until = self._seconds + seconds
        while self._alarms and self._alarms[0][0] <= until:
            at, _, alarm = heapq.heappop(self._alarms)
            self._seconds = max(self._seconds, at)
            if alarm.callback:
                alarm.callback()
        self._seconds = until
