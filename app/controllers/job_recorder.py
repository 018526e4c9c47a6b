"""Job recorder: writes down what becomes of Jobs and their pods, so that it can be read when they are gone.

It follows the stored history, not the mirror: what happened while no controllers ran, or before this process was killed, is
there as well. Compaction leaves what is not recorded yet (`app.store.compaction`). The leader runs both tasks.
"""

import asyncio
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod
from app.machinery.base import Object
from app.machinery.decode import decode_older
from app.plans.jobs.job_record import attempt_of, job_name_of, job_uid_of, summarize
from app.store.job_records import NOTHING_SWEPT, AttemptRow, JobRecords, JobRow, Version
from app.structured_logging import Logger

logger = Logger(__name__)
ROWS = 2_000  # of history in one transaction
TOGETHER = 100  # versions decoded without a break for others
BATCH = 500  # records deleted in one statement
O = TypeVar("O", bound=Object)  # noqa: E741 - as in app.machinery.base
_encode = msgspec.json.Encoder().encode


class JobRecorder:
    """Records what history has brought since the last run."""

    name = "job recorder"
    interval = timedelta(seconds=1)

    def __init__(self, records: JobRecords, rows: int = ROWS) -> None:
        self._records = records
        self._rows = rows

    async def run_once(self, _: datetime) -> dict[str, int]:
        """Catch up. It tells nothing: Jobs end all the time."""
        while part := await self._records.next_history(self._rows):
            jobs: dict[str, JobRow] = {}
            attempts: list[AttemptRow] = []
            for start in range(0, len(part.versions), TOGETHER):
                some = part.versions[start : start + TOGETHER]
                jobs |= _job_rows(some)
                attempts += _attempt_rows(some)
                await asyncio.sleep(0)
            await self._records.record(part, list(jobs.values()), attempts)
        return {}


class RecordRetention:
    """`ttl`: since the deletion of the Job."""

    name = "record retention"
    interval = timedelta(seconds=30)

    def __init__(self, records: JobRecords, ttl: timedelta, batch: int = BATCH) -> None:
        self._records = records
        self._ttl = ttl
        self._batch = batch
        self._swept = NOTHING_SWEPT

    async def run_once(self, now: datetime) -> dict[str, int]:
        before = now - self._ttl
        deleted, has_more = 0, True
        while has_more:
            gone = await self._records.expire(before, self._batch)
            deleted, has_more = deleted + gone, gone == self._batch
        return {"deleted records": deleted, "deleted attempts and events": await self._sweep(before)}

    async def _sweep(self, before: datetime) -> int:
        """Each row is looked at once, as long as this process leads."""
        deleted = 0
        while swept := await self._records.sweep(before, self._swept, self._batch):
            self._swept, deleted = swept, deleted + swept.deleted
        return deleted


def _job_rows(versions: Iterable[Version]) -> dict[str, JobRow]:
    """The newest version of each Job that has ended, by UID."""
    rows: dict[str, JobRow] = {}
    for version in versions:
        if version.kind == "jobs.batch" and (job := _decode(version, Job)):
            summary = summarize(job, version.deleted_at)
            if summary.ended_at is not None:
                rows[summary.uid] = JobRow(summary, version.revision, _body(job))
    return rows


def _body(job: Job) -> bytes:
    """Its JSON, without what only writers of the object need."""
    return _encode(replace(job, metadata=replace(job.metadata, managed_fields=())))


def _attempt_rows(versions: Iterable[Version]) -> Iterator[AttemptRow]:
    for version in versions:
        if version.kind == "pods" and (pod := _decode(version, Pod)) and (uid := job_uid_of(pod)):
            yield AttemptRow(uid, pod.metadata.namespace, job_name_of(pod), attempt_of(pod, version.deleted_at))


def _decode(version: Version, type_: type[O]) -> O | None:
    """The object; None for one that cannot be read, which must not end the record of all others."""
    try:
        try:
            return msgspec.json.decode(version.body, type=type_)
        except msgspec.ValidationError:
            return decode_older(version.body, type_)
    except Exception as error:
        logger.error("cannot decode an object; it is not recorded", revision=version.revision, traceback_of=error)
        return None
