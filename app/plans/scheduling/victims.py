"""Who would have to go from one node so that a pod fits there: as few as possible, and the least important. For `preemption`.

Pods that are going anyway count as gone: nobody goes in their place.
"""

import math
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass

from app.kinds.pod import Pod
from app.kinds.poddisruptionbudget import PodDisruptionBudget
from app.kinds.selectors import Selector, from_label_selector
from app.plans.scheduling import filters
from app.plans.scheduling.cluster import Cluster
from app.plans.scheduling.room import Placed, Room
from app.plans.scheduling.wish import Wish

NONE_FOUND = "No preemption victims found for incoming pod"
_EACH = 2**31  # makes every priority count as more than nothing

Cost = tuple[int, float, int, int, float]
"""What is worse is more: budgets violated, the highest priority, the sum of all, their number, how long the highest ran."""


def priority_of(pod: Pod) -> int:
    return pod.spec.priority or 0


def importance(pod: Pod) -> tuple[int, float, str]:
    """For sorting, the most important first: by priority, then the longest running."""
    return -priority_of(pod), _began(pod), pod.metadata.uid


def _began(pod: Pod) -> float:
    return pod.status.start_time.timestamp() if pod.status.start_time else math.inf


@dataclass(frozen=True, slots=True)
class Victims:
    """The most important first. `violations`: how many of them no disruption budget allows to go."""

    pods: tuple[Pod, ...]
    violations: int

    @property
    def cost(self) -> Cost:
        if not self.pods:
            return 0, -math.inf, 0, 0, -math.inf
        highest = priority_of(self.pods[0])
        # Those that began last have the least to lose; the first of a node's most important ones stands for it.
        return (
            self.violations,
            highest,
            sum(priority_of(pod) + _EACH for pod in self.pods),
            len(self.pods),
            -min(_began(pod) for pod in self.pods if priority_of(pod) == highest),
        )


class Budgets:
    """How many pods the disruption budgets still allow to go. They are weighed, not obeyed, as in Kubernetes."""

    def __init__(self, budgets: Iterable[PodDisruptionBudget] = ()) -> None:
        self._of: dict[str, list[tuple[PodDisruptionBudget, Selector]]] = {}
        self._allowed: dict[str, int] = {}  # by the budget's UID
        for each in budgets:
            self._of.setdefault(each.metadata.namespace, []).append((each, from_label_selector(each.spec.selector)))
            self._allowed[each.metadata.uid] = each.status.disruptions_allowed

    def _about(self, pod: Pod) -> Iterable[str]:
        """What was evicted already has been taken from a budget then."""
        meta = pod.metadata
        return (
            budget.metadata.uid
            for budget, selector in self._of.get(meta.namespace, ())
            if selector.matches(meta.labels) and meta.name not in budget.status.disrupted_pods
        )

    def violating(self, pods: Iterable[Pod]) -> frozenset[str]:
        """The UIDs of those that may not go, if all go in this order."""
        if not self._of:
            return frozenset()
        left, found = dict(self._allowed), set()
        for pod in pods:
            for uid in self._about(pod):
                left[uid] -= 1
                if left[uid] < 0:
                    found.add(pod.metadata.uid)
        return frozenset(found)

    def take(self, pods: Iterable[Pod]) -> bool:
        """They go. True if that leaves less for others."""
        taken = [uid for pod in pods for uid in self._about(pod)]
        for uid in taken:
            self._allowed[uid] -= 1
        return bool(taken)


def victims_on(
    node: str,
    pod: Pod,
    wish: Wish,
    cluster: Cluster,
    budgets: Budgets,
    going: Collection[str],
    *,
    is_plain: bool = False,
) -> Victims | tuple[str, ...]:
    """Who has to go; or why it would not do if all did that may. `going`: UIDs of those who go although it does not show.

    `is_plain`: nothing matters but how much room there is, which is quicker to work out than to try.
    """
    room = cluster.rooms[node]
    lower = [each for each in room.pods.values() if priority_of(each.pod) < priority_of(pod)]
    if not lower:
        return (NONE_FOUND,)
    free = _without(room, lower)
    if short := filters.lacking(free, wish.needs):
        return tuple(map(filters.insufficient, short))
    there = sorted((each for each in lower if not is_going(each.pod, going)), key=_importance)
    if is_plain:
        return _fewest(there, budgets, lambda each: _has_room(each.wish, free, wish))
    with cluster.trial():
        for each in lower:
            cluster.unplace(each.pod.metadata.uid)
        if why := cluster.fits(pod, wish, node):
            return why
        return _fewest(there, budgets, lambda each: _may_stay(each, cluster, pod, wish))


def _has_room(one: Wish, free: dict[str, int], wanted: Wish) -> bool:
    """Beside the wanted one; if so it takes its part."""
    needs = wanted.needs
    if any(free.get(name, 0) - count < needs[name] for name, count in one.needs.items() if name in needs):
        return False
    for name, count in one.needs.items():
        free[name] = free.get(name, 0) - count
    return True


def _may_stay(one: Placed, cluster: Cluster, pod: Pod, wish: Wish) -> bool:
    cluster.place(one.pod, one.node, one.wish)
    if not cluster.fits(pod, wish, one.node):
        return True
    cluster.unplace(one.pod.metadata.uid)
    return False


def is_going(pod: Pod, going: Collection[str]) -> bool:
    """A pod that is on no node yet was only put there to hold its room."""
    meta = pod.metadata
    return meta.deletion_timestamp is not None or meta.uid in going or not pod.spec.node_name


def _importance(placed: Placed) -> tuple[int, float, str]:
    return importance(placed.pod)


def _without(room: Room, lower: Iterable[Placed]) -> dict[str, int]:
    """What would be left without these: a quick look, before all of it is tried."""
    free = dict(room.free)
    for each in lower:
        for name, count in each.wish.needs.items():
            free[name] = free.get(name, 0) + count
    return free


def _fewest(lower: list[Placed], budgets: Budgets, may_stay: Callable[[Placed], bool]) -> Victims:
    """Let back whoever can stay: first those whose budget would be violated, and of each the most important."""
    violating = budgets.violating(each.pod for each in lower)
    if violating:
        lower = sorted(lower, key=lambda one: one.pod.metadata.uid not in violating)
    gone = [each.pod for each in lower if not may_stay(each)]
    violations = sum(one.metadata.uid in violating for one in gone)
    return Victims(tuple(sorted(gone, key=importance)), violations)
