"""backoffLimitPerIndex: each index is retried on its own account.

Used by `app.plans.jobs.counting` and `app.plans.jobs.scaling`. The number of failures so far stands in an annotation of the
index's pod and passes from a failed pod to its replacement; hence the last failed pod of an index keeps its finalizer,
and is not counted yet, until a replacement exists or none is needed. Each index has its own back-off. Who waits for theirs
stands in the Job's annotation `jobplane.dev/waiting`: nothing rests on it but that each wait is told once.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod
from app.machinery.durations import FIRST
from app.plans import annotation_state
from app.plans.jobs.backoff import delay, ended_at
from app.plans.jobs.indexes import index_of
from app.plans.jobs.pod_failure_policy import counts, fails_index

FAILURES = "batch.kubernetes.io/job-index-failure-count"
IGNORED = "batch.kubernetes.io/job-index-ignored-failure-count"
WAITING = "jobplane.dev/waiting"


def is_limited(job: Job) -> bool:
    return job.spec.backoff_limit_per_index is not None


def failures_of(pod: Pod) -> tuple[int, int]:
    """How often the pod's index had failed before it: failures that counted, and failures that were ignored."""
    return _number(pod, FAILURES), _number(pod, IGNORED)


def _number(pod: Pod, annotation: str) -> int:
    text = pod.metadata.annotations.get(annotation, "")
    number = int(text) if len(text) < 11 and text.isascii() and text.isdigit() else 0
    return number if number < 2**31 else 0


def newly_failed(job: Job, failed: Iterable[Pod]) -> set[int]:
    """The indexes that are not to be retried after these failures."""
    limit = job.spec.backoff_limit_per_index
    if limit is None:
        return set()
    spent = (pod for pod in failed if fails_index(job, pod) or (counts(job, pod) and failures_of(pod)[0] >= limit))
    return {index for pod in spent if (index := index_of(pod)) is not None}


def last_failed(job: Job, failed: Sequence[Pod], now: datetime) -> dict[int, Pod]:
    """For each index the failed pod that its replacement goes on from."""
    if not is_limited(job):
        return {}
    last: dict[int, Pod] = {}
    for pod in sorted(failed, key=lambda pod: (sum(failures_of(pod)), ended_at(pod, now))):
        if (index := index_of(pod)) is not None:
            last[index] = pod
    return last


def retry_at(pod: Pod, now: datetime) -> datetime:
    """When a replacement of this failed pod may start."""
    return ended_at(pod, now) + delay(sum(failures_of(pod)) + 1)


def waiting(failed: Iterable[Pod]) -> tuple[int, datetime] | None:
    """How many indexes wait, by their failed pods, and when the youngest of these was created.

    Not when they ended: what a node whose clock is ahead says of that counts as now, whenever now is.
    """
    born = [pod.metadata.creation_timestamp or FIRST for pod in failed]
    return (len(born), max(born)) if born else None


def noted(annotations: dict[str, str], failed: Iterable[Pod]) -> dict[str, str]:
    """The annotations with who waits in them, or without if nobody does; the same dict if nothing changes."""
    found = waiting(failed)
    return annotation_state.noted(annotations, WAITING, annotation_state.text(*found) if found else None)


def inherited(job: Job, predecessor: Pod | None) -> dict[str, str]:
    """The annotations by which a pod carries its index's failures on."""
    if not is_limited(job):
        return {}
    if predecessor is None:
        return {FAILURES: "0"}
    failures, ignored = failures_of(predecessor)
    if counts(job, predecessor):
        failures += 1
    else:
        ignored += 1
    return {FAILURES: str(failures)} | ({IGNORED: str(ignored)} if ignored else {})
