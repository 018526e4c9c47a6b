"""Victims: which pods would have to go from one node so that a pod fits there: as few and as unimportant as possible.

Pods that are going anyway count as gone: nobody goes in their place.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_resources import Amounts
from app.scheduler import filters
from app.scheduler.cache import Cluster
from app.scheduler.eviction_units import Unit, began, importance, priority_of
from app.scheduler.node_info import NodeInfo, Placed
from app.scheduler.pod_info import PodInfo
from app.scheduler.preemption_context import PreemptionContext

NONE_FOUND = "No preemption victims found for incoming pod"
_EACH = 2**31  # makes every priority count as more than nothing

Cost = tuple[int, float, int, int, int, float]
"""What is worse is more: budgets violated, the highest priority, gangs that lose members, the sum of all priorities, how many
they are, how long the highest ran."""


@dataclass(frozen=True, slots=True)
class Victims:
    """The most important first. `violations`: how many no disruption budget allows to go; `gangs`: of how many they are."""

    pods: tuple[Pod, ...]
    violations: int = 0
    gangs: int = 0

    @property
    def cost(self) -> Cost:
        if not self.pods:
            return 0, -math.inf, 0, 0, 0, -math.inf
        highest = priority_of(self.pods[0])
        # Those that began last have the least to lose; the first of a node's most important ones stands for it.
        return (
            self.violations,
            highest,
            self.gangs,
            sum(priority_of(pod) + _EACH for pod in self.pods),
            len(self.pods),
            -min(began(pod) for pod in self.pods if priority_of(pod) == highest),
        )


def victims_on(
    node: str, pod: Pod, info: PodInfo, context: PreemptionContext, *, is_plain: bool = False
) -> Victims | tuple[str, ...]:
    """Who has to go; or why it would not do if all did that may.

    `is_plain`: nothing matters but how much room there is, which is quicker to work out than to try.
    """
    cluster = context.cluster
    node_info = cluster.node_infos[node]
    lower = context.units.below(priority_of(pod), node_info.pods.values())
    if not lower:
        return (NONE_FOUND,)
    free = without(node_info, lower)
    if short := filters.lacking(free, info.needs):
        return tuple(map(filters.insufficient, short))
    there = context.units.of(lower, context.going)
    if is_plain:
        return _fewest(there, context, lambda unit: _has_room(unit, free, info))
    with cluster.trial():
        for each in lower:
            cluster.unplace(each.pod.metadata.uid)
        if why := cluster.fits(pod, info, node):
            return why
        return _fewest(there, context, lambda unit: _may_stay(unit, cluster, pod, info))


def _has_room(unit: Unit, free: dict[str, int], wanted: PodInfo) -> bool:
    """Beside the wanted one; if so it takes its part."""
    needs = total(unit.here)
    if any(free.get(name, 0) - count < wanted.needs[name] for name, count in needs.items() if name in wanted.needs):
        return False
    for name, count in needs.items():
        free[name] = free.get(name, 0) - count
    return True


def _may_stay(unit: Unit, cluster: Cluster, pod: Pod, info: PodInfo) -> bool:
    for one in unit.here:
        cluster.place(one.pod, one.node, one.info)
    if not cluster.fits(pod, info, unit.here[0].node):
        return True
    for one in unit.here:
        cluster.unplace(one.pod.metadata.uid)
    return False


def total(placed: Iterable[Placed]) -> Amounts:
    """What they take up."""
    needs: Amounts = {}
    for each in placed:
        for name, count in each.info.needs.items():
            needs[name] = needs.get(name, 0) + count
    return needs


def without(node_info: NodeInfo, lower: Iterable[Placed]) -> Amounts:
    """What would be left without these: a quick look, before all of it is tried."""
    free = dict(node_info.free)
    for name, count in total(lower).items():
        free[name] = free.get(name, 0) + count
    return free


def _fewest(lower: list[Unit], context: PreemptionContext, may_stay: Callable[[Unit], bool]) -> Victims:
    """Let back whoever can stay."""
    reprieve = Reprieve(lower, context)
    return reprieve.victims(unit for unit in reprieve.order if not may_stay(unit))


class Reprieve:
    """The order in which they are let back: first those whose budget would be violated, and of each the most important."""

    def __init__(self, lower: list[Unit], context: PreemptionContext) -> None:
        self._units = context.units
        units = sorted(lower, key=self._units.rank)
        self._violating = context.budgets.violating(pod for unit in units for pod in unit.pods)
        self.order = sorted(units, key=self._may_go) if self._violating else units

    def _may_go(self, unit: Unit) -> bool:
        return not any(pod.metadata.uid in self._violating for pod in unit.pods)

    def victims(self, gone: Iterable[Unit]) -> Victims:
        """What it means that these do not come back."""
        pods = tuple(sorted((pod for unit in gone for pod in unit.pods), key=importance))
        violations = sum(pod.metadata.uid in self._violating for pod in pods) if self._violating else 0
        return Victims(pods, violations, self._units.gangs(pods))
