"""Preemption: candidate nodes for a pod that fits nowhere, and the victims on each: the pods of lower priority to evict.

As few and as unimportant victims as possible; pods that are terminating anyway count as gone, and nobody is evicted in their
place. `scheduling_round` asks `CandidateSearch` for pods; `gang_preemption` for gangs, in a dry run. kube-scheduler's plugin
DefaultPreemption.
"""

import heapq
import math
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_resources import Amounts
from app.scheduler import filters
from app.scheduler.cache import Cluster
from app.scheduler.eviction_units import (
    DisruptionBudgets,
    EvictionUnit,
    EvictionUnits,
    importance,
    priority_of,
    start_time,
)
from app.scheduler.filters import Diagnosis, summarize_reasons
from app.scheduler.node_info import NodeInfo, PlacedPod
from app.scheduler.node_ranking import Ranking
from app.scheduler.pod_info import PodInfo

NO_VICTIMS_FOUND = "No preemption victims found for incoming pod"
NOT_HELPFUL = "Preemption is not helpful for scheduling"

# Nodes of which the best is taken: so many, or one in so many of those where eviction may help, if that is more.
# kube-scheduler's minCandidateNodesAbsolute and minCandidateNodesPercentage.
MIN_CANDIDATES, MIN_CANDIDATES_PART = 100, 10
_PRIORITY_OFFSET = 2**31  # makes every priority positive in a sum

Cost = tuple[int, float, int, int, int, float]
"""For comparing candidates, the lower the better: budgets violated, highest priority, gangs that lose pods, sum of
priorities, number of victims, and the earliest start of those of the highest priority, negated. As kube-scheduler's
`pickOneNodeForPreemption`."""


class LowestPriorities:
    """The lowest priority of the pods on each node; updated by the nodes that changed since it was asked."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._by_node: dict[str, int] = {}
        self._seen_generation = 0

    def nodes_below(self, priority: int) -> list[str]:
        """Nodes with pods below a priority, those with the very lowest first."""
        since, self._seen_generation = self._seen_generation, self._cluster.generation
        changed = self._cluster.changed_since(since)
        if changed is None:
            self._by_node.clear()
        for name in set(self._cluster.node_infos if changed is None else changed):
            self._update_node(name)
        below = ((lowest, name) for name, lowest in self._by_node.items() if lowest < priority)
        return [name for _, name in sorted(below)]

    def _update_node(self, name: str) -> None:
        node_info = self._cluster.node_infos.get(name)
        if node_info is not None and node_info.pods:
            self._by_node[name] = min(priority_of(each.pod) for each in node_info.pods.values())
        else:
            self._by_node.pop(name, None)


@dataclass(frozen=True, slots=True, eq=False)
class PreemptionContext:
    """What preemption in one round decides on. `terminating`: UIDs of its victims so far."""

    cluster: Cluster
    lowest: LowestPriorities
    budgets: DisruptionBudgets
    units: EvictionUnits
    terminating: set[str] = field(default_factory=set)

    def copy(self) -> "PreemptionContext":
        """For a dry run on the same cluster."""
        return PreemptionContext(self.cluster, self.lowest, self.budgets.copy(), self.units, set(self.terminating))


# Victims on one node


@dataclass(frozen=True, slots=True)
class Victims:
    """Pods to evict, the most important first. `violations` of disruption budgets; `gangs` that lose pods."""

    pods: tuple[Pod, ...]
    violations: int = 0
    gangs: int = 0

    @property
    def cost(self) -> Cost:
        if not self.pods:
            return 0, -math.inf, 0, 0, 0, -math.inf
        highest = priority_of(self.pods[0])
        return (
            self.violations,
            highest,
            self.gangs,
            sum(priority_of(pod) + _PRIORITY_OFFSET for pod in self.pods),
            len(self.pods),
            -min(start_time(pod) for pod in self.pods if priority_of(pod) == highest),
        )


def select_victims_on_node(
    node: str, pod: Pod, info: PodInfo, context: PreemptionContext, *, is_plain: bool = False
) -> Victims | tuple[str, ...]:
    """The victims on a node; or why the pod would not fit without all pods of lower priority.

    `is_plain`: only free resources matter to the pod, which is computed without placing pods.
    """
    cluster = context.cluster
    node_info = cluster.node_infos[node]
    lower = context.units.select_lower(priority_of(pod), node_info.pods.values())
    if not lower:
        return (NO_VICTIMS_FOUND,)
    free = free_without(node_info, lower)
    if insufficient := filters.find_insufficient(free, info.requests):
        return tuple(map(filters.insufficient_reason, insufficient))
    units = context.units.make(lower, context.terminating)
    if is_plain:
        return _select_victims(units, context, lambda unit: _take_free(unit, free, info))
    with cluster.trial():
        for each in lower:
            cluster.unplace(each.pod.metadata.uid)
        if reasons := cluster.filter_reasons(pod, info, node):
            return reasons
        return _select_victims(units, context, lambda unit: _place_back(unit, cluster, pod, info))


def _take_free(unit: EvictionUnit, free: dict[str, int], incoming: PodInfo) -> bool:
    """Take a unit's requests from what is free, if it fits beside the incoming pod."""
    requests = sum_requests(unit.given)
    if any(
        free.get(name, 0) - count < incoming.requests[name]
        for name, count in requests.items()
        if name in incoming.requests
    ):
        return False
    for name, count in requests.items():
        free[name] = free.get(name, 0) - count
    return True


