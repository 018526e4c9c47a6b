"""Completion indexes: which one a pod has, and which are to start next."""

from app.kinds.pod import Pod

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"


def index_of(pod: Pod) -> int | None:
    """The pod's completion index, if it has a proper one."""
    text = pod.metadata.annotations.get(COMPLETION_INDEX, "")
    return int(text) if len(text) < 11 and text.isascii() and text.isdigit() else None
