"""Finish conditions: whether a Job is complete or failed, and why.

Used by `app.plans.jobs.job`. The outcome is the interim condition, SuccessCriteriaMet or FailureTarget; once stored it
stands. The terminal condition repeats its reason and message when the Job's last pod has ended.
"""

from collections.abc import Callable
from datetime import datetime
from itertools import chain

from msgspec.structs import replace

from app.kinds.batch.job import Job, is_true
from app.kinds.pod.pod import Pod
from app.machinery.base import Condition
from app.machinery.durations import after
from app.plans.jobs.counting import Situation
from app.plans.jobs.pod_failure_policy import fails_job
from app.plans.jobs.success_policy import matched

TERMINAL = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}


def outcome(situation: Situation) -> Condition | None:
    """The first of the reasons to end that holds; success by count is not among them (see `completion`)."""
    stored = (each for each in situation.job.status.conditions if each.type in TERMINAL and each.status == "True")
    found = (judge(situation) for judge in _JUDGES)
    return next(filter(None, chain(stored, found)), None)


def deadline_at(job: Job) -> datetime | None:
    """When the Job has run for too long. Never, while it is suspended."""
    seconds, start = job.spec.active_deadline_seconds, started_at(job)
    return None if seconds is None or start is None or job.spec.suspend else after(start, seconds)


def is_resuming(job: Job) -> bool:
    return not job.spec.suspend and is_true(job, "Suspended")


def started_at(job: Job) -> datetime | None:
    """A Job that is resumed starts anew."""
    return None if is_resuming(job) else job.status.start_time


def completion(situation: Situation, active: int) -> Condition | None:
    """Success by count, with so many pods active after this plan."""
    wanted, succeeded = situation.job.spec.completions, situation.tally.succeeded
    enough = succeeded > 0 if wanted is None else succeeded >= wanted
    if active or not enough:
        return None
    return _succeeding(situation, "CompletionsReached", "Reached expected number of succeeded pods")


def terminal(outcome: Condition, now: datetime) -> Condition:
    return replace(outcome, type=TERMINAL[outcome.type], last_probe_time=now, last_transition_time=now)


def _failed_by_policy(situation: Situation) -> Condition | None:
    message = fails_job(situation.job, situation.seen.failed)
    return _failing(situation, "PodFailurePolicy", message) if message else None


def _failed_too_often(situation: Situation) -> Condition | None:
    limit = situation.job.spec.backoff_limit
    if limit is None:
        return None
    if situation.tally.failed > limit or _restarted_too_often(situation, limit):
        return _failing(situation, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    return None


def _restarted_too_often(situation: Situation, limit: int) -> bool:
    """Containers that restart in place use the limit up, too: with it reached, not only when it is exceeded."""
    if situation.job.spec.template.spec.restart_policy != "OnFailure":
        return False
    return sum(map(_restarts, chain(situation.seen.active, situation.seen.terminating))) >= max(limit, 1)


def _restarts(pod: Pod) -> int:
    if pod.status.phase not in ("Pending", "Running"):
        return 0
    statuses = chain(pod.status.container_statuses, pod.status.init_container_statuses)
    return sum(status.restart_count for status in statuses)


def _overdue(situation: Situation) -> Condition | None:
    seconds = situation.job.spec.active_deadline_seconds
    if seconds is None or situation.job.spec.suspend:
        return None
    start = started_at(situation.job) or situation.now
    if situation.now < after(start, seconds):
        return None
    return _failing(situation, "DeadlineExceeded", "Job was active longer than specified deadline")


def _failed_by_indexes(situation: Situation) -> Condition | None:
    spec, tally = situation.job.spec, situation.tally
    lost = len(tally.failed_indexes)
    if spec.max_failed_indexes is not None and lost > spec.max_failed_indexes:
        message = "Job has exceeded the specified maximal number of failed indexes"
        return _failing(situation, "MaxFailedIndexesExceeded", message)
    if lost and lost + tally.succeeded >= (spec.completions or 0):
        return _failing(situation, "FailedIndexes", "Job has failed indexes")
    return None


def _succeeded_by_policy(situation: Situation) -> Condition | None:
    message = matched(situation.job, situation.tally.completed)
    return _succeeding(situation, "SuccessPolicy", message) if message else None


_JUDGES: tuple[Callable[[Situation], Condition | None], ...] = (
    _failed_by_policy,
    _failed_too_often,
    _overdue,
    _failed_by_indexes,
    _succeeded_by_policy,
)


def _failing(situation: Situation, reason: str, message: str) -> Condition:
    return observed("FailureTarget", reason, message, situation.now)


def _succeeding(situation: Situation, reason: str, message: str) -> Condition:
    return observed("SuccessCriteriaMet", reason, message, situation.now)


def observed(type_: str, reason: str, message: str, now: datetime, status: str = "True") -> Condition:
    return Condition(
        type=type_,
        status=status,
        last_probe_time=now,
        last_transition_time=now,
        reason=reason,
        message=message,
    )
