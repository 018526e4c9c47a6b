"""Eviction units: a pod by itself, or all pods of a PodGroup with `disruptionMode.all`; and disruption budgets.

Called by preemption (`preemption`, `gang_preemption`) and `reclaim`, which choose victims by priority, start time and budgets.
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
from app.scheduler.gang_scheduling import PodGroupInfo, PodGroupKey, PodGroups
from app.scheduler.node_info import PlacedPod

UnitRank = tuple[int, bool, int, float, str, float, str]


class EvictionUnit(NamedTuple):
    """`given`: those of its pods that it was made from; `pods`: all of them, on whatever node."""

    given: tuple[PlacedPod, ...]
    pods: tuple[Pod, ...]


class EvictionUnits:
    """Makes eviction units, in one round."""

    def __init__(self, cluster: Cluster, groups: PodGroups) -> None:
        self._cluster = cluster
        self._groups = groups
        self._start_times: dict[PodGroupKey, float] = {}

    def select_lower(self, priority: int, placed: Iterable[PlacedPod]) -> list[PlacedPod]:
        """Pods below a priority, not of this round; of a group that is disrupted whole, only if all its pods are below."""
        return [
            each
            for each in placed
            if priority_of(each.pod) < priority
            and each.pod.spec.node_name  # empty: assumed in this round
            and (each.pod.spec.scheduling_group is None or self._max_priority(each.pod) < priority)
        ]

    def select_terminating(self, priority: int, terminating: Collection[str]) -> list[PlacedPod]:
        """Pods below a priority that are terminating anyway. `terminating`: UIDs of victims of this round."""
        lower = self.select_lower(priority, self._cluster.pods.values())
        return [each for each in lower if is_terminating(each.pod, terminating)]

    def _max_priority(self, pod: Pod) -> int:
        return max(map(priority_of, self._all_members(pod)), default=priority_of(pod))

    def make(self, placed: Iterable[PlacedPod], terminating: Collection[str] = ()) -> list[EvictionUnit]:
        """Group pods to units, in the order of their first pods; without those that are terminating."""
        found: dict[object, list[PlacedPod]] = {}
        for each in placed:
            if not is_terminating(each.pod, terminating):
                group = self._whole_group(each.pod)
                found.setdefault(each.pod.metadata.uid if group is None else group.key, []).append(each)
        return [EvictionUnit(tuple(given), self._all_pods(given, terminating)) for given in found.values()]

    def _all_pods(self, given: list[PlacedPod], terminating: Collection[str]) -> tuple[Pod, ...]:
        pods = tuple(each.pod for each in given)
        uids = {pod.metadata.uid for pod in pods}
        others = (
            pod
            for pod in self._all_members(pods[0])
            if pod.metadata.uid not in uids and not is_terminating(pod, terminating)
        )
        return (*pods, *others)

    def _all_members(self, pod: Pod) -> list[Pod]:
        """Pods that are evicted with it."""
        group = self._whole_group(pod)
        return [*self._placed_pods(group)] if group is not None else []

    def _whole_group(self, pod: Pod) -> PodGroupInfo | None:
        group = self._groups.group_of(pod)
        return group if group is not None and group.disrupts_whole else None

    def rank(self, unit: EvictionUnit) -> UnitRank:
        """For sorting, the most important first: by priority, then groups before pods, the larger and the older first."""
        first = min(unit.pods, key=importance)
        group = self._groups.group_of(first)
        if group is None:
            return -priority_of(first), True, -1, start_time(first), "", start_time(first), first.metadata.uid
        began, key = self._group_start_time(group), "/".join(group.key)
        return -priority_of(first), False, -len(group.bound), began, key, start_time(first), first.metadata.uid

    def count_gangs(self, pods: Iterable[Pod]) -> int:
        """Count the gangs that lose some of these pods."""
        groups = (self._groups.group_of(pod) for pod in pods if pod.spec.scheduling_group is not None)
        return len({group.key for group in groups if group is not None and (group.min_count or group.disrupts_whole)})

    def disrupted_groups(self, pods: Iterable[Pod]) -> tuple[PodGroup, ...]:
        """PodGroups that are evicted whole with these pods."""
        groups = (self._whole_group(pod) for pod in pods if pod.spec.scheduling_group is not None)
        found = {group.key: group.object for group in groups if group is not None}
        return tuple(each for each in found.values() if each is not None)

    def _group_start_time(self, group: PodGroupInfo) -> float:
        if group.key not in self._start_times:
            self._start_times[group.key] = min(map(start_time, self._placed_pods(group)), default=math.inf)
        return self._start_times[group.key]

    def _placed_pods(self, group: PodGroupInfo) -> Iterator[Pod]:
        placed = self._cluster.pods
        return (placed[uid].pod for uid in group.bound if uid in placed)


def priority_of(pod: Pod) -> int:
    return pod.spec.priority or 0


def importance(pod: Pod) -> tuple[int, float, str]:
    """For sorting, the most important first: by priority, then the earliest start, as kube-scheduler's `MoreImportantPod`."""
    return -priority_of(pod), start_time(pod), pod.metadata.uid


