"""Topology domains, and how many pods of a sort are in each: all nodes with the same value of a label are one domain.

Each class of pods whose places depend on other pods has `Rule`s, built on this: `affinity` and `topology_spread`. They
follow the nodes that have changed, one by one, and never count all pods again.
"""

from collections import defaultdict
from collections.abc import Collection

from app.kinds.core.node import Node
from app.kinds.pod.pod import Pod
from app.scheduler.filters import bears, is_selected
from app.scheduler.pod_counts import PodCounts
from app.scheduler.pod_info import Spread

UNEVEN = "node(s) didn't match pod topology spread constraints"
NO_PLACE = f"{UNEVEN} (missing required label)"

_EACH = 10.0  # points for each pod fewer, where it is only a preference
_NOWHERE = -10_000.0


class Domains:
    """Of one label: the places that there are, with their nodes and pods."""

    __slots__ = ("_levels", "_nodes", "_seen", "counts", "fewest")

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        self.fewest = 0  # of any place; 0 if there is none
        self._nodes: defaultdict[str, int] = defaultdict(int)
        self._seen: dict[str, tuple[str, int]] = {}
        self._levels: defaultdict[int, int] = defaultdict(int)  # how many places have so many pods

    def add(self, node: str, value: str, count: int) -> None:
        """A node is in this place, with so many pods."""
        self._seen[node] = (value, count)
        self._nodes[value] += 1
        if count or value not in self.counts:
            self._change(value, count)

    def update(self, node: str, count: int) -> str | None:
        """A node has so many pods now; its place, if that changes it."""
        known = self._seen.get(node)
        if known is None or known[1] == count:
            return None
        value = known[0]
        self._seen[node] = (value, count)
        self._change(value, count - known[1])
        return value

    def drop(self, node: str) -> str | None:
        """A node is gone, or no longer one that counts; the place that it was in."""
        known = self._seen.pop(node, None)
        if known is None:
            return None
        value, count = known
        if count:
            self._change(value, -count)
        self._nodes[value] -= 1
        if not self._nodes[value]:
            del self._nodes[value]
            self._level(self.counts.pop(value), -1)
            self._find_fewest()
        return value

    def _change(self, value: str, more: int) -> None:
        before = self.counts.get(value)
        after = self.counts[value] = (before or 0) + more
        self._level(after, 1)
        if before is not None:
            self._level(before, -1)
        if after < self.fewest or self.fewest not in self._levels:
            self._find_fewest()

    def _level(self, count: int, more: int) -> None:
        self._levels[count] += more
        if not self._levels[count]:
            del self._levels[count]

    def _find_fewest(self) -> None:
        self.fewest = min(self._levels, default=0)

    @property
    def any(self) -> bool:
        """There is a pod of the sort somewhere."""
        return bool(self._levels) and (len(self._levels) > 1 or 0 not in self._levels)


class Rule:
    """What the pods of one sort have to do with where a newcomer may go."""

    def __init__(self, key: str, tally: PodCounts) -> None:
        self.key = key
        self.tally = tally
        self.domains = Domains()

    def counts_in(self, node: Node) -> bool:  # noqa: ARG002 - some rules look
        """Whether the node's pods count at all, given that it has the label."""
        return True

    def learn(self, node: Node) -> str | None:
        """A node is new, or not what it was; its place."""
        value = node.metadata.labels.get(self.key)
        if value is not None and self.counts_in(node):
            self.domains.add(node.metadata.name, value, self.tally.on.get(node.metadata.name, 0))
        return value

    def update(self, name: str) -> str | None:
        """Pods came to a node or left it; its place, if that matters."""
        return self.domains.update(name, self.tally.on.get(name, 0))

    def refusal(self, value: str | None) -> str:  # noqa: ARG002 - not every rule refuses
        """Why the newcomer may not go to a place (None: a node without the label); empty if it may."""
        return ""

    def score(self, value: str | None) -> float:  # noqa: ARG002 - not every rule prefers
        """How good the place is; the more the better."""
        return 0.0

    def at_large(self) -> object:
        """What all places depend on: if it changes, all are judged again."""
        return None


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
