"""Stored Jobs: how the Job and CronJob controllers ask for what the mirror leaves out (`app.plans.jobs.dormancy`)."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from app.kinds.batch.job import Job
from app.store import Key, StoredObject
from app.store.dormant_objects import Due

ReadStored = Callable[[Sequence[Key]], Awaitable[Mapping[Key, StoredObject]]]
"""Reads the given objects that exist from the database."""
ReadEnded = Callable[[str, str], Awaitable[Job | None]]
"""By namespace and UID, a Job that has ended and may be gone."""
ReadDue = Callable[[datetime, Due | None], Awaitable[Sequence[Due]]]
"""The next dormant objects whose TTL is over at a time, after one of them."""
ReadNextExpiry = Callable[[datetime], Awaitable[datetime | None]]
"""When the TTL of a dormant object is over for the first time after a time."""


async def read_none(_keys: Sequence[Key]) -> Mapping[Key, StoredObject]:
    """Read nothing, where no object can be dormant."""
    return {}


async def _read_no_job(_namespace: str, _uid: str) -> Job | None:
    return None


async def _read_none_due(_until: datetime, _after: Due | None) -> Sequence[Due]:
    return ()


async def _read_no_expiry(_after: datetime) -> datetime | None:
    return None


class JobReads(NamedTuple):
    """stored: Jobs that exist. ended: records of Jobs. due, next_expiry: Jobs that a TTL deletes."""

    stored: ReadStored = read_none
    ended: ReadEnded = _read_no_job
    due: ReadDue = _read_none_due
    next_expiry: ReadNextExpiry = _read_no_expiry


NO_READS = JobReads()
