"""Job recorder: writes down what becomes of Jobs and their pods, so that it can be read when they are gone.

It follows the stored history, not the mirror: what happened while no controllers ran, or before this process was killed, is
there as well. Compaction leaves what is not recorded yet (`app.store.compaction`). The leader runs both tasks.
"""

import asyncio
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TypeVar

import msgspec
from msgspec.structs import replace

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod, is_terminal
from app.machinery.base import Object
from app.machinery.decoding.decode import decode_stored
from app.plans.jobs.job_record import attempt_of, job_name_of, job_uid_of, restarts_of, summarize
from app.store.job_record_writer import NOTHING_SWEPT, AttemptRow, JobRecordWriter
from app.store.job_records import JobRow, RestartRow, Version
from app.structured_logging import Logger

logger = Logger(__name__)
ROWS = 2_000  # of history in one transaction
TOGETHER = 100  # versions decoded without a break for others, if they have fewer bytes than
BYTES = 512 << 10
BATCH = 500  # records deleted in one statement
O = TypeVar("O", bound=Object)  # noqa: E741 - as in app.machinery.base
_encode = msgspec.json.Encoder().encode


class JobRecorder:
    """Records what history has brought since the last run."""

    name = "job recorder"
    interval = timedelta(seconds=1)

    def __init__(self, records: JobRecordWriter, rows: int = ROWS) -> None:
        self._records = records
        self._rows = rows

    async def run_once(self, _: datetime) -> dict[str, int]:
        """Catch up. It tells nothing: Jobs end all the time.

        What is committed meanwhile waits for the next run: under steady writes, this one would go on in tiny transactions.
        """
        while part := await self._records.next_history(self._rows):
            rows = _Rows()
            for some in _in_steps(part.versions):
                for version in some:
                    _add(rows, version)
                await asyncio.sleep(0)
            await self._records.record(part, list(rows.jobs.values()), rows.attempts, rows.restarts)
            if part.is_last:
                break
        return {}


class RecordRetention:
    """`ttl`: since the deletion of the Job."""

    name = "record retention"
    interval = timedelta(seconds=30)

    def __init__(self, records: JobRecordWriter, ttl: timedelta, batch: int = BATCH) -> None:
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


@dataclass(frozen=True, slots=True)
class _Rows:
    """What there is to store of a part of history: of each Job, by UID, its newest version."""

    jobs: dict[str, JobRow] = field(default_factory=dict)
    attempts: list[AttemptRow] = field(default_factory=list)
    restarts: list[RestartRow] = field(default_factory=list)


def _in_steps(versions: Iterable[Version]) -> Iterator[list[Version]]:
    """Yield them in groups, each of which is decoded in one step of the event loop."""
    group: list[Version] = []
    size = 0
    for version in versions:
        group.append(version)
        size += len(version.body)
        if len(group) >= TOGETHER or size >= BYTES:
            yield group
            group, size = [], 0
    yield group


def _add(rows: _Rows, version: Version) -> None:
    if version.kind == "jobs.batch":
        job = _decode(version, Job)
        summary = summarize(job, version.deleted_at) if job else None
        if job and summary and summary.ended_at is not None:
            rows.jobs[summary.uid] = JobRow(summary, version.revision, _body(job))
    elif (pod := _decode(version, Pod)) and (uid := job_uid_of(pod)):
        rows.restarts.extend(RestartRow(pod.metadata.uid, each) for each in restarts_of(pod))
        if is_terminal(pod) or version.deleted_at:
            attempt = attempt_of(pod, version.deleted_at)
            rows.attempts.append(AttemptRow(uid, pod.metadata.namespace, job_name_of(pod), attempt))


def _body(job: Job) -> bytes:
    """Its JSON, without what only writers of the object need."""
    return _encode(replace(job, metadata=replace(job.metadata, managed_fields=())))


def _decode(version: Version, type_: type[O]) -> O | None:
    """The object; None for one that cannot be read, which must not end the record of all others."""
    try:
        return decode_stored(version.body, type_)
    except Exception as error:
        logger.error("cannot decode an object; it is not recorded", revision=version.revision, traceback_of=error)
        return None
