"""Filters: which nodes a pod may run on, by the node and what is free on it; and the diagnosis if none does.

kube-scheduler's plugins NodeUnschedulable, TaintToleration, NodeAffinity, NodePorts, NodeResourcesFit and VolumeBinding, with
their messages. Filters that depend on other pods are in `pod_affinity` and `topology_spread`. There is none for `spec.nodeName`:
such a pod is not scheduled. What claims ask of nodes is decided in `app.plans.volumes.pod_volumes`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from app.kinds.core.node import UNSCHEDULABLE, Node, Taint
from app.kinds.pod.affinity import NodeSelector
from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_resources import Amounts
from app.plans.nodes.node_selector import selects
from app.plans.nodes.tolerations import is_tolerated
from app.plans.volumes import pod_volumes
from app.plans.volumes.pod_volumes import PodVolumes
from app.scheduler.node_info import NodeInfo
from app.scheduler.pod_info import PodInfo

NODE_UNSCHEDULABLE = "node(s) were unschedulable"
NODE_AFFINITY_MISMATCH = "node(s) didn't match Pod's node affinity/selector"
NODE_NAME_MISMATCH = "node(s) didn't satisfy plugin(s) [NodeAffinity]"
AFFINITY_TERMS_CONFLICT = "pod affinity terms conflict"  # a term requires several names at once
PORTS_TAKEN = "node(s) didn't have free ports for the requested pod ports"
TOO_MANY_PODS = "Too many pods"

_UNSCHEDULABLE_TAINT = Taint(key=UNSCHEDULABLE, effect="NoSchedule")
_NAME_FIELD = "metadata.name"


def filter_node(pod: Pod, node: Node, volumes: PodVolumes | None = None) -> str:
    """Run the filters that do not depend on pods. Returns why the node is rejected; empty if it passes."""
    if volumes is not None and volumes.error:
        return volumes.error
    tolerations = pod.spec.tolerations
    if pod.spec.affinity is not None:
        names = _required_node_names(pod)
        if names is not None and node.metadata.name not in names:
            return NODE_NAME_MISMATCH if names else AFFINITY_TERMS_CONFLICT
    if node.spec.unschedulable and not is_tolerated(_UNSCHEDULABLE_TAINT, tolerations):
        return NODE_UNSCHEDULABLE
    for taint in node.spec.taints:
        if taint.effect != "PreferNoSchedule" and not is_tolerated(taint, tolerations):
            return f"node(s) had untolerated taint {{{taint.key}: {taint.value}}}"
    if not matches_node_affinity(pod, node):
        return NODE_AFFINITY_MISMATCH
    return volumes.filter(node) if volumes is not None else ""


def is_pod_reason(reason: str) -> bool:
    """Return whether a reason is about the pod, not about nodes: kube-scheduler reports it without a count."""
    return reason == AFFINITY_TERMS_CONFLICT or pod_volumes.is_pod_reason(reason)


def tolerates_taints(pod: Pod, node: Node) -> bool:
    """Return whether the pod tolerates all taints but those of PreferNoSchedule."""
    return all(
        taint.effect == "PreferNoSchedule" or is_tolerated(taint, pod.spec.tolerations) for taint in node.spec.taints
    )


def matches_node_affinity(pod: Pod, node: Node) -> bool:
    """By the pod's nodeSelector and required node affinity."""
    for key, value in pod.spec.node_selector.items():
        if node.metadata.labels.get(key) != value:
            return False
    required = _required_node_affinity(pod)
    return required is None or selects(required, node)


def _required_node_affinity(pod: Pod) -> NodeSelector | None:
    affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
    return affinity.required_during_scheduling_ignored_during_execution if affinity else None


def _required_node_names(pod: Pod) -> frozenset[str] | None:
    """Nodes that required node affinity names; None if some term names none."""
    required = _required_node_affinity(pod)
    names: set[str] = set()
    for term in required.node_selector_terms if required else ():
        by_name = [each.values for each in term.match_fields if each.key == _NAME_FIELD and each.operator == "In"]
        if not by_name:
            return None
        names.update(set(by_name[0]).intersection(*by_name[1:]))
    return frozenset(names) if required and required.node_selector_terms else None


def find_insufficient(free: Mapping[str, int], requests: Amounts) -> list[str]:
    """Resources of which less is free than requested."""
    return [name for name, count in requests.items() if free.get(name, 0) < count]


def insufficient_reason(resource: str) -> str:
    return TOO_MANY_PODS if resource == "pods" else f"Insufficient {resource}"


def fit_count(node_info: NodeInfo, info: PodInfo, free: Amounts | None = None) -> int:
    """Count how many more pods of a class fit by resources, of `free` or of what is free now; at most one with a host port."""
    available = node_info.free if free is None else free
    count = min(max(0, available.get(name, 0)) // requested for name, requested in info.requests.items())
    return min(1, count) if info.host_ports else count


def max_fit_count(node_info: NodeInfo, infos: Iterable[PodInfo], free: Amounts | None = None) -> int:
    """Upper bound of how many pods of several classes fit."""
    return max(
        (fit_count(node_info, each, free) for each in infos if not filter_node(each.pod, node_info.node, each.volumes)),
        default=0,
    )


NO_NODES = "no nodes available to schedule pods"


@dataclass(frozen=True, slots=True, eq=False)
class Diagnosis:
    """Why no node takes the pods of a class. kube-scheduler's `framework.Diagnosis`, with the message of its `FitError`.

    `unresolvable`: nodes that would not take one either if pods were evicted (UnschedulableAndUnresolvable).
    """

    reasons: Mapping[str, tuple[str, ...]]  # by node
    unresolvable: frozenset[str]
    hint: str = field(default="", kw_only=True)  # what would have to change: a sentence of `fit_hints`

    @property
    def victims(self) -> tuple[Pod, ...] | None:
        """Victims that are known already, after whose eviction the pods fit; None: preemption looks for them."""
        return None

    def text(self, preemption: str = "") -> str:
        """`0/3 nodes are available: 1 Insufficient cpu, 2 node(s) were unschedulable. preemption: 0/3 nodes ... Fits if ...`"""
        if not self.reasons:
            return NO_NODES
        counted = Counter(reason for reasons in self.reasons.values() for reason in reasons)
        message = summarize_reasons(len(self.reasons), counted)
        return " ".join(filter(None, (message, preemption and f"preemption: {preemption}", self.hint)))


def summarize_reasons(nodes: int, counted: Mapping[str, int]) -> str:
    """`0/{nodes} nodes are available: `, and how many nodes have which reason."""
    return f"0/{nodes} nodes are available: {', '.join(sorted(map(_format_reason, counted, counted.values())))}."


def _format_reason(reason: str, count: int) -> str:
    return reason if is_pod_reason(reason) else f"{count} {reason}"
