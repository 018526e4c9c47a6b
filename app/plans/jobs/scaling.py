"""Scaling: which pods of a Job to start and which to stop. Used by `job`, unless the Job has an outcome.

A plan stops pods or starts pods, never both; and at most `MOST_PODS`, so that a Job of many pods is many short writes.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from app.kinds.batch.job import Job, is_indexed
from app.kinds.pod.pod import Pod, condition, is_ready
from app.plans.jobs.counting import Situation
from app.plans.jobs.index_failure import inherited, is_limited, retry_at
from app.plans.jobs.indexes import index_of
from app.plans.jobs.job_pods import is_of_use, replaces_failed_only
from app.plans.jobs.pod_template import common_pod, pod_of, pod_of_index
from app.plans.plan import Move, Names, earliest

MOST_PODS = 500


def stop_all(situation: Situation) -> Move:
    return stop(situation.seen.active, situation.now)


def stop(pods: Sequence[Pod], now: datetime) -> Move:
    return Move(delete=tuple(pods[:MOST_PODS]), again_at=now if len(pods) > MOST_PODS else None)


def adjust(situation: Situation, names: Names) -> Move:
    """Towards as many active pods as are wanted."""
    if situation.job.spec.suspend:
        return stop_all(situation)
    active = situation.seen.active
    surplus = to_stop(situation.job, active, len(active) - wanted(situation))
    if surplus:
        return stop(surplus, situation.now)
    ending = len(situation.seen.terminating) if replaces_failed_only(situation.job) else 0
    return start(situation, wanted(situation) - len(active) - ending, names)


def wanted(situation: Situation) -> int:
    """How many pods should be active. A work queue's first success means: start no more, let the rest finish."""
    spec, succeeded = situation.job.spec, situation.tally.succeeded
    most = 1 if spec.parallelism is None else spec.parallelism
    if spec.completions is None:
        return len(situation.seen.active) if succeeded else most
    return max(min(most, spec.completions - succeeded), 0)


def start(situation: Situation, missing: int, names: Names) -> Move:
    """So many pods more, if back-off allows."""
    count = min(missing, MOST_PODS)
    if count <= 0:
        return Move()
    if is_limited(situation.job):
        return _start_retried_indexes(situation, count, names)
    retry = situation.backoff.retry_at
    if retry and retry > situation.now:
        return Move(again_at=retry)
    job, common = situation.job, common_pod(situation.job)
    if is_indexed(job):
        return _start_indexes(situation, pending_indexes(situation, count), names)
    create = tuple(pod_of(job, common, names) for _ in range(count))
    return Move(create=create, again_at=situation.now if missing > count else None)


def _start_retried_indexes(situation: Situation, count: int, names: Names) -> Move:
    """Each index has its own back-off; one that has to wait keeps its place."""
    pending = pending_indexes(situation, count)
    last, now = situation.last_failed, situation.now
    waits = {index: moment for index in pending if index in last and (moment := retry_at(last[index], now)) > now}
    move = _start_indexes(situation, [index for index in pending if index not in waits], names)
    return Move(create=move.create, again_at=earliest((move.again_at, *waits.values())), waits=waits)


def _start_indexes(situation: Situation, indexes: Sequence[int], names: Names) -> Move:
    job, common, last = situation.job, common_pod(situation.job), situation.last_failed
    create = tuple(pod_of_index(job, common, each, names, inherited(job, last.get(each))) for each in indexes)
    return Move(create=create, again_at=situation.now if len(create) == MOST_PODS else None)


def pending_indexes(situation: Situation, count: int) -> list[int]:
    """The lowest indexes that nothing is known of: no pod at work, no success, no final failure."""
    seen, tally = situation.seen, situation.tally
    pods = [*seen.active, *seen.terminating] if replaces_failed_only(situation.job) else seen.active
    busy = {index for pod in pods if (index := index_of(pod)) is not None}
    settled = tally.completed.union(tally.failed_indexes)
    return settled.first_missing(count, situation.job.spec.completions or 0, busy)


def to_stop(job: Job, active: Sequence[Pod], surplus: int) -> list[Pod]:
    """At least so many pods, those first that lose least; and all that have no index, or one that another pod has."""
    if not is_indexed(job):
        return by_worth(active)[:surplus] if surplus > 0 else []
    chosen = _misplaced(job, active)
    missing = surplus - len(chosen)
    if missing <= 0:
        return chosen
    known = {pod.metadata.uid for pod in chosen}
    return [*chosen, *by_worth(pod for pod in active if pod.metadata.uid not in known)[:missing]]


def _one_each(job: Job, active: Sequence[Pod]) -> bool:
    """Each has an index of its own, as nearly always."""
    indexes = {index for pod in active if (index := index_of(pod)) is not None}
    return len(indexes) == len(active) and max(indexes, default=-1) < (job.spec.completions or 0)


def _misplaced(job: Job, active: Sequence[Pod]) -> list[Pod]:
    if _one_each(job, active):
        return []
    misplaced: list[Pod] = []
    holders: dict[int | None, list[Pod]] = {}
    for pod in active:
        if is_of_use(job, pod):
            holders.setdefault(index_of(pod), []).append(pod)
        else:
            misplaced.append(pod)
    for pods in holders.values():
        if len(pods) > 1:
            misplaced += by_worth(pods)[:-1]
    return misplaced


_PROGRESS = {"Pending": 0, "Unknown": 1, "Running": 2}


def by_worth(pods: Iterable[Pod]) -> list[Pod]:
    """Those first that are missed least: on no node yet, not running, not ready, or younger than others."""
    return sorted(pods, key=_worth)


def _worth(pod: Pod) -> tuple[bool, int, bool, float, int, float]:
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
