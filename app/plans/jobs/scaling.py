"""Scaling of pods: which pods of a Job to create and which to delete, and whether the new ones are admitted.

Used by `job`. A plan deletes pods or creates pods, never both; and at most `MOST_PODS`, so that a Job of many pods is many
short write sets. What a new pod looks like is `pod_template`.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from app.kinds.batch.job import Job, is_indexed
from app.kinds.pod.pod import Pod, condition, is_ready
from app.plans.admission import created_pods
from app.plans.admission.refusals import NONE, Refusal
from app.plans.jobs.index_failure import failure_annotations, has_limit_per_index, retry_at
from app.plans.jobs.indexes import has_valid_index, have_distinct_indexes, index_of, pending_indexes
from app.plans.jobs.job_snapshot import JobDecision, JobSnapshot, may_run, only_replaces_failed_pods
from app.plans.jobs.oom_memory import memory_after, with_memory
from app.plans.jobs.pod_template import common_pod, pod_of, pod_of_index
from app.plans.jobs.workloads import join_group
from app.plans.plan import Names, earliest

MOST_PODS = 500


def scale(snapshot: JobSnapshot, names: Names) -> JobDecision:
    """Pods to create or delete, towards as many active pods as are wanted. None, if the Job is being deleted."""
    job, active = snapshot.job, snapshot.active_pods
    if job.metadata.deletion_timestamp:
        return JobDecision()
    if not may_run(snapshot):
        return delete_all(snapshot)
    wanted = wanted_pods(snapshot)
    surplus = surplus_pods(job, active, len(active) - wanted)
    if surplus:
        return _delete_pods(surplus, snapshot.now)
    terminating = len(snapshot.terminating_pods) if only_replaces_failed_pods(job) else 0
    decision = create_pods(snapshot, wanted - len(active) - terminating, names)
    return admit_pods(snapshot, replace(decision, create=join_group(decision.create, snapshot.gang)))


def wanted_pods(snapshot: JobSnapshot) -> int:
    """Return how many pods should be active. After a work queue's first success no more are created, and the others finish."""
    spec, succeeded = snapshot.job.spec, snapshot.succeeded
    parallelism = 1 if spec.parallelism is None else spec.parallelism
    if spec.completions is None:
        return len(snapshot.active_pods) if succeeded else parallelism
    return max(min(parallelism, spec.completions - succeeded), 0)


# --- deleting


def delete_all(snapshot: JobSnapshot) -> JobDecision:
    return _delete_pods(snapshot.active_pods, snapshot.now)


def _delete_pods(pods: Sequence[Pod], now: datetime) -> JobDecision:
    return JobDecision(delete=tuple(pods[:MOST_PODS]), again_at=now if len(pods) > MOST_PODS else None)


def surplus_pods(job: Job, active: Sequence[Pod], count: int) -> list[Pod]:
    """At least so many pods, by `rank_for_deletion`; and all whose index is missing, invalid or also another pod's."""
    if not is_indexed(job):
        return rank_for_deletion(active)[:count] if count > 0 else []
    chosen = _pods_without_own_index(job, active)
    missing = count - len(chosen)
    if missing <= 0:
        return chosen
    known = {pod.metadata.uid for pod in chosen}
    return [*chosen, *rank_for_deletion(pod for pod in active if pod.metadata.uid not in known)[:missing]]


def _pods_without_own_index(job: Job, active: Sequence[Pod]) -> list[Pod]:
    if have_distinct_indexes(job, active):
        return []
    misplaced: list[Pod] = []
    by_index: dict[int | None, list[Pod]] = {}
    for pod in active:
        if has_valid_index(job, pod):
            by_index.setdefault(index_of(pod), []).append(pod)
        else:
            misplaced.append(pod)
    for pods in by_index.values():
        if len(pods) > 1:
            misplaced += rank_for_deletion(pods)[:-1]
    return misplaced


_PROGRESS = {"Pending": 0, "Unknown": 1, "Running": 2}