def _place_back(unit: EvictionUnit, cluster: Cluster, pod: Pod, info: PodInfo) -> bool:
    """Place a unit's pods on their node again, if the incoming pod fits beside them."""
    for one in unit.given:
        cluster.place(one.pod, one.node, one.info)
    if not cluster.filter_reasons(pod, info, unit.given[0].node):
        return True
    for one in unit.given:
        cluster.unplace(one.pod.metadata.uid)
    return False


def sum_requests(placed: Iterable[PlacedPod]) -> Amounts:
    requests: Amounts = {}
    for each in placed:
        for name, count in each.info.requests.items():
            requests[name] = requests.get(name, 0) + count
    return requests


def free_without(node_info: NodeInfo, placed: Iterable[PlacedPod]) -> Amounts:
    """Return what would be free without these pods."""
    free = dict(node_info.free)
    for name, count in sum_requests(placed).items():
        free[name] = free.get(name, 0) + count
    return free


def _select_victims(
    lower: list[EvictionUnit], context: PreemptionContext, reprieve_unit: Callable[[EvictionUnit], bool]
) -> Victims:
    """Reprieve each unit that can stay."""
    reprieve = Reprieve(lower, context)
    return reprieve.to_victims(unit for unit in reprieve.units if not reprieve_unit(unit))


class Reprieve:
    """The order in which `units` are reprieved: by importance, those first whose eviction violates a budget."""

    def __init__(self, lower: list[EvictionUnit], context: PreemptionContext) -> None:
        self._eviction_units = context.units
        units = sorted(lower, key=self._eviction_units.rank)
        self._violating = context.budgets.find_violating(pod for unit in units for pod in unit.pods)
        self.units = sorted(units, key=self._violates_no_budget) if self._violating else units

    def _violates_no_budget(self, unit: EvictionUnit) -> bool:
        return not any(pod.metadata.uid in self._violating for pod in unit.pods)

    def to_victims(self, units: Iterable[EvictionUnit]) -> Victims:
        """`units`: those that were not reprieved."""
        pods = tuple(sorted((pod for unit in units for pod in unit.pods), key=importance))
        violations = sum(pod.metadata.uid in self._violating for pod in pods) if self._violating else 0
        return Victims(pods, violations, self._eviction_units.count_gangs(pods))


# Candidate nodes


@dataclass(slots=True)
class _Candidates:
    """Candidates for pods of one class and priority."""

    message: str = ""  # why, if there is none
    has_constraints: bool = False  # on pods of other nodes
    is_used: bool = False
    changed: list[str] = field(default_factory=list)  # nodes to try again
    heap: list[tuple[Cost, str, int, Victims]] = field(default_factory=list)  # with the version of the node


