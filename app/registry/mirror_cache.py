"""Mirror cache: a process's own copy of some kinds, filled when it is first asked for, and anew after the feed has lost touch.

As new as the feed's cursor, which includes whatever this process has written itself.
"""

import asyncio
from contextlib import suppress

from app.kinds import KINDS
from app.store import Mirror, Store

_BEHIND_SECONDS = 1.0


class MirrorCache:
    """`resources` are the kinds, as they are stored."""

    def __init__(self, store: Store, resources: frozenset[str]) -> None:
        self._store, self._resources = store, resources
        self._lock = asyncio.Lock()
        self._mirror: Mirror | None = None
        self._since = 0

    async def mirror(self) -> Mirror:
        """The objects of the kinds, by key."""
        if (mirror := self.newest()) is not None:
            return mirror
        async with self._lock:
            return self.newest() or await self._fill()

    async def catch_up(self, revision: int | None = None) -> None:
        """Until the copy is as new as the store, or as this revision; for a moment at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_BEHIND_SECONDS):
                await self._store.feed.reach(revision or await self._store.revision())

    def newest(self) -> Mirror | None:
        """The copy as it is; None before it was filled, and after the feed has lost touch."""
        return self._mirror if self._since == self._store.feed.unbroken_since else None

    async def _fill(self) -> Mirror:
        if self._mirror is not None:
            self._store.feed.leave(self._mirror.apply)
            self._mirror = None
        since = self._store.feed.unbroken_since
        mirror = Mirror({kind.resource: kind.type for kind in KINDS if kind.resource in self._resources})
        await self._store.fill(mirror)
        self._mirror, self._since = mirror, since
        return mirror
