"""Delaying queue: the keys that are to be looked at later, as in client-go. The runner fills it, and takes what is due.

It waits for moments of the monotonic clock, so that a clock that is set back delays nothing. A clock that is set forward makes
keys due that much earlier, because what they wait for is a time of day.
"""

import heapq
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta

from app.store import Key

_LONGEST_WAIT = 60.0  # seconds; then a clock that was set forward is noticed
_STEP_SECONDS = 1.0  # by which a clock may differ and still count as going


class DelayingQueue:
    """`clock` tells the time of day, `elapsed` the monotonic seconds; `due`, by those, the earliest moment of each key."""

    def __init__(self, clock: Callable[[], datetime], elapsed: Callable[[], float]) -> None:
        self._clock, self._elapsed = clock, elapsed
        self.due: dict[Key, float] = {}
        self._entries: list[tuple[float, Key]] = []  # a heap: of a key's entries, only the one for `due` counts
        self._offset = self._clock_offset()

    def add_after(self, key: Key, delay: timedelta) -> bool:
        """Return whether the key was not yet to be due by then."""
        due = self._elapsed() + delay.total_seconds()
        if key in self.due and self.due[key] <= due:
            return False
        self.due[key] = due
        heapq.heappush(self._entries, (due, key))
        return True

    def take_due(self) -> Iterator[Key]:
        """Take the keys whose moment has come."""
        self._notice_a_clock_set_forward()
        now = self._elapsed()
        while self._entries and self._entries[0][0] <= now:
            due, key = heapq.heappop(self._entries)
            if self.due.get(key) == due:
                del self.due[key]
                yield key

    def seconds_to_next(self) -> float:
        """Return how long to wait until `take_due` is to be asked again; at most a minute."""
        left = self._entries[0][0] - self._elapsed() if self._entries else _LONGEST_WAIT
        return min(max(0.001, left), _LONGEST_WAIT)

    def _clock_offset(self) -> float:
        return self._clock().timestamp() - self._elapsed()

    def _notice_a_clock_set_forward(self) -> None:
        step = self._clock_offset() - self._offset
        if abs(step) >= _STEP_SECONDS:
            self._offset += step
        if step >= _STEP_SECONDS:
            self._entries = [(due - step, key) for due, key in self._entries]
            self.due = {key: due - step for key, due in self.due.items()}
