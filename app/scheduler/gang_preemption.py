"""Gang preemption: which pods are evicted so that a whole gang fits; if it does not fit, none. Called by `scheduling_round`.

All is tried on the cluster, and rolled back. Pod by pod, while more must be placed: a pod that fits is placed, for another
the victims of the lowest cost are evicted. If that does not do, and the pods differ or have constraints on each other, all
pods of lower priority are evicted before the first is placed. In the end victims are reprieved, the most important first, as
long as every pod of the gang keeps its node. Kubernetes' workload-aware preemption.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from app.kinds.pod.pod import Pod
from app.scheduler.eviction_units import EvictionUnit, priority_of
from app.scheduler.filters import max_fit_count
from app.scheduler.gang_scheduling import PodGroupInfo
from app.scheduler.node_info import PlacedPod
from app.scheduler.node_ranking import Ranking
from app.scheduler.placement import (
    Assignment,
    Pending,
    Placement,
    nominated_placement,
    place_nominated,
    restrict,
    schedule,
)
from app.scheduler.preemption import CandidateSearch, PreemptionContext, Reprieve, Victims, free_without
from app.scheduler.shared_claims import find_sharers

NO_VICTIMS = Victims(())
MAX_PLACEMENTS, MAX_PLACEMENT_PODS = 16, 4_000  # topology domains that are tried, and pods of the gang in all of them
MAX_CHECKS = 5_000  # pods of the gang that are filtered again to find victims to reprieve


@dataclass(frozen=True, slots=True, eq=False)
class GangPreemption:
    """Nodes for the pods of a gang, and its victims; none if it is enough to wait for pods that are terminating."""

    assignments: Sequence[Assignment]
    victims: Victims = NO_VICTIMS


def gang_priority(group: PodGroupInfo) -> int:
    """That of its least important pod, or of the group if that is lower: a gang evicts what each of its pods could evict."""
    least = min(priority_of(pod) for pod, _ in group.pending.values())
    own = group.object.spec.priority if group.object is not None else None
    return least if own is None else min(least, own)


def find_earlier_preemption(group: PodGroupInfo, context: PreemptionContext) -> GangPreemption | None:
    """The nominated nodes, if the gang fits there as soon as all terminating pods are gone."""
    pods, cluster = group.sort_pending(), context.cluster
    placement = nominated_placement(group.topology_key, pods, group.bound.values(), cluster)
    if placement is False:
        return None
    with cluster.trial():
        for each in context.units.select_terminating(gang_priority(group), context.terminating):
            cluster.unplace(each.pod.metadata.uid)
        nodes = _nodes_by_uid(place_nominated(restrict(pods, placement), cluster))
    return GangPreemption(_assign(pods, nodes)) if len(nodes) >= max(group.needed_count, 1) else None


def find_preemption(group: PodGroupInfo, context: PreemptionContext) -> GangPreemption | None:
    """The preemption of the lowest cost among all placements. None for pods that need one node: it is not looked for."""
    if find_sharers(group.pending.values()):
        return None
    found = (_preempt_in(group, placement, context) for placement in _find_placements(group, context))
    return min((each for each in found if each is not None), key=lambda each: each.victims.cost, default=None)


def _find_placements(group: PodGroupInfo, context: PreemptionContext) -> Iterable[Placement]:
    """Placements that could fit enough pods without all pods of lower priority; those that fit most now first."""
    label, priority, node_infos = group.topology_key, gang_priority(group), context.cluster.node_infos
    used = {node_infos[name].node.metadata.labels.get(label) for name in group.bound.values() if name in node_infos}
    infos = {info.key: info for _, info in group.pending.values()}.values()
    fits_now: Counter[str] = Counter()
    fits_then: Counter[str] = Counter()
    for node_info in node_infos.values():
        value = node_info.node.metadata.labels.get(label, "") if label else label
        if not label or (value and (not used or value in used)):
            fits_now[value] += max_fit_count(node_info, infos)
            lower = context.units.select_lower(priority, node_info.pods.values())
            fits_then[value] += max_fit_count(node_info, infos, free_without(node_info, lower))
    enough = [value for value in fits_then if fits_then[value] >= max(group.needed_count, 1)]
    most = max(1, min(MAX_PLACEMENTS, MAX_PLACEMENT_PODS // len(group.pending)))
    first = sorted(enough, key=lambda value: (-fits_now[value], value))[:most]
    return [(label, value) if label else None for value in first]


def _preempt_in(group: PodGroupInfo, placement: Placement, context: PreemptionContext) -> GangPreemption | None:
    pods, priority = group.sort_pending(), gang_priority(group)
    equal_pods = [
        each if priority_of(each[0]) == priority else _with_priority(priority, each)
        for each in restrict(pods, placement)
    ]
    for evicts_all in (False, True):
        with context.cluster.trial():
            dry_run = _DryRun(equal_pods, max(group.needed_count, 1), priority, context)
            victims = dry_run.run(evicts_all=evicts_all)
        if victims is not None:
            nodes = _nodes_by_uid((pod, node) for pod, _, node in dry_run.assignments)
            return GangPreemption(_assign(pods, nodes), victims)
        if not dry_run.depends_on_pods and len({info.key for _, info in pods}) == 1:
            break  # another order would not help
    return None


class _DryRun:
    """Places a gang and evicts pods, in a trial of the caller."""

    def __init__(self, pods: Sequence[Pending], needed: int, priority: int, context: PreemptionContext) -> None:
        self._pods = pods
        self._needed = needed
        self._priority = priority
        self._context = context
        self._cluster = context.cluster
        classes = {info.key: (pod, info) for pod, info in pods}.values()
        self.is_plain = not any(
            info.depends_on_pods
            or info.required_anti_affinity
            or info.host_ports
            or self._cluster.pod_count_index.find_symmetric_terms(pod)
            for pod, info in classes
        )
        self.depends_on_pods = any(info.depends_on_pods for _, info in classes)
        self._resources = {name for _, info in classes for name in info.requests}
        self._checks_left = MAX_CHECKS
        self._evicted: list[PlacedPod] = []
        self._assigned_nodes: set[str] = set()
        self.assignments: list[Assignment] = []

    def run(self, *, evicts_all: bool) -> Victims | None:
        """None if too few pods fit."""
        for each in self._context.units.select_terminating(self._priority, self._context.terminating):
            self._cluster.unplace(each.pod.metadata.uid)
        (self._place_after_evicting_all if evicts_all else self._place_one_by_one)()
        if len(self.assignments) < self._needed:
            return None
        units = self._context.units.make(self._evicted, self._context.terminating)
        reprieve = Reprieve(units, self._context)
        self._assigned_nodes = {node for _, _, node in self.assignments}
        evicted = self._reprieve(reprieve.units)
        if evicts_all and self._checks_left < 0:
            return None  # too many victims might have been reprieved with more checks
        return reprieve.to_victims(evicted)

    # Placing

    def _place_one_by_one(self) -> None:
        search = CandidateSearch(self._context.copy(), for_many=True)
        left, before = list(self._pods), -1
        while left and len(self.assignments) > before:  # some may depend on others
            before = len(self.assignments)
            left = self._place_each(left, search)

    def _place_each(self, pods: Sequence[Pending], search: CandidateSearch) -> list[Pending]:
        left: list[Pending] = []
        failed: dict[Ranking, int] = {}  # classes without a node, and the search's version at which that was
        for number, (pod, info) in enumerate(pods):
            if len(self.assignments) == self._needed:
                return []
            if not self.depends_on_pods and len(self.assignments) + len(pods) - number < self._needed:
                return []
            ranking = self._cluster.ranking(pod, info)
            node = None if failed.get(ranking) == search.version else self._find_node((pod, info), ranking, search)
            if node is None:
                failed[ranking] = search.version
                left.append((pod, info))
            else:
                self._assign((pod, info), node)
        return left

    def _find_node(self, pending: Pending, ranking: Ranking, search: CandidateSearch) -> str | None:
        """A node that fits, or one that fits once its victims are evicted, which is done."""
        if node := ranking.best_node():
            search.version += 1
            return node
        found = search.find_best(*pending, ranking.diagnose)
        if isinstance(found, str):
            return None
        node, victims = found
        for pod in victims.pods:
            self._evict(pod.metadata.uid)
        return node

    def _place_after_evicting_all(self) -> None:
        for each in self._context.units.select_lower(self._priority, self._cluster.pods.values()):
            self._evict(each.pod.metadata.uid)
        infos = {pod.metadata.uid: info for pod, info in self._pods}
        for number, (pod, node) in enumerate(schedule(self._pods, self._cluster).bound):
            if number < self._needed:
                self.assignments.append((pod, infos[pod.metadata.uid], node))
            else:
                self._cluster.unplace(pod.metadata.uid)

    def _assign(self, pending: Pending, node: str) -> None:
        pod, info = pending
        self._cluster.place(pod, node, info)
        self.assignments.append((pod, info, node))

    def _evict(self, uid: str) -> None:
        placed = self._cluster.unplace(uid)
        if placed is not None:
            self._evicted.append(placed)

    # Reprieve

    def _reprieve(self, units: Iterable[EvictionUnit]) -> list[EvictionUnit]:
        """Place units back, in this order. Returns those that do not fit."""
        evicted: list[EvictionUnit] = []
        placed: list[EvictionUnit] = []
        for unit in units:
            if self._fits_free(unit):
                self._place_units([unit])
                placed.append(unit)
            else:
                evicted.append(unit)
        if self.is_plain or self._is_gang_placeable():
            return evicted
        self._unplace_units(placed)
        conflicting: list[EvictionUnit] = []
        self._reprieve_by_halves(placed, conflicting)
        return [
            unit for unit in (*conflicting, *evicted) if not (self._fits_free(unit) and self._reprieve_units([unit]))
        ]

    def _reprieve_by_halves(self, units: Sequence[EvictionUnit], evicted: list[EvictionUnit]) -> None:
        """Many at a time, as most of them conflict with no pod of the gang."""
        if not units or self._reprieve_units(units):
            return
        if len(units) == 1:
            evicted += units
            return
        half = len(units) // 2
        self._reprieve_by_halves(units[:half], evicted)
        self._reprieve_by_halves(units[half:], evicted)

    def _reprieve_units(self, units: Iterable[EvictionUnit]) -> bool:
        self._place_units(units)
        if self._is_gang_placeable():
            return True
        self._unplace_units(units)
        return False

    def _place_units(self, units: Iterable[EvictionUnit]) -> None:
        for each in (each for unit in units for each in unit.given):
            self._cluster.place(each.pod, each.node, each.info)

    def _unplace_units(self, units: Iterable[EvictionUnit]) -> None:
        for each in (each for unit in units for each in unit.given):
            self._cluster.unplace(each.pod.metadata.uid)

    def _fits_free(self, unit: EvictionUnit) -> bool:
        """Return whether a unit fits beside the gang by the resources that the gang requests."""
        requests: Counter[tuple[str, str]] = Counter()
        for each in unit.given:
            for name in self._resources if each.node in self._assigned_nodes else ():
                requests[each.node, name] += each.info.requests.get(name, 0)
        node_infos = self._cluster.node_infos
        return all(not count or node_infos[node].free.get(name, 0) >= count for (node, name), count in requests.items())

    def _is_gang_placeable(self) -> bool:
        """Return whether each pod of the gang passes the filters of its node, without itself there."""
        self._checks_left -= len(self.assignments)
        if self._checks_left < 0:
            return False
        for pod, info, node in self.assignments:
            self._cluster.unplace(pod.metadata.uid)
            reasons = self._cluster.filter_reasons(pod, info, node)
            self._cluster.place(pod, node, info)
            if reasons:
                return False
        return True


def _with_priority(priority: int, pending: Pending) -> Pending:
    pod, info = pending
    return replace(pod, spec=replace(pod.spec, priority=priority)), info


def _nodes_by_uid(bound: Iterable[tuple[Pod, str]]) -> dict[str, str]:
    return {pod.metadata.uid: node for pod, node in bound}


def _assign(pods: Iterable[Pending], nodes: dict[str, str]) -> list[Assignment]:
    """With the original pods, not those that were restricted to a placement."""
    return [(pod, info, nodes[uid]) for pod, info in pods if (uid := pod.metadata.uid) in nodes]
