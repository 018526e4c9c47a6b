"""Fit error: why a pod stays pending, in kube-scheduler's words, which people know and programs match on."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from app.kinds.pod.pod import Pod
from app.scheduler.filters import is_of_the_pod

NO_NODES = "no nodes available to schedule pods"


@dataclass(frozen=True, slots=True, eq=False)
class Refusal:
    """Why no node takes the pods of a class."""

    reasons: Mapping[str, tuple[str, ...]]  # by node
    hopeless: frozenset[str]  # nodes that would not take one either if other pods went (UnschedulableAndUnresolvable)

    @property
    def victims(self) -> tuple[Pod, ...] | None:
        """Who goes so that it need not be refused any longer; None if that is to be found out."""
        return None

    def text(self, preemption: str = "") -> str:
        """`0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable. preemption: 0/3 nodes ...`"""
        if not self.reasons:
            return NO_NODES
        counted = Counter(reason for reasons in self.reasons.values() for reason in reasons)
        told = summed(len(self.reasons), counted)
        return f"{told} preemption: {preemption}" if preemption else told


def summed(nodes: int, counted: Mapping[str, int]) -> str:
    """`0/3 nodes are available: ` and how many nodes have which reason."""
    return f"0/{nodes} nodes are available: {', '.join(sorted(map(_counted, counted, counted.values())))}."


def _counted(reason: str, count: int) -> str:
    return reason if is_of_the_pod(reason) else f"{count} {reason}"
