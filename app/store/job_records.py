"""Job records: what stays of Jobs that have ended, of their pods and of their events. The API reads them here.

The controllers write them (`app.store.job_record_writer`).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal, NamedTuple

import asyncpg
import msgspec

from app.plans.jobs.job_record import Attempt, JobSummary, Restart
from app.store.errors import call_database
from app.store.packing.packing import BODY_SIZE, unpack_body

MOST_EVENTS = 500  # of one record, and of one object in one namespace
MOST_EVENT_PODS = 100  # pods whose events a record shows: the newest
By = Literal["uid", "name"]
"""What a Job is looked for by."""


class Version(NamedTuple):
    """A version that may have to be recorded; `deleted_at` is set if it was deleted with it."""

    kind: str
    revision: int
    body: bytes
    deleted_at: datetime | None


class RestartRow(NamedTuple):
    """A run of a container before its last one, and of which pod."""

    pod_uid: str
    restart: Restart


class ListedJob(NamedTuple):
    """A Job that has ended, as a list finds it; `size` is that of its JSON."""

    summary: JobSummary
    size: int


class JobRow(NamedTuple):
    """A Job that has ended: what it is found by, and its JSON."""

    summary: JobSummary
    revision: int
    body: bytes


class Place(NamedTuple):
    """Position of a page's last row."""

    ended_at: datetime
    uid: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordQuery:
    """Filter of a list; empty strings and None stand for all."""

    namespace: str = ""
    name: str = ""
    result: str = ""
    after: Place | None = None
    limit: int = 100


_TERMINAL = "in ('Succeeded', 'Failed')"


def _field(marks: str, name: str) -> str:
    """SQL: a selectable field, empty if there is none."""
    return f"coalesce({marks}::json #>> '{{fields,{name}}}', '')"


_SUMMARY = (
    "r.uid, r.namespace, r.name, r.labels, r.result, r.created_at, r.started_at, r.ended_at, r.deleted_at, r.rerun_of"
)
_GET = f"""select {_SUMMARY}, r.revision, r.body from job_records r where r.namespace = $1 and r.{{0}} = $2
    order by r.ended_at desc limit 1"""
_BODIES = "select uid, body from job_records where uid = any($1)"
# A Job that has not ended, or whose end is not recorded yet: its newest version.
_UNRECORDED = """select revision, body, case change when 'D' then recorded_at end as deleted_at from versions
    where kind = 'jobs.batch' and revision > coalesce((select revision from job_recorder), 0)
        and {0} = $2 and namespace = $1 order by revision desc limit 1"""
_LIVE = """select revision, body, null::timestamptz as deleted_at from heads h join versions s using (revision)
    where h.kind = 'jobs.batch' and h.namespace = $1 and h.{0} = $2"""
_ATTEMPTS = """select j.uid as job_uid, a.* from unnest($1::text[], $2::text[]) as j(uid, namespace) cross join lateral (
        select pod, pod_uid, index, node, created_at, started_at, ended_at, phase, exit_code, reason, message,
            peak_memory_bytes, restart_count
        from job_record_attempts where job_uid = j.uid and namespace = j.namespace
        order by created_at desc, pod_uid desc limit $3
    ) a"""
_COUNTS = """select j.uid,
        (select count(*) from job_record_attempts a where a.job_uid = j.uid and a.namespace = j.namespace) + coalesce(
            (select attempts from job_record_omissions o where o.job_uid = j.uid and o.namespace = j.namespace), 0
        ) as attempts
    from unnest($1::text[], $2::text[]) as j(uid, namespace)"""
_OF_PODS = """select pod_uid, container, run, started_at, ended_at, exit_code, reason, message from job_record_restarts
    where pod_uid = any($1) order by ended_at desc nulls last, pod_uid, container, run desc limit $2"""
_LIVE_PODS = f"""select s.body from heads h join versions s using (revision)
    where h.owner = $1 and h.kind = 'pods' and h.namespace = $2 and (
        {_field("h.marks", "status.phase")} not {_TERMINAL}
        or h.revision > coalesce((select revision from job_recorder), 0)
    ) limit $3"""
_KEPT_EVENTS = """select body from job_record_events, unnest(bodies) with ordinality as b(body, place)
    where involved_uid = any($1) and namespace = $2 order by revision desc, place desc limit $3"""
# An event is named after its object: the primary key leads to those of a few names.
_LIVE_EVENTS = f"""select s.body from unnest($2::text[]) as n(name) cross join lateral (
        select revision, marks from heads h where h.kind = 'events' and h.namespace = $1
            and h.name >= n.name || '.' and h.name < n.name || '/' limit $4
    ) h join versions s using (revision)
    where {_field("h.marks", "involvedObject.uid")} = any($3) order by h.revision desc limit $4"""


