"""What there is to decide on when some pods are to make room for others. For `preemption` and what it is made of."""

from dataclasses import dataclass, field

from app.plans.scheduling.budgets import Budgets
from app.plans.scheduling.cluster import Cluster
from app.plans.scheduling.units import Units, priority_of


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
        for name in set(self._cluster.rooms if touched is None else touched):
            self._look_at(name)
        return [name for _, name in sorted((least, name) for name, least in self._of.items() if least < priority)]

    def _look_at(self, name: str) -> None:
        room = self._cluster.rooms.get(name)
        if room is not None and room.pods:
            self._of[name] = min(priority_of(each.pod) for each in room.pods.values())
        else:
            self._of.pop(name, None)


@dataclass(frozen=True, slots=True, eq=False)
class Ground:
    """For one round. `going`: UIDs of those who go although it does not show; it grows."""

    cluster: Cluster
    lowest: Lowest
    budgets: Budgets
    units: Units
    going: set[str] = field(default_factory=set)

    def copy(self) -> "Ground":
        """To try something out, on the same cluster."""
        return Ground(self.cluster, self.lowest, self.budgets.copy(), self.units, set(self.going))
