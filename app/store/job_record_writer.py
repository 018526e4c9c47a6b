"""Writer of job records: moves Jobs that have ended, their pods and their events from history into records, and expires those.

The recorder (`app.controllers.retention.job_recorder`) follows history from a revision that is stored beside the records and
moves in the same transaction. So nothing is missed or counted twice, whenever a process is killed and however long none has run.
"""

from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

import asyncpg
import msgspec

from app.plans.jobs.job_record import MOST_ATTEMPTS, MOST_RESTARTS, Attempt, Restart
from app.store.change_feed import decode_selector_index, encode_label
from app.store.errors import call_database
from app.store.job_records import MOST_EVENTS, JobRow, RestartRow, Version
from app.store.packing.packing import PACKED, SIZE, Contents, pack_body, unpack
from app.structured_logging import Logger

logger = Logger(__name__)
Connection = asyncpg.Connection | asyncpg.pool.PoolConnectionProxy
R = TypeVar("R")
_NEVER = datetime.min.replace(tzinfo=UTC)
MOST_BYTES = 16 << 20  # of history in one part


class History(NamedTuple):
    """A part of history: revisions in (after, up_to].

    is_last:       it reaches to what was newest when it was read.
    has_deletions: events were deleted in it, which are kept, or namespaces, whose records are deleted.
    """

    after: int
    up_to: int
    versions: Sequence[Version]
    is_last: bool
    has_deletions: bool


class AttemptRow(NamedTuple):
    """One attempt and whose it is."""

    job_uid: str
    namespace: str
    job: str
    attempt: Attempt


class Swept(NamedTuple):
    """Position of a sweep, by time and UID, and the number of rows that its last step deleted."""

    events: tuple[datetime, str]
    attempts: tuple[datetime, str]
    deleted: int = 0


# The next so many rows of history, or fewer if they are large. Revisions may leap, so a range of them says nothing.
_NEXT = f"""select coalesce((select revision from job_recorder), 0) as after,
        max(revision) filter (where is_in) as up_to,
        bool_and(is_in) and count(*) < $1 as is_last,
        bool_or(is_in and change <> 'A' and kind in ('jobs.batch', 'pods')) as has_versions,
        bool_or(is_in and change = 'D' and kind in ('events', 'namespaces')) as has_deletions
    from (
        select revision, kind, change, sum(size) over (order by revision) - size <= $2 as is_in from (
            select revision, kind, change, {SIZE.format("v")} as size from versions v
            where revision > coalesce((select revision from job_recorder), 0) order by revision limit $1
        ) next
    ) sized"""
_RESTARTED = b'"lastState":{"terminated"'  # in the stored JSON of a pod with a container that was restarted
_ENDS = (b'"type":"Complete"', b'"type":"Failed"')  # in that of a Job with a condition that ends it
_ENDED = tuple(encode_label("status.phase", phase) for phase in ("Succeeded", "Failed"))  # in the index of an ended pod
_VERSIONS = """select kind, revision, change, marks, old_marks, body, recorded_at from versions
    where revision > $1 and revision <= $2 and change <> 'A' and kind in ('jobs.batch', 'pods') order by revision"""
_ADVANCE = """insert into job_recorder (id, revision) values (1, $2)
    on conflict (id) do update set revision = excluded.revision where job_recorder.revision = $1 returning 1"""
_PUT_JOBS = """insert into job_records
        (uid, namespace, name, labels, result, created_at, started_at, ended_at, deleted_at, rerun_of, revision, body)
    select uid, namespace, name, labels::jsonb, result, created_at, started_at, ended_at, deleted_at, rerun_of, revision, body
    from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::timestamptz[],
        $8::timestamptz[], $9::timestamptz[], $10::text[], $11::bigint[], $12::bytea[])
        as r(uid, namespace, name, labels, result, created_at, started_at, ended_at, deleted_at, rerun_of, revision, body)
    on conflict (uid) do update set labels = excluded.labels, result = excluded.result, started_at = excluded.started_at,
        ended_at = excluded.ended_at, deleted_at = excluded.deleted_at, rerun_of = excluded.rerun_of,
        revision = excluded.revision, body = excluded.body"""
_PUT_ATTEMPTS = """insert into job_record_attempts (job_uid, namespace, job, pod_uid, pod, index, node, created_at, started_at,
        ended_at, phase, exit_code, reason, message, peak_memory_bytes, restart_count)
    select * from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::int[], $7::text[],
        $8::timestamptz[], $9::timestamptz[], $10::timestamptz[], $11::text[], $12::int[], $13::text[], $14::text[],
        $15::bigint[], $16::int[])
    on conflict (pod_uid) do nothing"""
