"""Tolerations: whether a pod tolerates a node's taints. Pure.

Used by the scheduler's filters and scores, by taint eviction, and by agents, which must not import the scheduler.
"""

from collections.abc import Iterable

from app.kinds.core.node import Taint
from app.kinds.pod.affinity import Toleration


def tolerates(toleration: Toleration, taint: Taint) -> bool:
    """Return whether a toleration covers a taint (core/v1's rules: an empty key with Exists covers all)."""
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    if toleration.operator == "Exists":
        return True
    return bool(toleration.key) and toleration.value == taint.value


def is_tolerated(taint: Taint, tolerations: Iterable[Toleration]) -> bool:
    return any(tolerates(each, taint) for each in tolerations)
