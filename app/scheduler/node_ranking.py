"""Node ranking: nodes that pass the filters for one scheduling class, in order of score.

It is updated by what changed since it was last asked. Nodes that differ only in load are one group, a heap by score. Where a
class has constraints on other pods, there is a group for each combination of domain values, and a heap of groups: a placement
then changes only the groups of its domains. Called by `Cluster`.
"""

import heapq
from collections import defaultdict
from collections.abc import Collection, Container, Iterable
from typing import TYPE_CHECKING

from app.kinds.pod.pod import Pod
from app.plans.volumes.pod_volumes import PodVolumes
from app.scheduler import filters, scores
from app.scheduler.filters import Diagnosis
from app.scheduler.fit_hints import find_hint
from app.scheduler.node_info import NodeInfo, has_port_conflict
from app.scheduler.pod_affinity import AFFINITY_MISMATCH, Domain, DomainValues, PodConstraints
from app.scheduler.pod_counts import PodCounts, SymmetricTerm
from app.scheduler.pod_info import PodInfo
from app.scheduler.topology_spread import SPREAD_LABEL_MISSING

if TYPE_CHECKING:
    from app.scheduler.cache import Cluster

_UNRESOLVABLE = frozenset({AFFINITY_MISMATCH, SPREAD_LABEL_MISSING})  # remain when pods are evicted
_STALE_ENTRIES = 64  # of a heap, that need not be removed
_Entry = tuple[float, str, int]
"""Negated score, so that the best is the least; node; its generation."""


class FilterCache:
    """Results of the filters and scores that depend only on pod and Node object, for pods of one filter key."""

    __slots__ = ("__weakref__", "_images", "_node_generations", "_pod", "_volumes", "rejected", "scores")

    def __init__(self, pod: Pod, volumes: PodVolumes | None, images: frozenset[str]) -> None:
        """`pod`, `volumes`: any with the key. `images`: of the pods' images, those that are on some node; equal for all."""
        self._pod, self._volumes, self._images = pod, volumes, images
        self._node_generations: dict[str, int] = {}
        self.rejected: dict[str, str] = {}  # why, by node
        self.scores: dict[str, float] = {}  # of the other nodes

    def add_node(self, name: str, node_info: NodeInfo) -> None:
        """A node is new or may have changed."""
        if self._node_generations.get(name) == node_info.node_generation:
            return
        self.remove_node(name)
        self._node_generations[name] = node_info.node_generation
        if reason := filters.filter_node(self._pod, node_info.node, self._volumes):
            self.rejected[name] = reason
        else:
            self.scores[name] = scores.score_node(self._pod, node_info.node, self._images)

    def remove_node(self, name: str) -> None:
        self._node_generations.pop(name, None)
        self.rejected.pop(name, None)
        self.scores.pop(name, None)

    def retain(self, names: Container[str]) -> None:
        """Remove all nodes but these."""
        for name in [each for each in self._node_generations if each not in names]:
            self.remove_node(name)


class _Group:
    """Nodes with the same domain values."""

    __slots__ = ("best", "evaluation", "heap", "rejection", "values")

    def __init__(self, values: DomainValues) -> None:
        self.values = values
        self.heap: list[_Entry] = []
        self.rejection = ""  # by a constraint on other pods
        self.evaluation = 0
        self.best: _Entry | None = None  # at its evaluation