_PUT_RESTARTS = """insert into job_record_restarts
        (pod_uid, container, run, started_at, ended_at, exit_code, reason, message)
    select * from unnest($1::text[], $2::text[], $3::int[], $4::timestamptz[], $5::timestamptz[], $6::int[], $7::text[],
        $8::text[])
    on conflict (pod_uid, container, run) do nothing"""
_TRIM_RESTARTS = """delete from job_record_restarts r using (
        select pod_uid, container, max(run) as last from job_record_restarts where pod_uid = any($1)
        group by pod_uid, container
    ) newest where (r.pod_uid, r.container) = (newest.pod_uid, newest.container) and r.run <= newest.last - $2"""
# Restarts go with the attempts that a statement deletes as `attempts`.
_RESTARTS = "restarts as (delete from job_record_restarts where pod_uid in (select pod_uid from attempts))"
# A pod of another namespace can claim to belong to a Job, so that attempts are those of a Job and a namespace.
_TRIM = f"""with many as (
        select job_uid, namespace from job_record_attempts where job_uid = any($1)
        group by job_uid, namespace having count(*) > $2
    ), attempts as (
        delete from job_record_attempts where pod_uid in (
            select pod_uid from (
                select pod_uid,
                    row_number() over (partition by job_uid, namespace order by created_at desc, pod_uid desc) as place
                from job_record_attempts where (job_uid, namespace) in (select * from many)
            ) ordered where place > $2
        ) returning pod_uid, job_uid, namespace
    ), {_RESTARTS}
    insert into job_record_omissions as o (job_uid, namespace, attempts)
    select job_uid, namespace, count(*) from attempts group by job_uid, namespace
    on conflict (job_uid, namespace) do update set attempts = o.attempts + excluded.attempts"""
# Events that are deleted. As long as they are objects, they are read as such.
_DELETED_EVENTS = """select namespace, revision, marks, old_marks, body from versions
    where kind = 'events' and revision > $1 and revision <= $2 and change = 'D' order by revision"""
_PUT_EVENTS = """insert into job_record_events (involved_uid, namespace, revision, bodies)
    select uid, namespace, max(revision), (array_agg(body order by revision))[greatest(count(*)::int - $5 + 1, 1):]
    from unnest($1::text[], $2::text[], $3::bigint[], $4::bytea[]) as e(uid, namespace, revision, body)
    group by uid, namespace on conflict (involved_uid, revision) do nothing returning involved_uid"""
_TRIM_EVENTS = """delete from job_record_events where (involved_uid, revision) in (
        select involved_uid, revision from (
            select involved_uid, revision, sum(cardinality(bodies)) over (
                    partition by involved_uid, namespace order by revision desc) - cardinality(bodies) as newer
            from job_record_events where involved_uid = any($1)
        ) counted where newer >= $2)"""
_FORGET = f"""with ended as (
        select name, max(revision) as revision from versions
        where kind = 'namespaces' and change = 'D' and revision > $1 and revision <= $2 group by name
    ), jobs as (
        delete from job_records r using ended e where r.namespace = e.name and r.revision < e.revision returning r.uid
    ), attempts as (
        delete from job_record_attempts where job_uid in (select uid from jobs) returning pod_uid
    ), {_RESTARTS}, omissions as (
        delete from job_record_omissions where job_uid in (select uid from jobs)
    )
    delete from job_record_events where involved_uid in (select uid from jobs union all select pod_uid from attempts)"""
# By an array, which is made once: a subquery with a lock might be run for each row.
_EXPIRE = f"""with jobs as (
        delete from job_records where uid = any(array(
            select uid from job_records where deleted_at < $1 order by deleted_at limit $2 for update skip locked
        )) returning uid
    ), attempts as (
        delete from job_record_attempts where job_uid in (select uid from jobs) returning pod_uid
    ), {_RESTARTS}, omissions as (
        delete from job_record_omissions where job_uid in (select uid from jobs)
    ), events as (
        delete from job_record_events where involved_uid in (select uid from jobs union all select pod_uid from attempts)
    )
    select count(*) from jobs"""
