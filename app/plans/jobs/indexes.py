"""Completion indexes of an Indexed Job: the index of a pod, and the indexes that need a pod next.

The index stands in an annotation and a label of the pod. Sets of indexes are `app.kinds.batch.completion_indexes`; failures
of an index are `index_failure`.
"""

from collections.abc import Iterable, Sequence
from functools import lru_cache

from app.kinds.batch.job import Job, is_indexed
from app.kinds.pod.pod import Pod
from app.plans.jobs.job_snapshot import JobSnapshot, only_replaces_failed_pods

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


def index_of(pod: Pod) -> int | None:
    """The pod's completion index, if it has a proper one."""
    return _parse_index(pod.metadata.annotations.get(COMPLETION_INDEX, ""))


@lru_cache(maxsize=1 << 14)  # a plan asks several times for each of thousands of pods
def _parse_index(text: str) -> int | None:
    return int(text) if len(text) < 11 and text.isascii() and text.isdigit() else None


def indexes_of(pods: Iterable[Pod]) -> set[int]:
    return {index for pod in pods if (index := index_of(pod)) is not None}


def has_valid_index(job: Job, pod: Pod) -> bool:
    """A pod of an Indexed Job must have an index below `spec.completions`; any other pod needs none."""
    if not is_indexed(job):
        return True
    index = index_of(pod)
    return index is not None and index < (job.spec.completions or 0)


def have_distinct_indexes(job: Job, pods: Sequence[Pod]) -> bool:
    """Return whether each of these pods has a valid index of its own, as nearly always."""
    indexes = indexes_of(pods)
    return len(indexes) == len(pods) and max(indexes, default=-1) < (job.spec.completions or 0)


def pending_indexes(snapshot: JobSnapshot, count: int) -> list[int]:
    """The lowest indexes that have neither an active pod nor succeeded nor failed for good."""
    pods = snapshot.active_pods
    if only_replaces_failed_pods(snapshot.job):
        pods = [*pods, *snapshot.terminating_pods]
    ended = snapshot.completed_indexes.union(snapshot.failed_indexes)
    return ended.first_missing(count, snapshot.job.spec.completions or 0, indexes_of(pods))