class JobRecords:
    """Records of one database, for the API."""

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def page(self, query: RecordQuery) -> Sequence[ListedJob]:
        """Jobs that have ended, those that ended last first."""
        sql, values = _page(query)
        rows = map(dict, await call_database(self._pool.fetch(sql, *values)))
        return [ListedJob(size=row.pop("size"), summary=_summary(row)) for row in rows]

    async def bodies(self, uids: Sequence[str]) -> Mapping[str, bytes]:
        """The JSON of Jobs that have a record, by UID."""
        return {row["uid"]: unpack_body(row["body"]) for row in await call_database(self._pool.fetch(_BODIES, uids))}

    async def get(self, namespace: str, by: By, value: str) -> JobRow | None:
        """Return the record of a Job; of several of one name that of the newest."""
        row = await call_database(self._pool.fetchrow(_GET.format(by), namespace, value))
        if row is None:
            return None
        values = dict(row)
        revision, body = values.pop("revision"), values.pop("body")
        return JobRow(_summary(values), revision, unpack_body(body))

    async def unrecorded(self, namespace: str, by: By, value: str) -> Version | None:
        """The newest version of a Job that history has and the records have not."""
        row = await call_database(self._pool.fetchrow(_UNRECORDED.format(by), namespace, value))
        return _job_version(row)

    async def live(self, namespace: str, by: By, value: str) -> Version | None:
        """A Job that is there. No index helps to find one by its UID."""
        row = await call_database(self._pool.fetchrow(_LIVE.format(by), namespace, value))
        return _job_version(row)

    async def attempts(self, jobs: Mapping[str, str], limit: int) -> Mapping[str, list[Attempt]]:
        """The newest attempts of each of these Jobs, which are given by UID and namespace; newest first."""
        found: dict[str, list[Attempt]] = {uid: [] for uid in jobs}
        for row in await call_database(self._pool.fetch(_ATTEMPTS, list(jobs), list(jobs.values()), limit)):
            values = dict(row)
            found[values.pop("job_uid")].append(Attempt(**values))
        return found

    async def attempt_counts(self, jobs: Mapping[str, str]) -> Mapping[str, int]:
        """Count all attempts that these Jobs have had, with those that are not kept."""
        rows = await call_database(self._pool.fetch(_COUNTS, list(jobs), list(jobs.values())))
        return {row["uid"]: row["attempts"] for row in rows}

    async def restarts(self, pods: Sequence[str], limit: int) -> Sequence[RestartRow]:
        """The newest restarts of containers in these pods, which are given by UID; newest first."""
        rows = map(dict, await call_database(self._pool.fetch(_OF_PODS, pods, limit)))
        return [RestartRow(row.pop("pod_uid"), Restart(**row)) for row in rows]

    async def pods_to_record(self, namespace: str, uid: str, limit: int) -> Sequence[bytes]:
        """The pods of a Job that are still there and have no attempt stored yet."""
        rows = await call_database(self._pool.fetch(_LIVE_PODS, uid, namespace, limit))
        return [unpack_body(row["body"]) for row in rows]

    async def events(self, namespace: str, objects: Mapping[str, str]) -> Sequence[bytes]:
        """The events of objects, by UID and name, oldest first: those that are no longer objects, then those that are."""
        uids, names = list(objects), sorted(set(objects.values()))
        kept = await call_database(self._pool.fetch(_KEPT_EVENTS, uids, namespace, MOST_EVENTS))
        live = await call_database(self._pool.fetch(_LIVE_EVENTS, namespace, names, uids, MOST_EVENTS))
        return [unpack_body(row["body"]) for row in reversed((*live, *kept))]


def _job_version(row: asyncpg.Record | None) -> Version | None:
    if row is None:
        return None
    revision, stored, deleted_at = row
    return Version("jobs.batch", revision, unpack_body(stored), deleted_at)


def _page(query: RecordQuery) -> tuple[str, list[object]]:
    """Only the conditions that there are, so that the planner finds the index."""
    values: list[object] = [query.limit]
    where = ["true"]
    for column in ("namespace", "name", "result"):
        if value := getattr(query, column):
            values.append(value)
            where.append(f"r.{column} = ${len(values)}")
    if query.after:
        values += query.after
        where.append(f"(r.ended_at, r.uid) < (${len(values) - 1}, ${len(values)})")
    columns = f"select {_SUMMARY}, {BODY_SIZE.format('r.body')} as size from job_records r"
    return f"{columns} where {' and '.join(where)} order by r.ended_at desc, r.uid desc limit $1", values


def _summary(values: dict[str, Any]) -> JobSummary:
    return JobSummary(labels=msgspec.json.decode(values.pop("labels")), **values)
