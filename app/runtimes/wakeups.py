"""Event hints for readers that follow a runtime: keys of containers to look at.

The runtimes feed it; `events()` and `log_events()` of the Runtime protocol read it. A key waits at most once for each
reader, so a slow reader costs no more memory than there are containers.
"""

import asyncio
from collections.abc import AsyncIterator
from weakref import WeakSet

from app.runtimes.base import ContainerKey


class Hints:
    """Hands each key that is added to every reader that exists."""

    def __init__(self) -> None:
        self._readers: WeakSet[_HintReader] = WeakSet()

    def add(self, key: ContainerKey) -> None:
        for reader in self._readers:
            reader.add(key)

    def read(self) -> AsyncIterator[ContainerKey]:
        reader = _HintReader()
        self._readers.add(reader)
        return reader

    def close(self) -> None:
        """Ends every reader once it has read what waits for it."""
        for reader in self._readers:
            reader.close()


class _HintReader(AsyncIterator[ContainerKey]):
    def __init__(self) -> None:
        self._waiting: dict[ContainerKey, None] = {}  # a set that keeps its order
        self._wake = asyncio.Event()
        self._closed = False

    def add(self, key: ContainerKey) -> None:
        self._waiting[key] = None
        self._wake.set()

    def close(self) -> None:
        self._closed = True
        self._wake.set()

    async def __anext__(self) -> ContainerKey:
        while not self._waiting:
            if self._closed:
                raise StopAsyncIteration
            self._wake.clear()
            await self._wake.wait()
        key = next(iter(self._waiting))
        del self._waiting[key]
        return key
