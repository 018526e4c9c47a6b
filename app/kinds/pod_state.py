"""Questions that plans and tables ask about a pod as it is."""

from collections.abc import Iterable

from app.kinds.base import Condition
from app.kinds.pod_schema import Pod

TERMINAL = ("Succeeded", "Failed")


def is_terminal(pod: Pod) -> bool:
    """It ended, and will never run again."""
    return pod.status.phase in TERMINAL


def is_active(pod: Pod) -> bool:
    """It runs or may yet run, and nobody has asked for its deletion."""
    return not is_terminal(pod) and pod.metadata.deletion_timestamp is None


def is_ready(pod: Pod) -> bool:
    return is_true(pod.status.conditions, "Ready")


def condition(conditions: Iterable[Condition], type_: str) -> Condition | None:
    """The condition of that type, if there is one."""
    return next((each for each in conditions if each.type == type_), None)


def is_true(conditions: Iterable[Condition], type_: str) -> bool:
    found = condition(conditions, type_)
    return found is not None and found.status == "True"
