"""Pod counts: pods on each node, by label selector or by (anti-)affinity term.

`Cluster` updates the counts as pods come and go, and only while a scheduling class uses them: a cluster without pod affinity
and without topology spread constraints counts nothing. Used by `pod_affinity` and `topology_spread`.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Generic, Literal, NamedTuple, TypeVar

from app.kinds.pod.pod import Pod
from app.machinery.selectors import Selector

T = TypeVar("T")
NamespaceLabels = Mapping[str, Mapping[str, str]]
"""Labels of each namespace, by its name."""


class PodSelector(NamedTuple):
    """Pods by namespace and labels. `namespace_selector`: further namespaces; `skips_terminating`: without pods being deleted."""

    namespaces: frozenset[str]
    namespace_selector: Selector | None
    labels: Selector
    skips_terminating: bool = False

    def matches(self, pod: Pod, namespaces: NamespaceLabels) -> bool:
        meta = pod.metadata
        if meta.namespace not in self.namespaces and not (
            self.namespace_selector is not None and self.namespace_selector.matches(namespaces.get(meta.namespace, {}))
        ):
            return False
        return self.labels.matches(meta.labels) and not (self.skips_terminating and meta.deletion_timestamp is not None)


PodSelectors = tuple[PodSelector, ...]
"""Pods that all of these match."""


class AffinityTerm(NamedTuple):
    """Pods, and the node label whose values are the topology domains."""

    pods: PodSelector
    topology_key: str


class SymmetricTerm(NamedTuple):
    """Affinity term of a pod on a node that counts for incoming pods, too. `weight` of a preference; negative: anti-affinity."""

    kind: Literal["anti-affinity", "affinity", "preferred"]
    term: AffinityTerm
    weight: int = 0


class PodCounts:
    """Matching pods by node. `number` is never given twice: counts that start anew differ from the earlier ones."""

    __slots__ = ("by_node", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.by_node: dict[str, int] = {}

    def add(self, node: str, count: int) -> None:
        total = self.by_node.get(node, 0) + count
        if total:
            self.by_node[node] = total
        else:
            self.by_node.pop(node, None)


class _SelectorIndex(Generic[T]):
    """Finds the selectors that match a pod, by a label that a selector requires, where it requires one."""

    def __init__(self) -> None:
        self._by_label: defaultdict[tuple[str, str], dict[T, PodSelector]] = defaultdict(dict)
        self._others: dict[T, PodSelector] = {}

    def add(self, key: T, selector: PodSelector) -> None:
        label = _required_label(selector)
        (self._by_label[label] if label else self._others)[key] = selector

    def remove(self, key: T, selector: PodSelector) -> None:
        label = _required_label(selector)
        if label is None:
            del self._others[key]
            return
        del self._by_label[label][key]
        if not self._by_label[label]:
            del self._by_label[label]

    def find(self, pod: Pod, namespaces: NamespaceLabels) -> Iterator[T]:
        for key, selector in self._others.items():
            if selector.matches(pod, namespaces):
                yield key
        for label in pod.metadata.labels.items() if self._by_label else ():
            for key, selector in self._by_label[label].items() if label in self._by_label else ():
                if selector.matches(pod, namespaces):
                    yield key


def _required_label(selector: PodSelector) -> tuple[str, str] | None:
    for each in selector.labels.requirements:
        if each.among and len(each.values) == 1 and (value := next(iter(each.values))) is not None:
            return each.key, value
    return None


class PodCountIndex:
    """All counts of a cluster: of selectors that scheduling classes use, and of terms that pods on nodes have."""

    def __init__(self, namespaces: NamespaceLabels) -> None:
        self._namespaces = namespaces
        self._last_number = 0
        self._counts: dict[PodSelectors, PodCounts] = {}
        self._users: defaultdict[PodSelectors, int] = defaultdict(int)
        self._selector_index: _SelectorIndex[PodSelectors] = _SelectorIndex()
        self._symmetric: dict[SymmetricTerm, PodCounts] = {}
        self._symmetric_index: _SelectorIndex[SymmetricTerm] = _SelectorIndex()

    def _new_counts(self) -> PodCounts:
        self._last_number += 1
        return PodCounts(self._last_number)

    def count_pod(self, pod: Pod, terms: Iterable[SymmetricTerm], node: str, sign: int) -> None:
        """Count a pod that came to a node; with sign -1, one that left it. `terms`: the pod's own."""
        if self._counts:
            for selectors in list(self._selector_index.find(pod, self._namespaces)):
                if len(selectors) == 1 or self.match_all(selectors, pod):
                    self._counts[selectors].add(node, sign)
        for term in terms:
            self._count_symmetric(term, node, sign)

    def _count_symmetric(self, term: SymmetricTerm, node: str, sign: int) -> None:
        counts = self._symmetric.get(term)
        if counts is None:
            counts = self._symmetric[term] = self._new_counts()
            self._symmetric_index.add(term, term.term.pods)
        counts.add(node, sign)
        if not counts.by_node:
            del self._symmetric[term]
            self._symmetric_index.remove(term, term.term.pods)

    def match_all(self, selectors: PodSelectors, pod: Pod) -> bool:
        return all(each.matches(pod, self._namespaces) for each in selectors)

    def acquire(self, selectors: PodSelectors, placed: Iterable[tuple[Pod, str]]) -> PodCounts:
        """Counts of the matching pods, kept up to date until each `acquire` is released. `placed`: all pods with their nodes."""
        self._users[selectors] += 1
        if selectors not in self._counts:
            counts = self._counts[selectors] = self._new_counts()
            for pod, node in placed:
                if self.match_all(selectors, pod):
                    counts.add(node, 1)
            self._selector_index.add(selectors, selectors[0])
        return self._counts[selectors]

    def release(self, selectors: PodSelectors) -> None:
        self._users[selectors] -= 1
        if not self._users[selectors]:
            del self._users[selectors], self._counts[selectors]
            self._selector_index.remove(selectors, selectors[0])

    def find_symmetric_terms(self, pod: Pod) -> tuple[tuple[SymmetricTerm, PodCounts], ...]:
        """Terms of pods on nodes that match an incoming pod, with the nodes of those pods."""
        if not self._symmetric:
            return ()
        found = [(term, self._symmetric[term]) for term in self._symmetric_index.find(pod, self._namespaces)]
        return tuple(sorted(found, key=_number))

    @property
    def has_symmetric_terms(self) -> bool:
        """Some pod on a node has an (anti-)affinity term."""
        return bool(self._symmetric)

    @property
    def is_idle(self) -> bool:
        """Nothing is counted."""
        return not self._counts and not self._symmetric


def _number(found: tuple[SymmetricTerm, PodCounts]) -> int:
    return found[1].number