# Events of what has no record: of pods of no Job, most of all. Each row is looked at once: from a place on.
_SWEEP_EVENTS = """with old as (
        select recorded_at, involved_uid, revision from job_record_events
        where recorded_at < $1 and (recorded_at, involved_uid) > ($2, $3)
        order by recorded_at, involved_uid limit $4
    ), gone as (
        delete from job_record_events e using old o where (e.involved_uid, e.revision) = (o.involved_uid, o.revision)
            and not exists (select from job_records r where r.uid = e.involved_uid)
            and not exists (select from job_record_attempts a where a.pod_uid = e.involved_uid)
        returning 1
    )
    select recorded_at, involved_uid, (select count(*)::int from gone) as gone from old
    order by recorded_at desc, involved_uid desc limit 1"""
# Attempts of Jobs that are gone without a record: pods that outlived it.
_SWEEP_ATTEMPTS = f"""with old as (
        select recorded_at, pod_uid from job_record_attempts
        where recorded_at < $1 and (recorded_at, pod_uid) > ($2, $3)
        order by recorded_at, pod_uid limit $4
    ), attempts as (
        delete from job_record_attempts a using old o where a.pod_uid = o.pod_uid
            and not exists (select from job_records r where r.uid = a.job_uid)
            and not exists (select from heads h where h.kind = 'jobs.batch'
                and (h.namespace, h.name, h.uid) = (a.namespace, a.job, a.job_uid))
        returning a.pod_uid, a.job_uid
    ), {_RESTARTS}, omissions as (
        delete from job_record_omissions where job_uid in (select job_uid from attempts)
    )
    select recorded_at, pod_uid, (select count(*)::int from attempts) as gone from old
    order by recorded_at desc, pod_uid desc limit 1"""
_encode = msgspec.json.Encoder().encode
NOTHING_SWEPT = Swept((_NEVER, ""), (_NEVER, ""))
_ATTEMPT_FIELDS = (
    "pod_uid",
    "pod",
    "index",
    "node",
    "created_at",
    "started_at",
    "ended_at",
    "phase",
    "exit_code",
    "reason",
    "message",
    "peak_memory_bytes",
    "restart_count",
)


