"""Counting: how many pods and indexes of a Job have succeeded and failed, and which pods are to be accounted for.

Used by `app.plans.jobs.job`. `Tally` knows everything that has ended, and decisions rest on it; `Ledger` is what this plan
writes down: pods that lose their finalizer, and the counters that thereby change.
"""

from collections.abc import Iterable
from datetime import datetime

import msgspec

from app.kinds.batch.completion_indexes import Indexes
from app.kinds.batch.job import Job, is_indexed
from app.kinds.pod.pod import Pod
from app.machinery.base import Condition
from app.plans.jobs.backoff import Backoff, after, remembered
from app.plans.jobs.finalizers import is_tracked
from app.plans.jobs.index_failure import last_failed, newly_failed
from app.plans.jobs.indexes import index_of
from app.plans.jobs.job_pods import Seen, is_of_use, replaces_failed_only, sort_out
from app.plans.jobs.pod_failure_policy import counts
from app.plans.plan import Move

NO_INDEXES = Indexes()


class Tally(msgspec.Struct, frozen=True):
    """All that has ended, counted before or not."""

    succeeded: int
    failed: int
    completed: Indexes
    failed_indexes: Indexes


class Situation(msgspec.Struct, frozen=True):
    """What a plan is made from."""

    job: Job
    seen: Seen
    tally: Tally
    backoff: Backoff
    last_failed: dict[int, Pod]  # by index; empty unless each index has its own limit
    now: datetime


class Ledger(msgspec.Struct, frozen=True):
    """What this plan settles."""

    loosened: list[Pod]
    failed: int


def situation(job: Job, pods: list[Pod], now: datetime) -> Situation:
    seen = sort_out(job, pods)
    return Situation(
        job=job,
        seen=seen,
        tally=tally(job, seen),
        backoff=after(remembered(job, now), seen.succeeded, seen.failed, now),
        last_failed=last_failed(job, seen.failed, now),
        now=now,
    )


def tally(job: Job, seen: Seen) -> Tally:
    failed = job.status.failed + _counted(job, seen.failed)
    if not is_indexed(job):
        return Tally(job.status.succeeded + len(seen.succeeded), failed, NO_INDEXES, NO_INDEXES)
    end = job.spec.completions or 0
    hopeless = Indexes.parse(job.status.failed_indexes or "").clip(end)
    succeeded = [index for index in _indexes(seen.succeeded) if index not in hopeless]
    completed = Indexes.parse(job.status.completed_indexes).clip(end).add(succeeded)
    spent = [index for index in newly_failed(job, seen.failed) if index not in completed]
    return Tally(len(completed), failed, completed, hopeless.add(spent))


def _indexes(pods: Iterable[Pod]) -> set[int]:
    return {index for pod in pods if (index := index_of(pod)) is not None}


def _counted(job: Job, pods: Iterable[Pod]) -> int:
    return sum(counts(job, pod) for pod in pods)


def settle(situation: Situation, move: Move, outcome: Condition | None) -> Ledger:
    """What is written down if these pods are started and stopped and this is the outcome.

    A pod that the plan deletes counts as failed only if the whole Job has failed; then so do pods that were ending.
    """
    over = outcome is not None or situation.job.metadata.deletion_timestamp is not None
    held = [] if over else _held(situation, move)
    failed = situation.tally.failed - _counted(situation.job, held)
    if outcome is not None and outcome.type == "FailureTarget":
        failed += _counted(situation.job, _killed(situation, move))
    return Ledger(_loosened(situation, over, (*held, *move.delete)), failed)


def _loosened(situation: Situation, over: bool, others: Iterable[Pod]) -> list[Pod]:
    """Pods that ended; once it is over, pods that are ending; if the Job is to go, every pod. But not the others."""
    seen = situation.seen
    groups = [seen.succeeded, seen.failed, seen.void]
    groups += [seen.terminating] if over else []
    groups += [seen.active] if situation.job.metadata.deletion_timestamp else []
    skipped = {pod.metadata.uid for pod in others}
    tracked = {pod.metadata.uid: pod for group in groups for pod in group if is_tracked(pod)}
    return [pod for uid, pod in tracked.items() if uid not in skipped]


def _killed(situation: Situation, move: Move) -> list[Pod]:
    """Pods that the Job's failure ends and that did not count before."""
    job = situation.job
    ending = situation.seen.terminating if replaces_failed_only(job) else []
    return [pod for pod in (*ending, *move.delete) if is_tracked(pod) and is_of_use(job, pod)]


def _held(situation: Situation, move: Move) -> list[Pod]:
    """Failed pods whose replacement is yet to come."""
    if not situation.last_failed:
        return []
    tally = situation.tally
    stopped = {pod.metadata.uid for pod in move.delete}  # an adopted pod may be, which then replaces nobody
    stays = (pod for pod in situation.seen.active if pod.metadata.uid not in stopped)
    present = _indexes((*stays, *move.create))
    return [
        pod
        for index, pod in situation.last_failed.items()
        if index not in present and index not in tally.completed and index not in tally.failed_indexes
    ]
