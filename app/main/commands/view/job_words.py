"""The state of a Job in words: `attempt 3 of 7 since 14:02:10, because exit code 1`. Used by every command; pure.

The page says the same words (`ui/`): a change here is a change there. Callers pass the Job, its attempts, the time, and the
time zone of the reader. Without attempts the words follow from the Job's status alone.
"""

import re
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta, tzinfo
from typing import NamedTuple

from app.kinds.batch.job import Job, condition, is_indexed
from app.kinds.batch.job_annotations import dependencies
from app.machinery.base import Condition
from app.machinery.durations import human_duration
from app.machinery.quantity import parse
from app.main.commands.view.attempts import FAILED, PENDING, RUNNING, Attempt, in_order, last_failure
from app.plans.jobs import backoff

DEPENDENCIES_MET = "DependenciesMet"
COMPLETE, SUSPENDED, DELETED = "Complete", "Suspended", "Deleted"
_ENDINGS = {
    "DeadlineExceeded": "its time of {limit} was over",
    "MaxFailedIndexesExceeded": "more indexes failed than it allows",
    "FailedIndexes": "indexes {indexes} failed",
}
_OF_ATTEMPTS = ("BackoffLimitExceeded", "FailedIndexes", "MaxFailedIndexesExceeded", "PodFailurePolicy")
_WAITS = {
    "ContainerCreating": "its container is being created",
    "PodInitializing": "its init containers run",
    "ErrImagePull": "its image cannot be pulled",
    "ImagePullBackOff": "its image cannot be pulled; it is tried again",
    "CrashLoopBackOff": "its container ended and is started again after a pause",
    "SchedulingGated": "scheduling gates hold it",
}
_SHORT_OF = re.compile(r"Insufficient ([a-z0-9./-]*[a-z0-9])")
_PREEMPTION = re.compile(r" preemption: .*?(?= Fits if |$)")  # which few readers ask for
_HINT = re.compile(r"\. Fits if ")
_UNITS = {"cpu": ("free CPU", "free CPUs"), "memory": ("of free memory",) * 2}


class Reader(NamedTuple):
    """Time and time zone in which the words are read."""

    now: datetime
    zone: tzinfo | None = None

    def time_of(self, moment: datetime) -> str:
        """Format a time as 14:02:10, with the date if it is not of today."""
        local, today = moment.astimezone(self.zone), self.now.astimezone(self.zone).date()
        return local.strftime("%H:%M:%S" if local.date() == today else "%Y-%m-%d %H:%M:%S")


def state(job: Job) -> str:
    """Return one word: Pending, Running, Suspended, Complete, Failed or Deleted (it is being deleted)."""
    for type_ in (COMPLETE, FAILED):
        if _is_true(condition(job, type_)):
            return type_
    if job.metadata.deletion_timestamp:
        return DELETED
    if job.spec.suspend:
        return SUSPENDED
    return RUNNING if job.status.ready or (job.status.active and job.status.ready is None) else PENDING


def is_over(job: Job) -> bool:
    return state(job) in (COMPLETE, FAILED)


def describe(job: Job, attempts: Sequence[Attempt], reader: Reader) -> str:
    """Return the state of a Job in words, without its name."""
    match state(job):
        case "Complete":
            return f"complete{_took(job)}"
        case "Failed":
            return f"failed{_took(job)}: {describe_failure(job, attempts)}"
        case "Deleted":
            return "is being deleted"
        case "Suspended":
            return "suspended"
    unmet = condition(job, DEPENDENCIES_MET)
    if unmet and unmet.status == "False":
        return f"pending: {unmet.message.removeprefix('Job ')}"
    return _describe_many(job, attempts) if has_many(job) else _describe_one(job, attempts, reader)


def has_many(job: Job) -> bool:
    """Return whether more than one pod may succeed or run at once: then counts are told, not attempts."""
    return (job.spec.completions or 1) > 1 or (job.spec.parallelism or 1) > 1 or is_indexed(job)


def describe_done(job: Job) -> str:
    """Return how much is done: `3/100`, or `3` where nothing says how many there will be."""
    wanted = job.spec.completions
    return f"{job.status.succeeded}/{wanted}" if wanted is not None else str(job.status.succeeded)


def describe_after(job: Job) -> str:
    """Return which Jobs it starts after: `prepare to complete and check to end`; empty if none."""
    ends = {"ok": "complete", "failed": "fail", "any": "end"}
    return " and ".join(f"{name} to {ends[result]}" for name, result in dependencies(job.metadata))


def _describe_one(job: Job, attempts: Sequence[Attempt], reader: Reader) -> str:
    """Describe a Job of one pod at a time, by the attempt that is under way."""
    ordered = in_order(attempts)
    under_way = next((each for each in reversed(ordered) if each.phase in (PENDING, RUNNING)), None)
    failed = last_failure(ordered)
    number = job.status.failed + 1
    because = f", because {describe_exit(failed)}" if failed else ""
    if under_way is None:
        return _describe_pause(job, number, because, reader)
    if under_way.phase == RUNNING:
        since = under_way.started_at or under_way.created_at
        at = f" since {reader.time_of(since)}" if since else ""
        return f"attempt {number} of {attempts_allowed(job)}{at}{because}" if failed else f"running{at}"
    return f"pending: {describe_wait(job, under_way)}"


def _describe_pause(job: Job, number: int, because: str, reader: Reader) -> str:
    if job.status.active:
        word = "running" if job.status.ready else "pending"
        return f"{word}, attempt {number} of {attempts_allowed(job)}" if job.status.failed else word
    if job.status.failed:
        retry_at = backoff.read(job, reader.now).retry_at
        at = f" at {reader.time_of(retry_at)}" if retry_at and retry_at > reader.now else " is about to start"
        return f"attempt {number} of {attempts_allowed(job)}{at}{because}"
    return "pending: its pod is being created"


