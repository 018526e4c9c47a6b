"""Completion indexes: which one a pod has, and which are to start next."""

from functools import lru_cache

from app.kinds.pod.pod import Pod

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


def index_of(pod: Pod) -> int | None:
    """The pod's completion index, if it has a proper one."""
    return _index(pod.metadata.annotations.get(COMPLETION_INDEX, ""))


@lru_cache(maxsize=1 << 14)  # a plan asks several times for each of thousands of pods
def _index(text: str) -> int | None:
    return int(text) if len(text) < 11 and text.isascii() and text.isdigit() else None
