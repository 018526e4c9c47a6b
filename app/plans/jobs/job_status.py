"""Job status: the conditions by which a Job ends, and all that a plan writes into its status and annotations.

Used by `job`. The outcome of a Job is an interim condition, SuccessCriteriaMet or FailureTarget; once stored it stands.
The terminal condition, Complete or Failed, repeats its reason and message when the Job's last pod has ended; so does, in the
same write, Finished, which ends `kubectl wait` for success and failure alike. What ends a Job: dependencies,
podFailurePolicy, backoffLimit, activeDeadlineSeconds, a missed heartbeat, failed indexes, successPolicy, completions, in this
order.
"""

from collections.abc import Callable
from datetime import datetime
from itertools import chain

from msgspec.structs import replace

from app.kinds.batch.job import Job, JobStatus, UncountedTerminatedPods, is_true
from app.kinds.pod.pod import Pod, is_ready
from app.machinery.base import Condition
from app.machinery.durations import after
from app.machinery.meta.conditions import with_condition
from app.plans.admission import refusals
from app.plans.jobs import (
    backoff,
    dependencies,
    heartbeat,
    index_failure,
    oom_memory,
    pod_failure_policy,
    success_policy,
)
from app.plans.jobs.backoff import Backoff
from app.plans.jobs.job_snapshot import (
    JobDecision,
    JobSnapshot,
    failure_target,
    may_run,
    new_condition,
    success_criteria_met,
)

TERMINAL = {"SuccessCriteriaMet": "Complete", "FailureTarget": "Failed"}


# --- outcome


def find_outcome(snapshot: JobSnapshot) -> Condition | None:
    """The first reason to end the Job that holds; success by count is not among them (see `find_completion`)."""
    stored = (each for each in snapshot.job.status.conditions if each.type in TERMINAL and each.status == "True")
    found = (find(snapshot) for find in _REASONS)
    return next(filter(None, chain(stored, found)), None)


def find_completion(snapshot: JobSnapshot, active: int) -> Condition | None:
    """Success by count, with so many pods active after this plan."""
    completions, succeeded = snapshot.job.spec.completions, snapshot.succeeded
    is_enough = succeeded > 0 if completions is None else succeeded >= completions
    if active or not is_enough or snapshot.dependencies.is_waiting:
        return None
    return success_criteria_met(snapshot, "CompletionsReached", "Reached expected number of succeeded pods")