class JobRecordWriter:
    """Records of one database, for the controllers."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def next_history(self, limit: int) -> History | None:
        """Read what follows of history, at most so many rows of it and, but for one row, MOST_BYTES; None if all is recorded."""
        (found,) = await call_database(self._pool.fetch(_NEXT, limit, MOST_BYTES))
        after, up_to, is_last, has_versions, has_deletions = found
        if up_to is None:
            return None
        rows = await call_database(self._pool.fetch(_VERSIONS, after, up_to)) if has_versions else ()
        versions = [version for row in rows if (version := _version_to_record(row))]
        return History(after, up_to, versions, is_last, has_deletions)

    async def record(
        self,
        part: History,
        jobs: Sequence[JobRow],
        attempts: Sequence[AttemptRow],
        restarts: Sequence[RestartRow] = (),
    ) -> bool:
        """Store what there is to record of a part of history; False, and nothing is stored, if another process has."""
        return await call_database(self._record(part, jobs, attempts, restarts))

    async def _record(
        self, part: History, jobs: Sequence[JobRow], attempts: Sequence[AttemptRow], restarts: Sequence[RestartRow]
    ) -> bool:
        async with self._pool.acquire() as connection, connection.transaction():
            if not await connection.fetchval(_ADVANCE, part.after, part.up_to):
                return False
            await _put(connection, _PUT_JOBS, _job_columns, jobs)
            await _put(connection, _PUT_RESTARTS, _restart_columns, restarts)
            if restarts:
                await connection.execute(_TRIM_RESTARTS, list({each.pod_uid for each in restarts}), MOST_RESTARTS)
            await _put(connection, _PUT_ATTEMPTS, _attempt_columns, attempts)
            if attempts:
                await connection.execute(_TRIM, list({each.job_uid for each in attempts}), MOST_ATTEMPTS)
            if part.has_deletions:
                await _record_events(connection, part)
                await connection.execute(_FORGET, part.after, part.up_to)
        return True

    async def expire(self, before: datetime, limit: int) -> int:
        """Delete records of Jobs that were deleted before, with all that is theirs; how many records went."""
        return int(await call_database(self._pool.fetchval(_EXPIRE, before, limit)))

    async def sweep(self, before: datetime, after: Swept, limit: int) -> Swept | None:
        """Delete what was stored before and belongs to no record; where to go on, or None if there is no more.

        What belongs to one goes with it.
        """
        events = await call_database(self._pool.fetchrow(_SWEEP_EVENTS, before, *after.events, limit))
        attempts = await call_database(self._pool.fetchrow(_SWEEP_ATTEMPTS, before, *after.attempts, limit))
        if events is None and attempts is None:
            return None
        return Swept(
            (events["recorded_at"], events["involved_uid"]) if events else after.events,
            (attempts["recorded_at"], attempts["pod_uid"]) if attempts else after.attempts,
            (events["gone"] if events else 0) + (attempts["gone"] if attempts else 0),
        )


def _version_to_record(row: asyncpg.Record) -> Version | None:
    """Return a version that may have to be recorded, else None.

    Job: each version with a condition that ends it, and its deletion. Pod: the version in which its phase first is one that
    ends it, or its deletion if it had none; before that, each version with a container that was restarted.
    """
    kind, revision, change, index, old_index, stored, recorded_at = row
    index, old_index, body = _contents(index, old_index, stored)
    is_deleted = change == "D"
    if kind == "jobs.batch":
        is_wanted = is_deleted or any(each in body for each in _ENDS)
    elif is_deleted:
        is_wanted = not _has_ended(index)
    elif _has_ended(index):
        is_wanted = not _has_ended(old_index or index)
    else:
        is_wanted = _RESTARTED in body
    return Version(kind, revision, body, recorded_at if is_deleted else None) if is_wanted else None


def _contents(selector_index: str, old_selector_index: str | None, stored: bytes) -> Contents:
    """From the columns of a version that is not encrypted."""
    return unpack(stored) if stored.startswith(PACKED) else Contents(selector_index, old_selector_index, stored)


def _has_ended(selector_index: str) -> bool:
    return any(each in selector_index for each in _ENDED)


async def _record_events(connection: Connection, part: History) -> None:
    """Keep the events of Jobs and pods that were deleted in a part of history."""
    events: list[tuple[str, str, int, bytes]] = []
    for namespace, revision, *columns in await connection.fetch(_DELETED_EVENTS, part.after, part.up_to):
        index, _, body = _contents(*columns)
        fields = decode_selector_index(index).fields
        uid = fields.get("involvedObject.uid")
        if uid and fields.get("involvedObject.kind") in ("Job", "Pod"):
            events.append((uid, namespace, revision, pack_body(body, "events")))
    if not events:
        return
    told = await connection.fetch(_PUT_EVENTS, *map(list, zip(*events, strict=True)), MOST_EVENTS)
    if told:
        await connection.execute(_TRIM_EVENTS, [row["involved_uid"] for row in told], MOST_EVENTS)


async def _put(
    connection: Connection, sql: str, columns: Callable[[Sequence[R]], Iterable[list[object]]], rows: Sequence[R]
) -> None:
    """Insert the rows but for those that Postgres refuses for their values: one such must not stop the record of all others."""
    if not rows:
        return
    try:
        async with connection.transaction():
            await connection.execute(sql, *columns(rows))
    except asyncpg.DataError as error:
        if len(rows) == 1:
            logger.error("cannot record a Job or pod; leaving it out", error=error)
            return
        middle = len(rows) // 2
        await _put(connection, sql, columns, rows[:middle])
        await _put(connection, sql, columns, rows[middle:])


def _job_columns(rows: Sequence[JobRow]) -> Iterable[list[object]]:
    """In the order of `_PUT_JOBS`."""
    for name in ("uid", "namespace", "name"):
        yield [getattr(row.summary, name) for row in rows]
    yield [_encode(row.summary.labels).decode() for row in rows]
    for name in ("result", "created_at", "started_at", "ended_at", "deleted_at", "rerun_of"):
        yield [getattr(row.summary, name) for row in rows]
    yield [row.revision for row in rows]
    yield [pack_body(row.body, "jobs.batch") for row in rows]


def _attempt_columns(rows: Sequence[AttemptRow]) -> Iterable[list[object]]:
    """In the order of `_PUT_ATTEMPTS`."""
    for name in ("job_uid", "namespace", "job"):
        yield [getattr(row, name) for row in rows]
    for name in _ATTEMPT_FIELDS:
        yield [getattr(row.attempt, name) for row in rows]


def _restart_columns(rows: Sequence[RestartRow]) -> Iterable[list[object]]:
    """In the order of `_PUT_RESTARTS`."""
    yield [row.pod_uid for row in rows]
    for name in Restart.__struct_fields__:
        yield [getattr(row.restart, name) for row in rows]
