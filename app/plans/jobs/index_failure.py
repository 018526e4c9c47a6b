"""Index failure (backoffLimitPerIndex): each index of an Indexed Job is retried on its own account.

The number of failures so far stands in an annotation of the index's pod and passes from a failed pod to its replacement.
Hence the last failed pod of an index keeps its finalizer, and is not counted yet, until a replacement exists or none is
needed. Each index has its own back-off. How many indexes wait for theirs stands in the Job's annotation
`jobplane.dev/waiting`: nothing depends on it but that each wait has one event.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod
from app.machinery.base import Condition
from app.machinery.durations import FIRST
from app.plans import annotation_state
from app.plans.jobs.backoff import delay, ended_at
from app.plans.jobs.indexes import index_of, indexes_of
from app.plans.jobs.job_snapshot import JobDecision, JobSnapshot, failure_target
from app.plans.jobs.pod_failure_policy import counts_as_failure, fails_index

FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"
WAITING = "jobplane.dev/waiting"


def has_limit_per_index(job: Job) -> bool:
    return job.spec.backoff_limit_per_index is not None


def failures_before(pod: Pod) -> tuple[int, int]:
    """Return how often the pod's index had failed before it: failures that counted, and failures that were ignored."""
    return _parse_count(pod, FAILURES), _parse_count(pod, IGNORED)


def _parse_count(pod: Pod, annotation: str) -> int:
    text = pod.metadata.annotations.get(annotation, "")
    number = int(text) if len(text) < 11 and text.isascii() and text.isdigit() else 0
    return number if number < 2**31 else 0


def exhausted_indexes(job: Job, failed: Iterable[Pod]) -> set[int]:
    """The indexes that are not retried after the failures of these pods."""
    limit = job.spec.backoff_limit_per_index
    if limit is None:
        return set()
    return indexes_of(
        pod
        for pod in failed
        if fails_index(job, pod) or (counts_as_failure(job, pod) and failures_before(pod)[0] >= limit)
    )


def last_failed_pods(job: Job, failed: Sequence[Pod], now: datetime) -> dict[int, Pod]:
    """For each index the failed pod that its replacement continues from."""
    if not has_limit_per_index(job):
        return {}
    last: dict[int, Pod] = {}
    for pod in sorted(failed, key=lambda pod: (sum(failures_before(pod)), ended_at(pod, now))):
        if (index := index_of(pod)) is not None:
            last[index] = pod
    return last


def retry_at(pod: Pod, now: datetime) -> datetime:
    """Return when a replacement of this failed pod may start."""
    return ended_at(pod, now) + delay(sum(failures_before(pod)) + 1)


def failure_annotations(job: Job, predecessor: Pod | None) -> dict[str, str]:
    """The annotations by which a pod continues the failure counts of its index."""
    if not has_limit_per_index(job):
        return {}
    if predecessor is None:
        return {FAILURES: "0"}
    failures, ignored = failures_before(predecessor)
    if counts_as_failure(job, predecessor):
        failures += 1
    else:
        ignored += 1
    return {FAILURES: str(failures)} | ({IGNORED: str(ignored)} if ignored else {})


def find_failure(snapshot: JobSnapshot) -> Condition | None:
    """The condition FailureTarget, if more indexes failed than may, or the last index failed or succeeded."""
    spec, failed = snapshot.job.spec, len(snapshot.failed_indexes)
    if spec.max_failed_indexes is not None and failed > spec.max_failed_indexes:
        message = "Job has exceeded the specified maximal number of failed indexes"
        return failure_target(snapshot, "MaxFailedIndexesExceeded", message)
    if failed and failed + snapshot.succeeded >= (spec.completions or 0):
        return failure_target(snapshot, "FailedIndexes", "Job has failed indexes")
    return None


def awaiting_replacement(snapshot: JobSnapshot, decision: JobDecision) -> list[Pod]:
    """Failed pods whose replacement does not exist yet."""
    if not snapshot.last_failed:
        return []
    deleted = {pod.metadata.uid for pod in decision.delete}  # an adopted pod may be, which then replaces none
    remaining = (pod for pod in snapshot.active_pods if pod.metadata.uid not in deleted)
    present = indexes_of((*remaining, *decision.create))
    completed, failed = snapshot.completed_indexes, snapshot.failed_indexes
    return [
        pod
        for index, pod in snapshot.last_failed.items()
        if index not in present and index not in completed and index not in failed
    ]


def backing_off(snapshot: JobSnapshot, decision: JobDecision) -> list[Pod]:
    """The failed pods whose index waits for the end of its back-off."""
    return [snapshot.last_failed[index] for index in decision.index_backoffs]


def summarize_waiting(failed: Iterable[Pod]) -> tuple[int, datetime] | None:
    """Return how many indexes wait, by their failed pods, and when the youngest of these was created.

    Not when they ended: a node whose clock is ahead reports an end that counts as now, whenever now is.
    """
    created = [pod.metadata.creation_timestamp or FIRST for pod in failed]
    return (len(created), max(created)) if created else None


def annotate(annotations: dict[str, str], failed: Iterable[Pod]) -> dict[str, str]:
    """The annotations with the waiting indexes in them, or without if none waits; the same dict if nothing changes."""
    waiting = summarize_waiting(failed)
    return annotation_state.annotate(annotations, WAITING, annotation_state.text(*waiting) if waiting else None)
