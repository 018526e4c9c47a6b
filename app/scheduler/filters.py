"""Filters: which nodes a pod may run on, as far as only the two of them matter: the node, and what is left on it.

What other pods have to do with it is in `pod_affinity` and `topology_spread`. A pod that names its node is not scheduled at
all, so there is no filter for that. Of volumes only claims keep a pod from every node: there are no PersistentVolumeClaims.
The texts are Kubernetes'.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from app.kinds.core.node import UNSCHEDULABLE, Node, Taint
from app.kinds.pod.affinity import NodeSelector
from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_resources import Amounts
from app.plans.nodes.node_selector import selects
from app.plans.nodes.tolerations import is_tolerated
from app.scheduler.node_info import NodeInfo
from app.scheduler.pod_info import PodInfo, missing_claim

CORDONED = "node(s) were unschedulable"
UNSELECTED = "node(s) didn't match Pod's node affinity/selector"
UNNAMED = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
CONFLICT = "pod affinity terms conflict"  # no node can have all names that a term asks for
UNCLAIMED = 'persistentvolumeclaim "{}" not found'
NO_PORTS = "node(s) didn't have free ports for the requested pod ports"
TOO_MANY = "Too many pods"

_CORDON = Taint(key=UNSCHEDULABLE, effect="NoSchedule")
_NAME = "metadata.name"


def barred(pod: Pod, node: Node) -> str:
    """Why the pod may not run on the node, whatever the room there; empty if it may."""
    if claim := missing_claim(pod):
        return UNCLAIMED.format(claim)
    tolerations = pod.spec.tolerations
    if pod.spec.affinity is not None:
        named = _named(pod)
        if named is not None and node.metadata.name not in named:
            return UNNAMED if named else CONFLICT
    if node.spec.unschedulable and not is_tolerated(_CORDON, tolerations):
        return CORDONED
    for taint in node.spec.taints:
        if taint.effect != "PreferNoSchedule" and not is_tolerated(taint, tolerations):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    return "" if is_selected(pod, node) else UNSELECTED


def is_of_the_pod(reason: str) -> bool:
    """Whether a reason is the same on every node: Kubernetes tells it without a count."""
    return reason == CONFLICT or reason.startswith(UNCLAIMED.partition("{")[0])


def bears(pod: Pod, node: Node) -> bool:
    """Whether the pod tolerates all that keeps pods from the node."""
    return all(
        taint.effect == "PreferNoSchedule" or is_tolerated(taint, pod.spec.tolerations) for taint in node.spec.taints
    )


def is_selected(pod: Pod, node: Node) -> bool:
    """By the pod's node selector, and by the node affinity that it requires."""
    for key, value in pod.spec.node_selector.items():
        if node.metadata.labels.get(key) != value:
            return False
    wanted = _wanted(pod)
    return wanted is None or selects(wanted, node)


def _wanted(pod: Pod) -> NodeSelector | None:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    return affinity.required_during_scheduling_ignored_during_execution if affinity else None


def _named(pod: Pod) -> frozenset[str] | None:
    """The nodes that the pod asks for by name, if all of its terms do so."""
    wanted = _wanted(pod)
    names: set[str] = set()
    for term in wanted.node_selector_terms if wanted else ():
        by_name = [each.values for each in term.match_fields if each.key == _NAME and each.operator == "In"]
        if not by_name:
            return None
        names.update(set(by_name[0]).intersection(*by_name[1:]))
    return frozenset(names) if wanted and wanted.node_selector_terms else None


def lacking(free: Mapping[str, int], needs: Amounts) -> list[str]:
    """The resources of which too little is left."""
    return [name for name, count in needs.items() if free.get(name, 0) < count]


def insufficient(resource: str) -> str:
    return TOO_MANY if resource == "pods" else f"Insufficient {resource}"


def fit_count(node_info: NodeInfo, info: PodInfo, free: Amounts | None = None) -> int:
    """Count the pods of a class that fit by what is left, or would be; of pods that take a port of the node, one."""
    left = node_info.free if free is None else free
    least = min(max(0, left.get(name, 0)) // count for name, count in info.needs.items())
    return min(1, least) if info.ports else least


def most_fit_count(node_info: NodeInfo, infos: Iterable[PodInfo], free: Amounts | None = None) -> int:
    """Bound for pods of several classes: no more of them fit."""
    return max((fit_count(node_info, each, free) for each in infos if not barred(each.pod, node_info.node)), default=0)


NO_NODES = "no nodes available to schedule pods"


@dataclass(frozen=True, slots=True, eq=False)
class Refusal:
    """Why no node takes the pods of a class."""

    reasons: Mapping[str, tuple[str, ...]]  # by node
    hopeless: frozenset[str]  # nodes that would not take one either if other pods went (UnschedulableAndUnresolvable)

    @property
    def victims(self) -> tuple[Pod, ...] | None:
        """Victims after whose eviction the pods fit; None if that is to be found out."""
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
