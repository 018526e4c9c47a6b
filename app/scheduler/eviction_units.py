"""Eviction units: a pod by itself, or all of a group that is disrupted only as a whole.

For `victims`, `gang_preemption` and `reclaim`. Groups say so by `disruptionMode: PodGroup`.
"""

import math
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import NamedTuple

from app.kinds.core.poddisruptionbudget import PodDisruptionBudget
from app.kinds.pod.pod import Pod
from app.kinds.scheduling.podgroup import PodGroup
from app.machinery.selectors import Selector, from_label_selector
from app.scheduler.cache import Cluster
from app.scheduler.gang_scheduling import Group, GroupKey, Groups
from app.scheduler.node_info import Placed

Rank = tuple[int, bool, int, float, str, float, str]


class Unit(NamedTuple):
    """`here`: those of them that were asked about; `pods`: all, wherever they are."""

    here: tuple[Placed, ...]
    pods: tuple[Pod, ...]


class Units:
    """For one round."""

    def __init__(self, cluster: Cluster, groups: Groups) -> None:
        self._cluster = cluster
        self._groups = groups
        self._began: dict[GroupKey, float] = {}

    def below(self, priority: int, placed: Iterable[Placed]) -> list[Placed]:
        """Those that are less important; of a group that goes as a whole, only if all of it is."""
        return [
            each
            for each in placed
            if priority_of(each.pod) < priority
            and each.pod.spec.node_name  # not who found a place in this very round
            and (each.pod.spec.scheduling_group is None or self._highest(each.pod) < priority)
        ]

    def going(self, priority: int, going: Collection[str]) -> list[Placed]:
        """Those less important ones that go anyway."""
        lower = self.below(priority, self._cluster.placed.values())
        return [each for each in lower if is_going(each.pod, going)]

    def _highest(self, pod: Pod) -> int:
        return max(map(priority_of, self._all(pod)), default=priority_of(pod))

    def of(self, placed: Iterable[Placed], going: Collection[str] = ()) -> list[Unit]:
        """In the order of their first. Who is going already is of none."""
        found: dict[object, list[Placed]] = {}
        for each in placed:
            if not is_going(each.pod, going):
                group = self._whole(each.pod)
                found.setdefault(each.pod.metadata.uid if group is None else group.key, []).append(each)
        return [Unit(tuple(some), self._pods(some, going)) for some in found.values()]

    def _pods(self, some: list[Placed], going: Collection[str]) -> tuple[Pod, ...]:
        here = tuple(each.pod for each in some)
        uids = {pod.metadata.uid for pod in here}
        others = (pod for pod in self._all(here[0]) if pod.metadata.uid not in uids and not is_going(pod, going))
        return (*here, *others)

    def _all(self, pod: Pod) -> list[Pod]:
        """Those that have to go with it."""
        group = self._whole(pod)
        return [*self._placed(group)] if group is not None else []

    def _whole(self, pod: Pod) -> Group | None:
        group = self._groups.of(pod)
        return group if group is not None and group.goes_whole else None

    def rank(self, unit: Unit) -> Rank:
        """For sorting, the most important first: by priority, then groups before pods, the larger and the older first."""
        first = min(unit.pods, key=importance)
        group = self._groups.of(first)
        if group is None:
            return -priority_of(first), True, -1, began(first), "", began(first), first.metadata.uid
        since, key = self._since(group), "/".join(group.key)
        return -priority_of(first), False, -len(group.bound), since, key, began(first), first.metadata.uid

    def gangs(self, pods: Iterable[Pod]) -> int:
        """Of how many they are members."""
        groups = (self._groups.of(pod) for pod in pods if pod.spec.scheduling_group is not None)
        return len({group.key for group in groups if group is not None and (group.min_count or group.goes_whole)})

    def disrupted(self, pods: Iterable[Pod]) -> tuple[PodGroup, ...]:
        """The groups that go as a whole, if these pods go."""
        groups = (self._whole(pod) for pod in pods if pod.spec.scheduling_group is not None)
        found = {group.key: group.object for group in groups if group is not None}
        return tuple(each for each in found.values() if each is not None)

    def _since(self, group: Group) -> float:
        if group.key not in self._began:
            self._began[group.key] = min(map(began, self._placed(group)), default=math.inf)
        return self._began[group.key]

    def _placed(self, group: Group) -> Iterator[Pod]:
        placed = self._cluster.placed
        return (placed[uid].pod for uid in group.bound if uid in placed)


def priority_of(pod: Pod) -> int:
    return pod.spec.priority or 0


def importance(pod: Pod) -> tuple[int, float, str]:
    """For sorting, the most important first: by priority, then the longest running."""
    return -priority_of(pod), began(pod), pod.metadata.uid


def began(pod: Pod) -> float:
    return pod.status.start_time.timestamp() if pod.status.start_time else math.inf


def is_going(pod: Pod, going: Collection[str]) -> bool:
    """A pod that is on no node yet was only put there to hold its room."""
    meta = pod.metadata
    return meta.deletion_timestamp is not None or meta.uid in going or not pod.spec.node_name


class Budgets:
    """How many pods the disruption budgets still allow to go. They are weighed, not obeyed, as in Kubernetes.

    One of them serves a round: nothing is read until somebody is to go.
    """

    def __init__(self, budgets: Iterable[PodDisruptionBudget] = ()) -> None:
        self._given = budgets

    @cached_property
    def _of(self) -> dict[str, list[tuple[PodDisruptionBudget, Selector]]]:
        found: dict[str, list[tuple[PodDisruptionBudget, Selector]]] = {}
        for each in self._given:
            found.setdefault(each.metadata.namespace, []).append((each, from_label_selector(each.spec.selector)))
        return found

    @cached_property
    def _allowed(self) -> dict[str, int]:
        """By the budget's UID."""
        return {
            each.metadata.uid: each.status.disruptions_allowed for budgets in self._of.values() for each, _ in budgets
        }

    def copy(self) -> "Budgets":
        """To try something out."""
        other = Budgets(self._given)
        other._of, other._allowed = self._of, dict(self._allowed)
        return other

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

    def allow(self, pods: Iterable[Pod]) -> bool:
        return not self.violating(pods)

    def take(self, pods: Iterable[Pod]) -> bool:
        """They go. True if that leaves less for others."""
        taken = [uid for pod in pods for uid in self._about(pod)]
        for uid in taken:
            self._allowed[uid] -= 1
        return bool(taken)
