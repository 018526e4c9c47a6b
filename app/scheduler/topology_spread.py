"""Topology spread: topologySpreadConstraints of a scheduling class, on counts of pods by topology domain.

A topology domain is all nodes with one value of a label. `Domains` and `PodConstraint` also serve `pod_affinity`; they follow the
nodes that have changed, one by one, and never count all pods again. kube-scheduler's plugin PodTopologySpread.
"""

from collections import defaultdict
from collections.abc import Collection

from app.kinds.core.node import Node
from app.kinds.pod.pod import Pod
from app.scheduler.filters import matches_node_affinity, tolerates_taints
from app.scheduler.pod_counts import PodCounts
from app.scheduler.pod_info import SpreadConstraint

SPREAD_MISMATCH = "node(s) didn't match pod topology spread constraints"
SPREAD_LABEL_MISSING = f"{SPREAD_MISMATCH} (missing required label)"

_POINTS_PER_POD = 10.0  # ScheduleAnyway: lost for each pod of the domain
_NO_DOMAIN_SCORE = -10_000.0


class Domains:
    """Domains of one label that have nodes: `counts` of pods by value, and the smallest of them."""

    __slots__ = ("_domains_by_count", "_node_counts", "_nodes", "counts", "min_count")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.min_count = 0  # of any domain; 0 if there is none
        self._nodes: defaultdict[str, int] = defaultdict(int)  # nodes by value
        self._node_counts: dict[str, tuple[str, int]] = {}  # value and pods by node
        self._domains_by_count: defaultdict[int, int] = defaultdict(int)

    def add_node(self, node: str, value: str, count: int) -> None:
        self._node_counts[node] = (value, count)
        self._nodes[value] += 1
        if count or value not in self.counts:
            self._add(value, count)

    def update_node(self, node: str, count: int) -> str | None:
        """Set the pods of a node. Returns its domain if that changes it."""
        known = self._node_counts.get(node)
        if known is None or known[1] == count:
            return None
        value = known[0]
        self._node_counts[node] = (value, count)
        self._add(value, count - known[1])
        return value

    def remove_node(self, node: str) -> str | None:
        """Returns the domain that it was in."""
        known = self._node_counts.pop(node, None)
        if known is None:
            return None
        value, count = known
        if count:
            self._add(value, -count)
        self._nodes[value] -= 1
        if not self._nodes[value]:
            del self._nodes[value]
            self._count_domain(self.counts.pop(value), -1)
            self._find_minimum()
        return value

    def _add(self, value: str, difference: int) -> None:
        before = self.counts.get(value)
        after = self.counts[value] = (before or 0) + difference
        self._count_domain(after, 1)
        if before is not None:
            self._count_domain(before, -1)
        if after < self.min_count or self.min_count not in self._domains_by_count:
            self._find_minimum()

    def _count_domain(self, count: int, sign: int) -> None:
        self._domains_by_count[count] += sign
        if not self._domains_by_count[count]:
            del self._domains_by_count[count]

    def _find_minimum(self) -> None:
        self.min_count = min(self._domains_by_count, default=0)

    @property
    def has_pods(self) -> bool:
        """Some domain has a pod."""
        return bool(self._domains_by_count) and (len(self._domains_by_count) > 1 or 0 not in self._domains_by_count)


class PodConstraint:
    """One constraint or preference of a scheduling class about the pods of a node's domain."""

    def __init__(self, topology_key: str, pod_counts: PodCounts) -> None:
        self.topology_key = topology_key
        self.pod_counts = pod_counts
        self.domains = Domains()

    def counts_node(self, node: Node) -> bool:  # noqa: ARG002 - some constraints look
        """Return whether the pods of a node with the label count."""
        return True

    def add_node(self, node: Node) -> str | None:
        """Returns the domain of a node that is new or has changed; None without the label."""
        value = node.metadata.labels.get(self.topology_key)
        if value is not None and self.counts_node(node):
            count = self.pod_counts.by_node.get(node.metadata.name, 0)
            self.domains.add_node(node.metadata.name, value, count)
        return value

    def update_node(self, name: str) -> str | None:
        """Returns the domain of a node whose pods have changed, if that changes it."""
        return self.domains.update_node(name, self.pod_counts.by_node.get(name, 0))

    def filter(self, value: str | None) -> str:  # noqa: ARG002 - a preference rejects nothing
        """Return why nodes of a domain are rejected; empty if they pass. None: nodes without the label."""
        return ""

    def score(self, value: str | None) -> float:  # noqa: ARG002 - a requirement prefers nothing
        """Points of a domain."""
        return 0.0

    def global_state(self) -> object:
        """Return what the results for all domains depend on; once it changes, all are computed again."""
        return None


class TopologySpread(PodConstraint):
    """One topology spread constraint. Nodes count that have the labels of all constraints, and that the pod could be on."""

    def __init__(
        self,
        constraint: SpreadConstraint,
        pod_counts: PodCounts,
        pod: Pod,
        required_labels: Collection[str],
        matches_itself: bool,
    ) -> None:
        super().__init__(constraint.term.topology_key, pod_counts)
        self._constraint = constraint
        self._pod = pod
        self._required_labels = required_labels
        self._itself = int(matches_itself)

    def counts_node(self, node: Node) -> bool:
        if any(label not in node.metadata.labels for label in self._required_labels):
            return False
        if self._constraint.honors_affinity and not matches_node_affinity(self._pod, node):
            return False
        return not self._constraint.honors_taints or tolerates_taints(self._pod, node)


class HardSpread(TopologySpread):
    """DoNotSchedule: no domain may have over `max_skew` pods more than the one with the fewest."""

    def filter(self, value: str | None) -> str:
        if value is None:
            return SPREAD_LABEL_MISSING
        count = self.domains.counts.get(value, 0)
        return SPREAD_MISMATCH if count + self._itself - self.global_state() > self._constraint.max_skew else ""

    def global_state(self) -> int:
        """Pods of the domain with the fewest; 0 while there are fewer domains than minDomains."""
        return self.domains.min_count if len(self.domains.counts) >= self._constraint.min_domains else 0


class SoftSpread(TopologySpread):
    """ScheduleAnyway: the fewer pods the better, whatever other domains have."""

    def score(self, value: str | None) -> float:
        if value is None:
            return _NO_DOMAIN_SCORE
        return -self.domains.counts.get(value, 0) * _POINTS_PER_POD / max(1, self._constraint.max_skew)
