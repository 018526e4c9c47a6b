"""Job expiry: brings Jobs back to the mirror when their TTL is over. A part of the Job controller, with a key of its own.

Dormant Jobs (`app.plans.jobs.dormancy`) are many, so one timer serves them all: it is set for the next one that expires, which
the database knows. A change of a Job that expires sooner sets it anew. Jobs that are back are reconciled as any other.
"""

import asyncio
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from app.controllers.batch.stored_jobs import JobReads
from app.controllers.planned_write import PlannedWrite
from app.machinery.base import Object
from app.plans.jobs.dormancy import find_dormancy
from app.plans.plan import Plan, earliest
from app.store import Key, Mirror

EXPIRY = Key("expiry", "", "")
SLICE = 200  # Jobs decoded in one step
MOST_DUE = 10_000  # Jobs that are awake because their TTL is over
_SOON = timedelta(seconds=1)
_LONGEST = timedelta(minutes=1)  # marks that are set later (`DormancyMarking`) are no changes, so no watcher is told


class JobExpiry:
    def __init__(self, mirror: Mirror, reads: JobReads) -> None:
        self._mirror = mirror
        self._reads = reads
        self._timer: datetime | None = None  # None while it is not set

    def enqueue_all(self) -> Iterable[Key]:
        return [EXPIRY] if self._mirror.dormant is not None else []

    def on_event(self, job: Object | None) -> Iterable[Key]:
        """Handle a change of a Job. The database has it already, so the next query finds it."""
        found = find_dormancy(job) if job is not None else None
        if found is None or found.expires_at is None:
            return ()
        return (EXPIRY,) if self._timer is None or found.expires_at < self._timer else ()

    async def reconcile(self, now: datetime) -> Sequence[PlannedWrite]:
        self._timer = None  # changes from now on may be missed by what is read
        has_more = await self._wake_due(now)
        following = now + _SOON if has_more else await self._reads.next_expiry(now)
        self._timer = earliest([following, now + _LONGEST])
        return [PlannedWrite(Plan(again_at=self._timer))]

    async def _wake_due(self, now: datetime) -> bool:
        """Bring back what is due; whether there may be more of it."""
        last, count = None, 0
        while due := await self._reads.due(now, last):
            await self._wake([each.key for each in due if self._mirror.get(each.key) is None])
            last, count = due[-1], count + len(due)
            if count >= MOST_DUE:
                return True
        return False

    async def _wake(self, keys: Sequence[Key]) -> None:
        for first in range(0, len(keys), SLICE):
            with self._mirror.waking() as wake:
                wake((await self._reads.stored(keys[first : first + SLICE])).values())
            await asyncio.sleep(0)