def _describe_many(job: Job, attempts: Sequence[Attempt]) -> str:
    """Describe a Job of many pods, by counts; and why a pod waits, if none runs."""
    phases = Counter(each.phase for each in attempts)
    running = phases[RUNNING] if attempts else job.status.ready or 0
    pending = phases[PENDING] if attempts else max(job.status.active - running, 0)
    counts = [
        f"{describe_done(job).replace('/', ' of ')} done",
        f"{running} running" if running else "",
        f"{pending} pending" if pending else "",
        f"{job.status.failed} failed" if job.status.failed else "",
    ]
    if running:
        return ", ".join(filter(None, counts))
    waiting = next((each for each in in_order(attempts) if each.phase == PENDING and each.reason), None)
    return ", ".join(filter(None, counts)) + (f": {describe_wait(job, waiting)}" if waiting else "")


def describe_wait(job: Job, attempt: Attempt) -> str:
    """Return why an attempt has not started: `waits for 2 free CPUs: 0/1 nodes are available: ...`."""
    message = " ".join((attempt.message or "").split())
    if attempt.reason in _WAITS:
        return f"{_WAITS[attempt.reason]}: {message}" if message else _WAITS[attempt.reason]
    if attempt.reason == "Unschedulable":
        message = _HINT.sub("; fits if ", _PREEMPTION.sub("", message)).rstrip(".")
        short = sorted(set(_SHORT_OF.findall(message)))
        wanted = " and ".join(_describe_amount(job, resource) for resource in short)
        return f"waits for {wanted}: {message}" if wanted else f"waits for a node: {message}"
    if attempt.reason:
        return f"{attempt.reason}: {message}" if message else attempt.reason
    return "its pod is being started" if attempt.node else "waits for a node"


def _describe_amount(job: Job, resource: str) -> str:
    """Return how much of a resource one pod of the Job asks for: `2 free CPUs`, `4Gi of free memory`, `1 free nvidia.com/gpu`."""
    asked = [
        (each.resources.requests or {}).get(resource) or (each.resources.limits or {}).get(resource)
        for each in job.spec.template.spec.containers
        if each.resources
    ]
    amounts = [each for each in asked if each]
    one, many = _UNITS.get(resource, (f"free {resource}",) * 2)
    if not amounts:
        return many
    if len(amounts) == 1 and resource == "memory":
        return f"{amounts[0]} {many}"
    total = sum(parse(each) for each in amounts)
    return f"{float(total):g} {one if total == 1 else many}"


def attempts_allowed(job: Job) -> int:
    """Return how many attempts the Job, or each of its indexes, may make."""
    per_index = job.spec.backoff_limit_per_index
    limit = per_index if per_index is not None else job.spec.backoff_limit
    return (6 if limit is None else limit) + 1


def describe_exit(attempt: Attempt) -> str:
    """Return how an attempt failed: `exit code 3`, `it ran out of memory (exit code 137)`, `Evicted: ...`."""
    code = f"exit code {attempt.exit_code}" if attempt.exit_code is not None else ""
    if attempt.reason == "OOMKilled":
        return f"it ran out of memory ({code or 'OOMKilled'})"
    if attempt.reason and attempt.reason not in ("Error", "Completed"):
        message = " ".join((attempt.message or "").split())
        return (
            f"{attempt.reason}: {message}"
            if message
            else " ".join(filter(None, (attempt.reason, code and f"({code})")))
        )
    return code or "its pod failed"


def describe_failure(job: Job, attempts: Sequence[Attempt]) -> str:
    """Return why a Job has failed: `exit code 3 in attempt 7 of 7`."""
    failed = condition(job, FAILED)
    reason = failed.reason if failed else ""
    text = _ENDINGS.get(reason, "")
    if text:
        limit = human_duration(timedelta(seconds=job.spec.active_deadline_seconds or 0))
        return text.format(limit=limit, indexes=job.status.failed_indexes or "of it")
    if reason not in ("", "BackoffLimitExceeded"):
        return (failed.message if failed else "") or reason
    last, allowed = last_failure(attempts), attempts_allowed(job)
    if last is None:
        return f"{job.status.failed} of {max(job.status.failed, allowed)} attempts failed"
    if has_many(job):
        return f"{job.status.failed} pods failed, the last one by {describe_exit(last)}"
    count = max(job.status.failed, 1)
    return f"{describe_exit(last)} in attempt {count} of {max(count, allowed)}"


def _took(job: Job) -> str:
    end, start = ended_at(job), job.status.start_time
    return f" after {human_duration(end - start)}" if end and start else ""


def ended_at(job: Job) -> datetime | None:
    """Return when the Job became Complete or Failed."""
    failed = condition(job, FAILED)
    return job.status.completion_time or (failed.last_transition_time if failed and _is_true(failed) else None)


def _is_true(found: Condition | None) -> bool:
    return found is not None and found.status == "True"


def exit_code(job: Job | None, attempts: Sequence[Attempt]) -> int:
    """Return the code that a command ends with: 0 if Complete; if its attempts made it fail, that of the last; else 1."""
    if job is not None and state(job) == COMPLETE:
        return 0
    failed = condition(job, FAILED) if job is not None else None
    last = last_failure(attempts) if failed and failed.reason in _OF_ATTEMPTS else None
    return (last.exit_code if last else None) or 1