def start_time(pod: Pod) -> float:
    """In seconds; infinite for a pod that has not started."""
    return pod.status.start_time.timestamp() if pod.status.start_time else math.inf


def is_terminating(pod: Pod, terminating: Collection[str]) -> bool:
    """Also a pod without a node: a nomination that only reserves its place."""
    meta = pod.metadata
    return meta.deletion_timestamp is not None or meta.uid in terminating or not pod.spec.node_name


class DisruptionBudgets:
    """Evictions that PodDisruptionBudgets still allow. Preemption weighs them and may violate them, as in kube-scheduler.

    One serves a round; the budgets are read when the first victim is looked for.
    """

    def __init__(self, budgets: Iterable[PodDisruptionBudget] = ()) -> None:
        self._budgets = budgets

    @cached_property
    def _by_namespace(self) -> dict[str, list[tuple[PodDisruptionBudget, Selector]]]:
        found: dict[str, list[tuple[PodDisruptionBudget, Selector]]] = {}
        for each in self._budgets:
            found.setdefault(each.metadata.namespace, []).append((each, from_label_selector(each.spec.selector)))
        return found

    @cached_property
    def _allowed(self) -> dict[str, int]:
        """By the budget's UID."""
        return {
            each.metadata.uid: each.status.disruptions_allowed
            for budgets in self._by_namespace.values()
            for each, _ in budgets
        }

    def copy(self) -> "DisruptionBudgets":
        """For a dry run."""
        other = DisruptionBudgets(self._budgets)
        other._by_namespace, other._allowed = self._by_namespace, dict(self._allowed)
        return other

    def _matching(self, pod: Pod) -> Iterable[str]:
        """UIDs of the budgets of a pod; a budget has accounted for a pod of its `disruptedPods` already."""
        meta = pod.metadata
        return (
            budget.metadata.uid
            for budget, selector in self._by_namespace.get(meta.namespace, ())
            if selector.matches(meta.labels) and meta.name not in budget.status.disrupted_pods
        )

    def find_violating(self, pods: Iterable[Pod]) -> frozenset[str]:
        """UIDs of the pods whose eviction violates a budget, if all are evicted in this order."""
        if not self._by_namespace:
            return frozenset()
        left, found = dict(self._allowed), set()
        for pod in pods:
            for uid in self._matching(pod):
                left[uid] -= 1
                if left[uid] < 0:
                    found.add(pod.metadata.uid)
        return frozenset(found)

    def allow(self, pods: Iterable[Pod]) -> bool:
        return not self.find_violating(pods)

    def consume(self, pods: Iterable[Pod]) -> bool:
        """Account for evictions. Returns whether that leaves less for others."""
        matching = [uid for pod in pods for uid in self._matching(pod)]
        for uid in matching:
            self._allowed[uid] -= 1
        return bool(matching)