class Ranking:
    def __init__(
        self,
        cluster: "Cluster",
        pod: Pod,
        info: PodInfo,
        symmetric_terms: Collection[tuple[SymmetricTerm, PodCounts]],
        filter_cache: FilterCache,
    ) -> None:
        self.info = info
        self._pod = pod
        self._cluster = cluster
        self._filter_cache = filter_cache
        self._requests = tuple(info.requests.items())
        self._host_ports = info.host_ports
        self._prefers_allocated = cluster.settings.prefers_allocated
        self._constraints = PodConstraints(cluster, pod, info, symmetric_terms)
        self._is_plain = not self._constraints
        # A node that has only become fuller has a worse score: that is computed when its entry is the best.
        self._is_lazy = self._is_plain and not self._prefers_allocated
        self._groups: dict[DomainValues, _Group] = {}
        self._groups_by_domain: defaultdict[Domain, dict[DomainValues, _Group]] = defaultdict(dict)
        self._group_heap: list[tuple[float, str, int, _Group]] = []
        self._changed_groups: dict[DomainValues, _Group] = {}
        self._global_state: object = None
        self._evaluations = 0
        self._seen_generation = 0
        self._rebuild()

    def close(self) -> None:
        """It is not asked any more."""
        self._constraints.close()

    def best_node(self) -> str | None:
        """The node with the best score now; None if no node passes the filters."""
        self._catch_up()
        if self._is_lazy:
            return self._best_lazily(self._groups[()].heap)
        if self._is_plain:
            best = self._best_of(self._groups[()])
            return best[1] if best else None
        while self._group_heap:
            _, name, evaluation, group = self._group_heap[0]
            if group.evaluation == evaluation:
                if self._best_of(group) is group.best:
                    return name
                self._evaluate(group)
            else:
                heapq.heappop(self._group_heap)
        return None

    def filter_reasons(self, name: str) -> tuple[str, ...]:
        """Return why a node is rejected, by the first filter that rejects it; empty if it passes."""
        self._catch_up()
        return self._filter_reasons(name)

    def _filter_reasons(self, name: str) -> tuple[str, ...]:
        node_info = self._cluster.node_infos[name]
        if reason := self._filter_cache.rejected.get(name):
            return (reason,)
        if self._host_ports and has_port_conflict(self._host_ports, node_info.used_ports):
            return (filters.PORTS_TAKEN,)
        if insufficient := filters.find_insufficient(node_info.free, self.info.requests):
            return tuple(map(filters.insufficient_reason, insufficient))
        reason = "" if self._is_plain else self._groups[self._constraints.domain_values(node_info.node)].rejection
        return (reason,) if reason else ()

    def diagnose(self) -> Diagnosis:
        self._catch_up()
        reasons = {name: self._filter_reasons(name) for name in self._cluster.node_infos}
        hint = find_hint(self._pod, self.info, self._cluster.node_infos, reasons)
        return Diagnosis(reasons, frozenset(name for name in reasons if self._is_unresolvable(name)), hint=hint)

    def _is_unresolvable(self, name: str) -> bool:
        """A node would be rejected without any pods on it, too."""
        node_info = self._cluster.node_infos[name]
        if name in self._filter_cache.rejected or filters.find_insufficient(node_info.allocatable, self.info.requests):
            return True
        if self._is_plain:
            return False
        return self._groups[self._constraints.domain_values(node_info.node)].rejection in _UNRESOLVABLE

    # Following the cluster

    def _catch_up(self) -> None:
        since, self._seen_generation = self._seen_generation, self._cluster.generation
        if since == self._seen_generation or (self._is_lazy and self._cluster.freed_generation <= since):
            return
        changed = self._cluster.changed_since(since)
        if changed is not None and self._is_lazy:
            node_infos = self._cluster.node_infos
            changed = [
                name
                for name in changed
                if (node_info := node_infos.get(name)) is None or node_info.freed_generation > since
            ]
            if 2 * len(changed) > len(node_infos):  # many have come: one by one they would cost more
                changed = None
        if changed is None:
            self._rebuild()
            return
        for name in dict.fromkeys(changed):
            self._update_node(name, since)
        if not self._is_plain:
            self._evaluate_changed()

    def _rebuild(self) -> None:
        self._seen_generation = self._cluster.generation
        for table in (self._groups, self._groups_by_domain, self._changed_groups):
            table.clear()
        self._group_heap.clear()
        self._filter_cache.retain(self._cluster.node_infos)
        self._constraints.clear()
        if self._is_plain:
            self._groups[()] = _Group(())
        if self._is_lazy:
            self._fill_lazily()
            return
        for name in self._cluster.node_infos:
            self._update_node(name, -1)
        if not self._is_plain:
            self._evaluate_changed()

    def _fill_lazily(self) -> None:
        """As `_update_node` of all nodes does; but that a node has enough free is checked when its entry is the best."""
        filter_cache, heap = self._filter_cache, self._groups[()].heap
        for name, node_info in self._cluster.node_infos.items():
            filter_cache.add_node(name, node_info)
            node_score = filter_cache.scores.get(name)
            if node_score is not None:
                heap.append((-node_score - self._score_lazily(node_info), name, node_info.generation))
        heapq.heapify(heap)

    def _update_node(self, name: str, since: int) -> None:
        node_info = self._cluster.node_infos.get(name)
        if node_info is None or node_info.node_generation > since:
            if not self._is_plain:
                self._mark_changed(self._constraints.remove_node(name))
            if node_info is None:
                self._filter_cache.remove_node(name)
                return
            self._add_node(name, node_info)
        else:
            if not self._is_plain:
                self._mark_changed(self._constraints.update_node(name))
            if node_info.freed_generation <= since and not self._prefers_allocated:
                return
        if name in self._filter_cache.scores:
            self._push(name, node_info)

    def _add_node(self, name: str, node_info: NodeInfo) -> None:
        self._filter_cache.add_node(name, node_info)
        if self._is_plain:
            return
        self._mark_changed(self._constraints.add_node(node_info.node))
        values = self._constraints.domain_values(node_info.node)
        if values not in self._groups:
            group = self._groups[values] = self._changed_groups[values] = _Group(values)
            for domain in zip(self._constraints.topology_keys, values, strict=True):
                self._groups_by_domain[domain][values] = group

    def _mark_changed(self, domains: Iterable[Domain]) -> None:
        for domain in domains:
            self._changed_groups.update(self._groups_by_domain.get(domain, {}))

    def _push(self, name: str, node_info: NodeInfo) -> None:
        group = self._groups[() if self._is_plain else self._constraints.domain_values(node_info.node)]
        score = self._negated_score(name, node_info)
        if score is None:
            return
        heapq.heappush(group.heap, (score, name, node_info.generation))
        if len(group.heap) > _STALE_ENTRIES + 2 * len(self._filter_cache.scores):
            self._remove_stale(group)
        if not self._is_plain:
            self._changed_groups[group.values] = group

    def _negated_score(self, name: str, node_info: NodeInfo) -> float | None:
        """None if the pod does not fit what is free."""
        if not self._fits(node_info):
            return None
        resources = scores.score_resources(node_info, self.info, prefers_allocated=self._prefers_allocated)
        return -self._filter_cache.scores[name] - resources

    def _fits(self, node_info: NodeInfo) -> bool:
        free = node_info.free
        for resource, count in self._requests:
            if free.get(resource, 0) < count:
                return False
        return not (self._host_ports and has_port_conflict(self._host_ports, node_info.used_ports))

    def _remove_stale(self, group: _Group) -> None:
        """Leave one entry for each node."""
        names = dict.fromkeys(name for _, name, _ in group.heap)
        group.heap = []
        for name in names:
            node_info = self._cluster.node_infos.get(name)
            if node_info is not None and name in self._filter_cache.scores and self._is_in(group, node_info):
                score = self._negated_score(name, node_info)
                if score is not None:
                    group.heap.append((score, name, node_info.generation))
        heapq.heapify(group.heap)

    def _is_in(self, group: _Group, node_info: NodeInfo) -> bool:
        return self._is_plain or self._constraints.domain_values(node_info.node) == group.values

    def _best_of(self, group: _Group) -> _Entry | None:
        """The best node of a group. A stale entry never has too bad a score: a node whose score rose has a new entry."""
        heap, node_infos = group.heap, self._cluster.node_infos
        while heap:
            best = heap[0]
            _, name, generation = best
            node_info = node_infos.get(name)
            if node_info is None or name not in self._filter_cache.scores or not self._is_in(group, node_info):
                heapq.heappop(heap)
                continue
            if node_info.generation == generation:
                return best
            score = self._negated_score(name, node_info)
            if score is None:
                heapq.heappop(heap)
            else:
                heapq.heapreplace(heap, (score, name, node_info.generation))
        return None

    def _best_lazily(self, heap: list[_Entry]) -> str | None:
        """`_best_of`, where pods of other classes make most entries stale: many are looked at for each pod that is placed.

        So that a node has enough free is checked only when its entry is the best.
        """
        node_infos, node_scores = self._cluster.node_infos, self._filter_cache.scores
        while heap:
            _, name, generation = heap[0]
            node_info, node_score = node_infos.get(name), node_scores.get(name)
            if node_info is None or node_score is None:
                heapq.heappop(heap)
            elif node_info.generation != generation:
                heapq.heapreplace(heap, (-node_score - self._score_lazily(node_info), name, node_info.generation))
            elif self._fits(node_info):
                return name
            else:
                heapq.heappop(heap)
        return None

    def _score_lazily(self, node_info: NodeInfo) -> float:
        """`scores.score_resources`, without the calls: this is asked about ten times for each pod that is placed."""
        info = self.info
        cpu = (node_info.nonzero_free_cpu - info.nonzero_cpu) * node_info.percent_per_millicpu
        memory = (node_info.nonzero_free_memory - info.nonzero_memory) * node_info.percent_per_byte
        smaller = cpu if cpu < memory else memory  # noqa: FURB136 - a call takes three times as long
        return smaller if smaller > 0 else 0.0

    def _evaluate_changed(self) -> None:
        """Evaluate the groups that have changed; all groups if the constraints' global state has."""
        global_state = self._constraints.global_state()
        if global_state != self._global_state:
            self._global_state = global_state
            self._changed_groups = dict(self._groups)
        for group in self._changed_groups.values():
            self._evaluate(group)
        self._changed_groups = {}
        if len(self._group_heap) > _STALE_ENTRIES + 2 * len(self._groups):
            self._group_heap = [each for each in self._group_heap if each[3].evaluation == each[2]]
            heapq.heapify(self._group_heap)

    def _evaluate(self, group: _Group) -> None:
        self._evaluations += 1
        group.evaluation = self._evaluations
        group.rejection = self._constraints.filter(group.values)
        group.best = None if group.rejection else self._best_of(group)
        if group.best is not None:
            score, name, _ = group.best
            heapq.heappush(
                self._group_heap, (score - self._constraints.score(group.values), name, group.evaluation, group)
            )
