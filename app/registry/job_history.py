"""Job history: the whole record of one Job, from what is stored of it, from itself and from its pods, whichever there is.

`app.api.routers.history` asks. The recorder may be a moment behind: what it has not recorded yet is read where it is.
"""

import asyncio
from collections.abc import Iterable
from uuid import UUID

import msgspec
from msgspec.structs import replace

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod
from app.machinery.base import wire_name
from app.machinery.decoding.decode import decode_stored
from app.plans.jobs.job_record import (
    MOST_ATTEMPTS,
    Attempt,
    JobRecord,
    Restart,
    attempt_of,
    build_record,
    newest_first,
    parse_output,
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


_STEP = 50  # pods decoded, or messages parsed, without a break for others
_MOST_RESTARTS = 1_000  # of one record
_times = msgspec.json.Decoder(_EventTimes)


async def read_record(registry: Registry, namespace: str, uid_or_name: str) -> JobRecord | None:
    """The record of a Job that lives or has lived in the namespace, with its events; None if there was none."""
    row = await find_job(registry, namespace, uid_or_name)
    if row is None:
        return None
    records, uid = registry.job_records, row.summary.uid
    job = {uid: namespace}
    stored = (await records.attempts(job, MOST_ATTEMPTS))[uid]
    count = (await records.attempt_counts(job))[uid]
    pods = await _unrecorded_attempts(registry, namespace, uid)
    attempts = {each.pod_uid: each for each in (*pods, *stored)}
    newest = newest_first(attempts.values())[:MOST_ATTEMPTS]
    omitted = max(0, count - len(stored)) + len(attempts) - len(newest)
    objects = {uid: row.summary.name} | {each.pod_uid: each.pod for each in newest[:MOST_EVENT_PODS]}
    events = await records.events(namespace, objects)
    told = {body: _times.decode(body) for body in events}
    ordered = [msgspec.Raw(body) for body in sorted(told, key=lambda body: _time_of(told[body]))]
    whole = await with_outputs(await _with_restarts(registry, newest))
    return build_record(row.body, row.summary, whole, omitted, ordered)


async def find_job(registry: Registry, namespace: str, uid_or_name: str) -> JobRow | None:
    """A Job as it was last. A UID counts before a name that looks like one."""
    found = await _find_by_uid(registry, namespace, uid_or_name) if _is_uid(uid_or_name) else None
    return found or await _find_by_name(registry, namespace, uid_or_name)


async def _find_by_uid(registry: Registry, namespace: str, uid: str) -> JobRow | None:
    records = registry.job_records
    if found := await records.unrecorded(namespace, "uid", uid):
        return _row(found)
    if row := await records.get(namespace, "uid", uid):
        return row
    live = await records.live(namespace, "uid", uid)
    return _row(live) if live else None


async def _find_by_name(registry: Registry, namespace: str, name: str) -> JobRow | None:
    """Of several Jobs of one name, the newest."""
    records = registry.job_records
    newest = await records.unrecorded(namespace, "name", name) or await records.live(namespace, "name", name)
    return _row(newest) if newest else await records.get(namespace, "name", name)


def _is_uid(text: str) -> bool:
    try:
        return str(UUID(text)) == text
    except ValueError:
        return False


async def find_ended(registry: Registry, namespace: str, uid: str) -> Job | None:
    """A Job that completed or failed, as it was then; None for one that was deleted before, or of which nothing is known."""
    row = await _find_by_uid(registry, namespace, uid)
    return decode_stored(row.body, Job) if row and row.summary.result in ("Complete", "Failed") else None


async def with_outputs(attempts: Iterable[Attempt]) -> list[Attempt]:
    """The attempts with their termination messages as JSON."""
    found: list[Attempt] = []
    for number, each in enumerate(attempts, 1):
        found.append(replace(each, output=parse_output(each.message)))
        if not number % _STEP:
            await asyncio.sleep(0)
    return found


async def _with_restarts(registry: Registry, attempts: Iterable[Attempt]) -> list[Attempt]:
    restarted = [each.pod_uid for each in attempts if each.restart_count]
    found: dict[str, list[Restart]] = {}
    for pod_uid, restart in await registry.job_records.restarts(restarted, _MOST_RESTARTS) if restarted else ():
        found.setdefault(pod_uid, []).append(restart)
    return [replace(each, restarts=found.get(each.pod_uid, [])) for each in attempts]


def _row(version: Version) -> JobRow:
    summary = summarize(decode_stored(version.body, Job), version.deleted_at)
    return JobRow(summary, version.revision, version.body)


async def _unrecorded_attempts(registry: Registry, namespace: str, uid: str) -> list[Attempt]:
    """Those of pods that are there and not recorded."""
    found: list[Attempt] = []
    for number, body in enumerate(await registry.job_records.pods_to_record(namespace, uid, MOST_ATTEMPTS), 1):
        found.append(attempt_of(decode_stored(body, Pod)))
        if not number % _STEP:
            await asyncio.sleep(0)
    return found


def _time_of(found: _EventTimes) -> str:
    """By which events are ordered: their first time, as RFC 3339 text."""
    return found.first_timestamp or found.event_time or found.metadata.creation_timestamp or ""
