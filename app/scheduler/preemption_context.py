"""Preemption context: cluster, budgets and time that preemption decides on."""

from dataclasses import dataclass, field

from app.scheduler.cache import Cluster
from app.scheduler.disruption_budgets import Budgets
from app.scheduler.eviction_units import Units, priority_of


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
