"""Spreads work over rounds of the event loop, so that what cannot wait, such as a lease's renewal, has its share of it.

`Pods` uses it: thousands of pods that arrive at once would otherwise be planned in one round, which takes seconds.
"""

import asyncio
from collections import deque


class Pace:
    """At most `most` turns a round of the loop, first come, first served."""

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
