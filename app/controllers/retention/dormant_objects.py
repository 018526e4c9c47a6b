"""Dormant objects (`app.plans.jobs.dormancy`) are marked and tidied. The leader runs these periodic tasks.

`DormancyMarking` marks what was written before there were marks, or by an older process. `DepartedOwners` forgets deleted Jobs
without pods.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from app.kinds.batch.job import KIND as JOBS
from app.kinds.pod.pod import KIND as PODS
from app.machinery.base import Kind
from app.plans.jobs.dormancy import find_dormancy
from app.registry.codec import decode
from app.store import Mirror, Query, Store, StoredObject
from app.store.dormant_objects import Mark

SLICE = 200  # objects decoded in one step
ENOUGH = 5  # slices in a row with nothing to mark: there is hardly anything
PASS_INTERVAL = timedelta(minutes=10)  # from the end of one look at all that is awake to the next


class DormancyMarking:
    """Looks at all that is awake, slice by slice. `counted`: whether metrics have counted what was marked before."""

    name = "dormancy marking"
    interval = timedelta(seconds=1)

    def __init__(self, store: Store, mirror: Mirror, counted: Callable[[], bool]) -> None:
        self._store = store
        self._mirror = mirror
        self._counted = counted
        self._kinds: list[Kind] = []
        self._after: tuple[str, str] | None = None
        self._next_pass: datetime | None = None

    async def run_once(self, now: datetime) -> dict[str, int]:
        """One slice, or all of them while there is something to mark."""
        marked = 0
        has_more = self._mirror.drain()
        while has_more:
            await asyncio.sleep(0)
            has_more = self._mirror.drain()
        if not self._counted() or (self._next_pass is not None and now < self._next_pass):
            return {}
        if not self._kinds:
            self._kinds = [JOBS, PODS]
        while self._kinds:
            found = await self._mark_slice(self._kinds[-1])
            marked += found
            if not found:
                break
        if not self._kinds:
            await self._release()
            self._next_pass = now + PASS_INTERVAL
        return {"objects marked as dormant": marked}

    async def _release(self) -> None:
        """Have the mirror let go of what it held for a while: who needed it has looked at it."""
        leaving = self._mirror.leaving()
        for first in range(0, len(leaving), SLICE):
            for key in leaving[first : first + SLICE]:
                self._mirror.release(key)
            await asyncio.sleep(0)

    async def prepare(self) -> None:
        """Mark what there is before a mirror is filled: of a store that an earlier version has filled, it would be all."""
        for kind in (JOBS, PODS):
            self._kinds, self._after, empty = [kind], None, 0
            while self._kinds and empty < ENOUGH:
                empty = 0 if await self._mark_slice(kind) else empty + 1
        self._kinds, self._after = [], None

    async def _mark_slice(self, kind: Kind) -> int:
        page = await self._store.list(Query(kind=kind.resource, awake=True, after=self._after, limit=SLICE))
        marks = [mark for head in page.heads if (mark := _find_mark(kind, head)) is not None]
        if marks:
            await self._store.dormant.mark(marks)
        for each in marks:
            self._mirror.release(each.key)
        self._after = (page.heads[-1].key.namespace, page.heads[-1].key.name) if page.more else None
        if not page.more:
            self._kinds.pop()
        return len(marks)


def _find_mark(kind: Kind, head: StoredObject) -> Mark | None:
    found = find_dormancy(decode(kind, head))
    return None if found is None else Mark(head.key, head.revision, found.summary, found.expires_at)


class DepartedOwners:
    name = "departed owners"
    interval = timedelta(seconds=60)

    def __init__(self, store: Store) -> None:
        self._store = store

    async def run_once(self, _: datetime) -> dict[str, int]:
        while await self._store.dormant.forget_departed():
            pass
        return {}
