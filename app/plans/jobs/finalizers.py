"""Finalizer removal: the tracking finalizer keeps a Job's pod in the store until the Job has counted it.

A pod that has ended waits to be counted for as long as it has the finalizer. A plan that counts it removes the finalizer in
the same write set, so that no pod is counted twice or never; hence `status.uncountedTerminatedPods` is always empty. The
garbage collector removes it from pods whose Job is gone.
"""

from collections.abc import Iterable
from typing import TypeVar

from msgspec.structs import replace

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod
from app.machinery.base import Object
from app.machinery.meta.owner_references import controller_of
from app.plans.jobs.index_failure import awaiting_replacement
from app.plans.jobs.indexes import has_valid_index
from app.plans.jobs.job_snapshot import JobDecision, JobSnapshot, only_replaces_failed_pods
from app.plans.jobs.pod_failure_policy import count_failures
from app.plans.plan import Update

TRACKING = "batch.kubernetes.io/job-tracking"

T = TypeVar("T", bound=Object)


def is_tracked(obj: Object) -> bool:
    return TRACKING in obj.metadata.finalizers


def add_tracking(finalizers: tuple[str, ...]) -> tuple[str, ...]:
    return finalizers if TRACKING in finalizers else (*finalizers, TRACKING)


def remove_tracking(obj: T) -> T:
    """The object without the tracking finalizer; the same object if it has none."""
    return remove_finalizer(obj, TRACKING) if is_tracked(obj) else obj


def remove_finalizer(obj: T, finalizer: str) -> T:
    finalizers = tuple(each for each in obj.metadata.finalizers if each != finalizer)
    return replace(obj, metadata=replace(obj.metadata, finalizers=finalizers))


def untrack_all(job: Job | None, pods: Iterable[Pod]) -> Iterable[Update]:
    """Remove the tracking finalizer from all pods of a Job that is finished, or that is gone."""
    for pod in pods:
        owner = controller_of(pod)
        if is_tracked(pod) and (owner is None or job is None or owner.uid == job.metadata.uid):
            yield Update(remove_tracking(pod), pod)


def account_pods(snapshot: JobSnapshot, decision: JobDecision) -> JobDecision:
    """The decision with the pods to remove the finalizer from, and with `status.failed` as it then is.

    A pod that the plan deletes counts as failed only if the whole Job has failed; then so do pods that are terminating.
    """
    is_over = decision.outcome is not None or snapshot.job.metadata.deletion_timestamp is not None
    kept = [] if is_over else awaiting_replacement(snapshot, decision)
    failed = snapshot.failed - count_failures(snapshot.job, kept)
    if decision.outcome is not None and decision.outcome.type == "FailureTarget":
        failed += count_failures(snapshot.job, _killed_pods(snapshot, decision))
    untrack = _pods_to_untrack(snapshot, is_over, (*kept, *decision.delete))
    return replace(decision, failed=failed, untrack=untrack)


def _pods_to_untrack(snapshot: JobSnapshot, is_over: bool, others: Iterable[Pod]) -> tuple[Pod, ...]:
    """Ended pods; also terminating pods, if the Job is over; also active pods, if it is deleted. But not `others`."""
    groups = [snapshot.succeeded_pods, snapshot.failed_pods, snapshot.unindexed_pods]
    groups += [snapshot.terminating_pods] if is_over else []
    groups += [snapshot.active_pods] if snapshot.job.metadata.deletion_timestamp else []
    skipped = {pod.metadata.uid for pod in others}
    tracked = {pod.metadata.uid: pod for group in groups for pod in group if is_tracked(pod)}
    return tuple(pod for uid, pod in tracked.items() if uid not in skipped)


def _killed_pods(snapshot: JobSnapshot, decision: JobDecision) -> list[Pod]:
    """Pods that the Job's failure ends and that did not count before."""
    job = snapshot.job
    terminating = snapshot.terminating_pods if only_replaces_failed_pods(job) else []
    return [pod for pod in (*terminating, *decision.delete) if is_tracked(pod) and has_valid_index(job, pod)]
