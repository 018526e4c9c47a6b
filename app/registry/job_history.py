"""Job history: the whole record of one Job, from what is stored of it, from itself and from its pods, whichever there is.

`app.api.routers.history` asks. The recorder may be a moment behind: what it has not recorded yet is read where it is.
"""

import msgspec

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod
from app.machinery.base import wire_name
from app.machinery.decode import decode_older
from app.plans.jobs.job_record import (
    MOST_ATTEMPTS,
    Attempt,
    JobRecord,
    attempt_of,
    build_record,
    newest_first,
    summarize,
)
from app.registry.registry import Registry
from app.store.job_records import MOST_EVENT_PODS, JobRow, Version


class _Meta(msgspec.Struct, rename=wire_name):
    namespace: str = ""
    creation_timestamp: str | None = None


class _EventTimes(msgspec.Struct, rename=wire_name):
    metadata: _Meta
    first_timestamp: str | None = None
    event_time: str | None = None


_times = msgspec.json.Decoder(_EventTimes)


async def read_record(registry: Registry, namespace: str, uid: str) -> JobRecord | None:
    """The record of a Job that lives or has lived in the namespace, with its events; None if there was none."""
    row = await find_job(registry, namespace, uid)
    if row is None:
        return None
    attempts = await _attempts(registry, uid)
    counts = await registry.job_records.attempt_counts([uid])
    newest = newest_first(attempts.values())
    objects = {uid: row.summary.name} | {each.pod_uid: each.pod for each in newest[:MOST_EVENT_PODS]}
    events = await registry.job_records.events(namespace, objects)
    omitted = max(0, counts[uid] - len(attempts))
    # An event can name any UID, so those of other namespaces do not count.
    told = {body: times for body in events if (times := _times.decode(body)).metadata.namespace == namespace}
    ordered = [msgspec.Raw(body) for body in sorted(told, key=lambda body: _time_of(told[body]))]
    return build_record(row.body, row.summary, newest, omitted, ordered)


async def find_job(registry: Registry, namespace: str, uid: str) -> JobRow | None:
    """A Job as it was last."""
    records = registry.job_records
    if found := await records.unrecorded(namespace, uid):
        return _row(found)
    if row := await records.get(namespace, uid):
        return row
    live = await records.live(namespace, uid)
    return _row(live) if live else None


async def find_ended(registry: Registry, namespace: str, uid: str) -> Job | None:
    """A Job that completed or failed, as it was then; None for one that was deleted before, or of which nothing is known."""
    row = await find_job(registry, namespace, uid)
    return decode_job(row.body) if row and row.summary.result in ("Complete", "Failed") else None


def _row(version: Version) -> JobRow:
    summary = summarize(decode_job(version.body), version.deleted_at)
    return JobRow(summary, version.revision, version.body)


def decode_job(body: bytes) -> Job:
    """A stored Job, also one that an older version has stored."""
    try:
        return msgspec.json.decode(body, type=Job)
    except msgspec.ValidationError:
        return decode_older(body, Job)


async def _attempts(registry: Registry, uid: str) -> dict[str, Attempt]:
    """Those that are stored, and those of pods that are not: by the pod's UID."""
    records = registry.job_records
    stored = (await records.attempts([uid], MOST_ATTEMPTS))[uid]
    bodies = await records.pods_to_record(uid, MOST_ATTEMPTS)
    pods = [attempt_of(msgspec.json.decode(body, type=Pod)) for body in bodies]
    return {each.pod_uid: each for each in (*pods, *stored)}


def _time_of(found: _EventTimes) -> str:
    """By which events are ordered: their first time, as RFC 3339 text."""
    return found.first_timestamp or found.event_time or found.metadata.creation_timestamp or ""
