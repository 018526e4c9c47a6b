"""Batching loader: reads of single objects share queries. Those that come while others are on their way go out in the next.

As with commits, a lone read waits for nothing, and under load the cost of a round trip is divided among many. A read
never joins a query that was sent before it came, so it sees all that was committed until then.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from typing import cast

from app.store.errors import Key
from app.store.reader import StoredObject

AT_ONCE = 2  # queries on their way: while one is answered, the next one fills
MOST = 256  # objects of one query

Waiter = asyncio.Future[StoredObject | None]
Read = Callable[[Sequence[Key]], Awaitable[dict[Key, StoredObject]]]


class BatchingLoader:
    """`read` is asked for many objects at once; what it raises reaches all who asked."""

    def __init__(self, read: Read) -> None:
        self._read = read
        self._waiting: dict[Key, list[Waiter]] = {}
        self._running: set[asyncio.Task[None]] = set()

    async def get(self, key: Key) -> StoredObject | None:
        future: Waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(key, []).append(future)
        if len(self._running) < AT_ONCE:
            self._running.add(asyncio.create_task(self._run()))
        return await future

    async def _run(self) -> None:
        """Read until nobody waits. Who comes after that finds this task gone: a callback of the task would come too late."""
        try:
            while self._waiting:
                await self._read_some()
        finally:
            self._running.discard(cast("asyncio.Task[None]", asyncio.current_task()))

    async def _read_some(self) -> None:
        keys = list(self._waiting)[:MOST]
        asked = {key: self._waiting.pop(key) for key in keys}
        try:
            found = await self._read(keys)
        except BaseException as error:
            for future in _waiters(asked.values()):
                future.set_exception(error)
                future.exception()  # marks it as seen: its waiter may be cancelled before it is
            if not isinstance(error, Exception):
                raise
        else:
            for key, futures in asked.items():
                for future in _waiters((futures,)):
                    future.set_result(found.get(key))


def _waiters(asked: Iterable[list[Waiter]]) -> Iterator[Waiter]:
    """Those that still wait, and were not cancelled."""
    return (future for futures in asked for future in futures if not future.done())
