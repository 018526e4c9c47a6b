"""Preemption context: cluster, budgets and time that preemption decides on."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cached_property

from app.kinds.core.poddisruptionbudget import PodDisruptionBudget
from app.kinds.pod.pod import Pod
from app.machinery.selectors import Selector, from_label_selector
from app.scheduler.cache import Cluster
from app.scheduler.eviction_units import Units, priority_of


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


class Lowest:
    """The lowest priority of the pods on each node. It is kept, and follows the cluster."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._of: dict[str, int] = {}
        self._seen_at = 0

    def below(self, priority: int) -> list[str]:
        """The nodes with pods of a lower priority, those with the very lowest first."""
        then, self._seen_at = self._seen_at, self._cluster.now
        touched = self._cluster.touched_since(then)
        if touched is None:
            self._of.clear()
        for name in set(self._cluster.node_infos if touched is None else touched):
            self._look_at(name)
        return [name for _, name in sorted((least, name) for name, least in self._of.items() if least < priority)]

    def _look_at(self, name: str) -> None:
        node_info = self._cluster.node_infos.get(name)
        if node_info is not None and node_info.pods:
            self._of[name] = min(priority_of(each.pod) for each in node_info.pods.values())
        else:
            self._of.pop(name, None)


@dataclass(frozen=True, slots=True, eq=False)
class PreemptionContext:
    """For one round. `going`: UIDs of those who go although it does not show; it grows."""

    cluster: Cluster
    lowest: Lowest
    budgets: Budgets
    units: Units
    going: set[str] = field(default_factory=set)

    def copy(self) -> "PreemptionContext":
        """To try something out, on the same cluster."""
        return PreemptionContext(self.cluster, self.lowest, self.budgets.copy(), self.units, set(self.going))
