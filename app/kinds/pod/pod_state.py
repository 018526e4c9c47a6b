"""Questions that plans and tables ask about a pod as it is."""

from app.kinds.pod.pod_schema import Pod, PodStatus
from app.machinery.meta.conditions import is_true

TERMINAL = ("Succeeded", "Failed")


def has_ended(status: PodStatus) -> bool:
    """The pod will never run again."""
    return status.phase in TERMINAL


def is_terminal(pod: Pod) -> bool:
    return has_ended(pod.status)


def is_active(pod: Pod) -> bool:
    """It runs or may yet run, and nobody has asked for its deletion."""
    return not is_terminal(pod) and pod.metadata.deletion_timestamp is None


def is_ready(pod: Pod) -> bool:
    return is_true(pod.status.conditions, "Ready")