class CandidateSearch:
    """Each answer counts as done: its victims are terminating, and what they free is the pod's.

    Pods of one class share the candidates: all nodes are tried once, and again only where something has changed. `for_many`: of
    pods with constraints on other pods, only the node that comes up is tried again after each answer.
    """

    def __init__(self, context: PreemptionContext, *, for_many: bool = False) -> None:
        self.version = 0  # rises with each answer; a caller with `for_many` counts its other placements here, too
        self._context = context
        self._cluster = context.cluster
        self._for_many = for_many
        self._candidates: dict[tuple[Ranking, int], _Candidates] = {}

    def find_best(self, pod: Pod, info: PodInfo, diagnose: Callable[[], Diagnosis]) -> tuple[str, Victims] | str:
        """The node with the lowest cost, and its victims; or why preemption helps nowhere.

        The caller reserves the node for the pod before it asks again. `diagnose`: why no node takes the pod now.
        """
        candidates = self._candidates_for(pod, info, diagnose)
        best = self._pop_best(candidates, pod, info)
        if best is None:
            return candidates.message
        node, victims = best
        candidates.is_used = True
        candidates.changed.append(node)
        self.note_victims(victims, node)
        return best

    def note_victims(self, victims: Victims, node: str = "") -> None:
        """Count victims as terminating. `node`: the candidate; others are searched again if it had victims elsewhere."""
        self.version += 1
        self._context.terminating.update(each.metadata.uid for each in victims.pods)
        is_elsewhere = any(each.spec.node_name != node for each in victims.pods)
        if self._context.budgets.consume(victims.pods) or is_elsewhere:
            self._candidates.clear()

    def _candidates_for(self, pod: Pod, info: PodInfo, diagnose: Callable[[], Diagnosis]) -> _Candidates:
        key = self._cluster.ranking(pod, info), priority_of(pod)
        known = self._candidates.get(key)
        if known is not None and known.is_used and known.has_constraints and not self._for_many:
            known = None
        if known is not None:
            for node in known.changed:
                self._try_node(known, node, pod, info)
            known.changed.clear()
        if known is None or (known.is_used and not known.heap):
            known = self._candidates[key] = self._dry_run(pod, info, diagnose())
        return known

    def _dry_run(self, pod: Pod, info: PodInfo, diagnosis: Diagnosis) -> _Candidates:
        """Try nodes until there are enough candidates, one of them without violated budgets."""
        unresolvable = diagnosis.unresolvable
        possible = len(diagnosis.reasons) - len(unresolvable)
        enough = max(MIN_CANDIDATES, possible // MIN_CANDIDATES_PART)
        has_constraints = (
            info.depends_on_pods
            or info.required_anti_affinity
            or self._cluster.pod_count_index.find_symmetric_terms(pod)
        )
        found = _Candidates(has_constraints=bool(has_constraints))
        counted: Counter[str] = Counter()
        tried = 0
        for node in self._context.lowest.nodes_below(priority_of(pod)):
            if node in unresolvable:
                continue
            if len(found.heap) >= enough and not found.heap[0][-1].violations:
                break
            tried += 1
            counted.update(self._try_node(found, node, pod, info))
        counted += Counter({NOT_HELPFUL: len(unresolvable), NO_VICTIMS_FOUND: possible - tried})
        found.message = summarize_reasons(len(diagnosis.reasons), counted)
        return found

    def _try_node(self, candidates: _Candidates, node: str, pod: Pod, info: PodInfo) -> tuple[str, ...]:
        """Add a node to the candidates; or return why evictions there would not help."""
        is_plain = not candidates.has_constraints and not info.host_ports
        victims = select_victims_on_node(node, pod, info, self._context, is_plain=is_plain)
        if not isinstance(victims, Victims):
            return victims
        heapq.heappush(candidates.heap, (victims.cost, node, self._version_of(candidates, node), victims))
        return ()

    def _version_of(self, candidates: _Candidates, node: str) -> int:
        if candidates.has_constraints and self._for_many:
            return self.version
        return self._cluster.node_infos[node].generation

    def _pop_best(self, candidates: _Candidates, pod: Pod, info: PodInfo) -> tuple[str, Victims] | None:
        while candidates.heap:
            _, node, version, victims = heapq.heappop(candidates.heap)
            if self._version_of(candidates, node) == version:
                return node, victims
            self._try_node(candidates, node, pod, info)
        return None
