"""Topology spread: topologySpreadConstraints of a class of pods. Called by `node_ranking`."""

from collections.abc import Collection

from app.kinds.core.node import Node
from app.kinds.pod.pod import Pod
from app.scheduler.filters import bears, is_selected
from app.scheduler.pod_counts import PodCounts
from app.scheduler.pod_info import Spread
from app.scheduler.topology_domains import Rule

UNEVEN = "node(s) didn't match pod topology spread constraints"
NO_PLACE = f"{UNEVEN} (missing required label)"

_EACH = 10.0  # points for each pod fewer, where it is only a preference
_NOWHERE = -10_000.0


class Even(Rule):
    """One constraint. Only nodes that have all labels asked for, and that the pod could be on, are places."""

    def __init__(self, spread: Spread, tally: PodCounts, pod: Pod, keys: Collection[str], is_one: bool) -> None:
        super().__init__(spread.term.key, tally)
        self._spread = spread
        self._pod = pod
        self._keys = keys
        self._itself = int(is_one)

    def counts_in(self, node: Node) -> bool:
        if any(key not in node.metadata.labels for key in self._keys):
            return False
        if self._spread.honors_affinity and not is_selected(self._pod, node):
            return False
        return not self._spread.honors_taints or bears(self._pod, node)


class HardEven(Even):
    """DoNotSchedule: a place may not get further ahead of the emptiest than `max_skew`."""

    def refusal(self, value: str | None) -> str:
        if value is None:
            return NO_PLACE
        count = self.domains.counts.get(value, 0)
        return UNEVEN if count + self._itself - self.at_large() > self._spread.max_skew else ""

    def at_large(self) -> int:
        """How many pods the emptiest place has: none, if there are fewer places than there must be."""
        places = len(self.domains.counts)
        return self.domains.fewest if places >= self._spread.min_domains else 0


class SoftEven(Even):
    """ScheduleAnyway: the fewer the better. How much better does not depend on how many there are elsewhere."""

    def score(self, value: str | None) -> float:
        if value is None:
            return _NOWHERE
        return -self.domains.counts.get(value, 0) * _EACH / max(1, self._spread.max_skew)