def rank_for_deletion(pods: Iterable[Pod]) -> list[Pod]:
    """First pods that lose the least work: on no node yet, not running, not ready, or younger than others."""
    return sorted(pods, key=_rank)


def _rank(pod: Pod) -> tuple[bool, int, bool, float, int, float]:
    ready = is_ready(pod)
    return (
        bool(pod.spec.node_name),
        _PROGRESS.get(pod.status.phase, 0),
        ready,
        -_seconds(_ready_at(pod)) if ready else 0,
        -max((status.restart_count for status in pod.status.container_statuses), default=0),
        -_seconds(pod.metadata.creation_timestamp),
    )


def _ready_at(pod: Pod) -> datetime | None:
    ready = condition(pod.status.conditions, "Ready")
    return ready.last_transition_time if ready else None


def _seconds(moment: datetime | None) -> float:
    """An unknown moment is the latest of all."""
    return moment.timestamp() if moment else float("inf")


# --- creating


def create_pods(snapshot: JobSnapshot, missing: int, names: Names) -> JobDecision:
    """So many pods more, unless back-off delays them."""
    job, now, count = snapshot.job, snapshot.now, min(missing, MOST_PODS)
    if count <= 0:
        return JobDecision()
    if has_limit_per_index(job):
        return _create_retried_indexes(snapshot, count, names)
    backoff_ends_at = snapshot.backoff.retry_at
    if backoff_ends_at and backoff_ends_at > now:
        return JobDecision(backoff_ends_at=backoff_ends_at, again_at=backoff_ends_at)
    if is_indexed(job):
        return _create_indexes(snapshot, pending_indexes(snapshot, count), names)
    common = with_memory(common_pod(job), snapshot.memory)
    create = tuple(pod_of(job, common, names) for _ in range(count))
    return JobDecision(create=create, again_at=now if missing > count else None)


def _create_retried_indexes(snapshot: JobSnapshot, count: int, names: Names) -> JobDecision:
    """Each index has its own back-off; an index that waits for its end still takes one of the `count` places."""
    pending = pending_indexes(snapshot, count)
    last, now = snapshot.last_failed, snapshot.now
    waits = {index: moment for index in pending if index in last and (moment := retry_at(last[index], now)) > now}
    decision = _create_indexes(snapshot, [index for index in pending if index not in waits], names)
    return replace(decision, index_backoffs=waits, again_at=earliest((decision.again_at, *waits.values())))


def _create_indexes(snapshot: JobSnapshot, indexes: Sequence[int], names: Names) -> JobDecision:
    job, last = snapshot.job, snapshot.last_failed
    common = with_memory(common_pod(job), snapshot.memory)
    create = tuple(_create_index(job, common, index, names, last.get(index)) for index in indexes)
    return JobDecision(create=create, again_at=snapshot.now if len(create) == MOST_PODS else None)


def _create_index(job: Job, common: Pod, index: int, names: Names, predecessor: Pod | None) -> Pod:
    pod = pod_of_index(job, common, index, names, failure_annotations(job, predecessor))
    return with_memory(pod, memory_after(job, predecessor))


# --- admission


def admit_pods(snapshot: JobSnapshot, decision: JobDecision) -> JobDecision:
    """The decision without the pods that are refused, and with the quotas that the others are charged to."""
    if not decision.create:
        return decision
    admitted = created_pods.admit_pods(decision.create, snapshot.job, snapshot.rules, snapshot.now)
    made = replace(decision, create=admitted.pods, quota_updates=admitted.quota_updates)
    return made if admitted.refusal is NONE else _try_again(snapshot, made, admitted.refusal)


def _try_again(snapshot: JobSnapshot, decision: JobDecision, refusal: Refusal) -> JobDecision:
    """The decision with when to try those again that were refused."""
    later = decision.again_at if decision.again_at and decision.again_at > snapshot.now else None
    return replace(decision, refusal=refusal, again_at=earliest((later, refusal.again_at)))
