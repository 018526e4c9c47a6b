"""Pod affinity and anti-affinity: of incoming pods, and of pods on nodes against or for them (symmetry).

`PodConstraints` has all inter-pod constraints of one scheduling class, topology spread included; `node_ranking` makes and
asks it. kube-scheduler's plugin InterPodAffinity, with its messages.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING

from app.kinds.core.node import Node
from app.kinds.pod.pod import Pod
from app.scheduler.pod_counts import AffinityTerm, PodCounts, PodSelector, PodSelectors, SymmetricTerm
from app.scheduler.pod_info import PodInfo, SpreadConstraint
from app.scheduler.scores import POD_CONSTRAINT_WEIGHT
from app.scheduler.topology_spread import Domains, HardSpread, PodConstraint, SoftSpread, TopologySpread

if TYPE_CHECKING:
    from app.scheduler.cache import Cluster

AFFINITY_MISMATCH = "node(s) didn't match pod affinity rules"
ANTI_AFFINITY_MISMATCH = "node(s) didn't match pod anti-affinity rules"
EXISTING_ANTI_AFFINITY_MISMATCH = "node(s) didn't satisfy existing pods anti-affinity rules"

_AVOIDED_POD_COST = 0.2  # of the weight, for each pod that preferred anti-affinity avoids
_HARD_POD_AFFINITY_WEIGHT = 1  # of required affinity of pods on nodes to the incoming pod, as in kube-scheduler

Domain = tuple[str, str | None]
"""A label and its value; None: nodes without the label."""
DomainValues = tuple[str | None, ...]
"""Values of all labels that the constraints of a class name."""


class RequiredAffinity(PodConstraint):
    """Matching pods must be in the domain. If there are none anywhere, a pod that matches its own terms may be the first."""

    def __init__(
        self,
        topology_key: str,
        pod_counts: PodCounts,
        matches_itself: bool,
        all_terms: "Sequence[RequiredAffinity]",
    ) -> None:
        super().__init__(topology_key, pod_counts)
        self._matches_itself = matches_itself
        self._all_terms = all_terms  # of the pod; filled while they are made

    def filter(self, value: str | None) -> str:
        if value is None:
            return AFFINITY_MISMATCH
        return "" if self.domains.counts.get(value, 0) or self.may_be_first() else AFFINITY_MISMATCH

    def may_be_first(self) -> bool:
        return self._matches_itself and not any(each.domains.has_pods for each in self._all_terms)

    def global_state(self) -> object:
        return self.may_be_first()


class RequiredAntiAffinity(PodConstraint):
    """No matching pod may be in the domain. Of the incoming pod or, by symmetry, of a pod on a node."""

    def __init__(self, topology_key: str, pod_counts: PodCounts, message: str) -> None:
        super().__init__(topology_key, pod_counts)
        self._message = message

    def filter(self, value: str | None) -> str:
        return self._message if value is not None and self.domains.counts.get(value, 0) else ""


class PreferredAffinity(PodConstraint):
    """Preferred affinity or, with a negative weight, anti-affinity; of the incoming pod or of pods on nodes.

    One pod to be near is nearly as good as many; each pod to avoid makes a domain worse.
    """

    def __init__(self, topology_key: str, pod_counts: PodCounts, weight: float) -> None:
        super().__init__(topology_key, pod_counts)
        self._weight = weight

    def score(self, value: str | None) -> float:
        count = self.domains.counts.get(value, 0) if value is not None else 0
        return self._weight * (count / (count + 1) if self._weight > 0 else count * _AVOIDED_POD_COST)


class PodConstraints:
    """All constraints of a class on other pods, in the order of kube-scheduler's filters. False if there are none."""

    def __init__(
        self,
        cluster: "Cluster",
        pod: Pod,
        info: PodInfo,
        symmetric_terms: Collection[tuple[SymmetricTerm, PodCounts]],
    ) -> None:
        self._cluster = cluster
        self._acquired: list[PodSelectors] = []
        self._constraints: list[PodConstraint] = [
            *self._make_spreads(pod, info.spread_constraints),
            *self._make_required_affinity(pod, info.required_affinity),
            *(
                RequiredAntiAffinity(term.topology_key, self._count(term.pods), ANTI_AFFINITY_MISMATCH)
                for term in info.required_anti_affinity
            ),
            *(
                RequiredAntiAffinity(each.term.topology_key, pod_counts, EXISTING_ANTI_AFFINITY_MISMATCH)
                for each, pod_counts in symmetric_terms
                if each.kind == "anti-affinity"
            ),
            *self._make_preferences(info, symmetric_terms),
        ]
        self.topology_keys = tuple(dict.fromkeys(each.topology_key for each in self._constraints))
        self._indexed = [(self.topology_keys.index(each.topology_key), each) for each in self._constraints]

    def __bool__(self) -> bool:
        return bool(self._constraints)

    def _count(self, *selectors: PodSelector) -> PodCounts:
        self._acquired.append(selectors)
        return self._cluster.acquire_counts(selectors)

    def _make_required_affinity(self, pod: Pod, terms: tuple[AffinityTerm, ...]) -> Iterable[RequiredAffinity]:
        """Only pods that all of the terms match count for each term, as in kube-scheduler."""
        if not terms:
            return []
        selectors = tuple(each.pods for each in terms)
        pod_counts = self._count(*selectors)
        matches_itself = self._cluster.pod_count_index.match_all(selectors, pod)
        made: list[RequiredAffinity] = []
        made += (
            RequiredAffinity(key, pod_counts, matches_itself, made)
            for key in dict.fromkeys(each.topology_key for each in terms)
        )
        return made

    def _make_spreads(self, pod: Pod, spread_constraints: tuple[SpreadConstraint, ...]) -> Iterator[TopologySpread]:
        for make, is_hard in ((HardSpread, True), (SoftSpread, False)):
            chosen = [each for each in spread_constraints if each.is_hard is is_hard]
            labels = {each.term.topology_key for each in chosen}
            for each in chosen:
                matches_itself = each.term.pods.labels.matches(pod.metadata.labels)
                yield make(each, self._count(each.term.pods), pod, labels, matches_itself)

    def _make_preferences(
        self, info: PodInfo, symmetric_terms: Iterable[tuple[SymmetricTerm, PodCounts]]
    ) -> Iterator[PreferredAffinity]:
        """100 points for all preferences of both sides together."""
        found = [(term.topology_key, self._count(term.pods), weight) for term, weight in info.preferred_affinity]
        found += [
            (each.term.topology_key, pod_counts, each.weight or _HARD_POD_AFFINITY_WEIGHT)
            for each, pod_counts in symmetric_terms
            if each.kind != "anti-affinity"
        ]
        total = sum(abs(weight) for _, _, weight in found)
        return (PreferredAffinity(key, pod_counts, 100 * weight / total) for key, pod_counts, weight in found)

    def close(self) -> None:
        """Release the counts."""
        for selectors in self._acquired:
            self._cluster.pod_count_index.release(selectors)

    def domain_values(self, node: Node) -> DomainValues:
        labels = node.metadata.labels
        return tuple([labels.get(key) for key in self.topology_keys])

    # Changes of nodes; each returns the domains whose results have to be computed again

    def add_node(self, node: Node) -> Iterator[Domain]:
        """A node is new or has changed."""
        return ((each.topology_key, value) for each in self._constraints if (value := each.add_node(node)) is not None)

    def update_node(self, name: str) -> Iterator[Domain]:
        """Pods came to a node, or left it."""
        return (
            (each.topology_key, value) for each in self._constraints if (value := each.update_node(name)) is not None
        )

    def remove_node(self, name: str) -> Iterator[Domain]:
        """A node is gone, or about to be added again."""
        return (
            (each.topology_key, value)
            for each in self._constraints
            if (value := each.domains.remove_node(name)) is not None
        )

    def clear(self) -> None:
        """Remove all nodes."""
        for each in self._constraints:
            each.domains = Domains()

    # Results

    def global_state(self) -> list[object]:
        return [each.global_state() for each in self._constraints]

    def filter(self, values: DomainValues) -> str:
        """Return why nodes with these values are rejected, by the first constraint that rejects them; empty if they pass."""
        for at, constraint in self._indexed:
            if reason := constraint.filter(values[at]):
                return reason
        return ""

    def score(self, values: DomainValues) -> float:
        return POD_CONSTRAINT_WEIGHT * sum(constraint.score(values[at]) for at, constraint in self._indexed)