def _exceeds_backoff_limit(snapshot: JobSnapshot) -> Condition | None:
    limit = snapshot.job.spec.backoff_limit
    if limit is None:
        return None
    if snapshot.failed > limit or _restarts_reach(snapshot, limit):
        return failure_target(snapshot, "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    return None


def _restarts_reach(snapshot: JobSnapshot, limit: int) -> bool:
    """Containers that restart in place use the limit up, too: when it is reached, not only when it is exceeded."""
    if snapshot.job.spec.template.spec.restart_policy != "OnFailure":
        return False
    return sum(map(_count_restarts, chain(snapshot.active_pods, snapshot.terminating_pods))) >= max(limit, 1)


def _count_restarts(pod: Pod) -> int:
    if pod.status.phase not in ("Pending", "Running"):
        return 0
    statuses = chain(pod.status.container_statuses, pod.status.init_container_statuses)
    return sum(status.restart_count for status in statuses)


def _exceeds_deadline(snapshot: JobSnapshot) -> Condition | None:
    seconds = snapshot.job.spec.active_deadline_seconds
    if seconds is None or snapshot.job.spec.suspend:
        return None
    start = started_at(snapshot.job) or snapshot.now
    if snapshot.now < after(start, seconds):
        return None
    return failure_target(snapshot, "DeadlineExceeded", "Job was active longer than specified deadline")


_REASONS: tuple[Callable[[JobSnapshot], Condition | None], ...] = (
    dependencies.find_failure,
    pod_failure_policy.find_failure,
    _exceeds_backoff_limit,
    _exceeds_deadline,
    heartbeat.find_failure,
    index_failure.find_failure,
    success_policy.find_success,
)


# --- start and deadline


def deadline_at(job: Job) -> datetime | None:
    """Return when activeDeadlineSeconds ends the Job. Never, while it is suspended."""
    seconds, start = job.spec.active_deadline_seconds, started_at(job)
    return None if seconds is None or start is None or job.spec.suspend else after(start, seconds)


def started_at(job: Job) -> datetime | None:
    """None for a Job that has not started, or that is resumed now: it starts anew."""
    return None if is_resuming(job) else job.status.start_time


def is_resuming(job: Job) -> bool:
    return not job.spec.suspend and is_true(job, "Suspended")


# --- status


def build_job(snapshot: JobSnapshot, decision: JobDecision) -> Job:
    """The Job with the status and annotations that the plan writes; the same object if nothing changes."""
    job = snapshot.job
    annotations = _build_annotations(snapshot, decision)
    status = build_status(snapshot, decision)
    if status == job.status and annotations is job.metadata.annotations:
        return job
    return replace(job, metadata=replace(job.metadata, annotations=annotations), status=status)


def _build_annotations(snapshot: JobSnapshot, decision: JobDecision) -> dict[str, str]:
    without_backoff = decision.is_final or index_failure.has_limit_per_index(
        snapshot.job
    )  # an index's own is in its pods
    annotations = snapshot.job.metadata.annotations
    annotations = backoff.annotate(annotations, Backoff() if without_backoff else snapshot.backoff)
    annotations = refusals.annotate(annotations, decision.refusal)
    annotations = oom_memory.annotate(annotations, snapshot.memory)
    annotations = dependencies.annotate(annotations, snapshot.dependencies)
    return index_failure.annotate(annotations, index_failure.backing_off(snapshot, decision))


def build_status(snapshot: JobSnapshot, decision: JobDecision) -> JobStatus:
    job = snapshot.job
    has_succeeded = decision.outcome is not None and decision.outcome.type == "SuccessCriteriaMet"
    has_limit_per_index = index_failure.has_limit_per_index(job)
    return replace(
        job.status,
        conditions=_build_conditions(snapshot, decision),
        start_time=_start_time(snapshot, decision),
        completion_time=snapshot.now if decision.is_final and has_succeeded else job.status.completion_time,
        active=decision.active,
        ready=sum(map(is_ready, snapshot.active_pods)) - sum(map(is_ready, decision.delete)),
        terminating=decision.terminating,
        succeeded=snapshot.succeeded,
        failed=decision.failed,
        completed_indexes=str(snapshot.completed_indexes),
        failed_indexes=str(snapshot.failed_indexes) if has_limit_per_index else None,
        uncounted_terminated_pods=UncountedTerminatedPods(),  # always empty: a pod is counted in one write
    )


def is_ongoing(snapshot: JobSnapshot, decision: JobDecision) -> bool:
    """The Job has no outcome, and is not deleted."""
    return decision.outcome is None and snapshot.job.metadata.deletion_timestamp is None


def _start_time(snapshot: JobSnapshot, decision: JobDecision) -> datetime | None:
    """Suspending clears it, resuming sets it anew. A Job that ends before it ever ran starts as it ends."""
    job, now = snapshot.job, snapshot.now
    if is_ongoing(snapshot, decision):
        return (started_at(job) or now) if may_run(snapshot) else None
    return job.status.start_time or (now if decision.is_final or may_run(snapshot) else None)


def _build_conditions(snapshot: JobSnapshot, decision: JobDecision) -> tuple[Condition, ...]:
    """First the interim condition, then Finished and the terminal one. Suspended changes only while there is no outcome.

    The terminal condition stays the last one, as clients look for it there.
    """
    present, outcome = snapshot.job.status.conditions, decision.outcome
    if is_ongoing(snapshot, decision):
        return dependencies.update_condition(snapshot, _build_suspension(snapshot.job, snapshot.now))
    if outcome is None:
        return present
    if outcome not in present:
        present = with_condition(present, outcome)
    for type_ in ("Finished", TERMINAL[outcome.type]) if decision.is_final else ():
        present = with_condition(present, _repeat_outcome(outcome, type_, snapshot.now))
    return present


def _repeat_outcome(outcome: Condition, type_: str, now: datetime) -> Condition:
    return replace(outcome, type=type_, last_probe_time=now, last_transition_time=now)


def _build_suspension(job: Job, now: datetime) -> tuple[Condition, ...]:
    """A Job that never was suspended does not get the condition Suspended."""
    present = job.status.conditions
    if bool(job.spec.suspend) == is_true(job, "Suspended"):
        return present
    if job.spec.suspend:
        return with_condition(present, new_condition("Suspended", "JobSuspended", "Job suspended", now))
    return with_condition(present, new_condition("Suspended", "JobResumed", "Job resumed", now, status="False"))
