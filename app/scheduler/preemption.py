"""Victims: which pods would have to go from one node so that a pod fits there: as few and as unimportant as possible.

Pods that are going anyway count as gone: nobody goes in their place.
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
from app.scheduler.eviction_units import Budgets, Unit, Units, began, importance, priority_of
from app.scheduler.filters import Refusal, summed
from app.scheduler.node_info import NodeInfo, Placed
from app.scheduler.node_ranking import Ranking
from app.scheduler.pod_info import PodInfo


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


UNHELPFUL = "Preemption is not helpful for scheduling"

LEAST = 100  # nodes where it would be possible, of which the best is taken; or
PART = 10  # one in so many of those that there are, if that is more


@dataclass(slots=True)
class _Class:
    """Where pods of one class and priority could have others go."""

    why: str = ""  # not, if nowhere
    is_choosy: bool = False  # cares about pods on other nodes, too
    is_used: bool = False
    changed: list[str] = field(default_factory=list)  # nodes to look at again
    found: list[tuple[Cost, str, int, Victims]] = field(default_factory=list)  # a heap, with when it was found


class Options:
    """What was answered is taken for done: the victims are going, and their room is the pod's.

    `for_many`: of pods that care about others, only the node that comes up is looked at again after each answer.
    """

    def __init__(self, context: PreemptionContext, *, for_many: bool = False) -> None:
        self.moves = 0  # rises with each answer; and whoever asks for many counts here what else was placed
        self._ground = context
        self._cluster = context.cluster
        self._for_many = for_many
        self._classes: dict[tuple[Ranking, int], _Class] = {}

    def best(self, pod: Pod, info: PodInfo, refusal: Callable[[], Refusal]) -> tuple[str, Victims] | str:
        """A node, and who goes from it; or why that would not help anywhere. `refusal`: why no node takes the pod now.

        Whoever gets a node is expected to hold the room there before the next question.
        """
        known = self._class_of(pod, info, refusal)
        best = self._best(known, pod, info)
        if best is None:
            return known.why
        node, victims = best
        known.is_used = True
        known.changed.append(node)
        self.go(victims, node)
        return best

    def go(self, victims: Victims, node: str = "") -> None:
        """They are going. What was found out about other nodes than this one may not be true any more."""
        self.moves += 1
        self._ground.going.update(each.metadata.uid for each in victims.pods)
        is_elsewhere = any(each.spec.node_name != node for each in victims.pods)
        if self._ground.budgets.take(victims.pods) or is_elsewhere:
            self._classes.clear()

    def _class_of(self, pod: Pod, info: PodInfo, refusal: Callable[[], Refusal]) -> _Class:
        key = self._cluster.ranking(pod, info), priority_of(pod)
        known = self._classes.get(key)
        if known is not None and known.is_used and known.is_choosy and not self._for_many:
            known = None
        if known is not None:
            for node in known.changed:
                self._try(known, node, pod, info)
            known.changed.clear()
        if known is None or (known.is_used and not known.found):
            known = self._classes[key] = self._looked(pod, info, refusal())
        return known

    def _looked(self, pod: Pod, info: PodInfo, refusal: Refusal) -> _Class:
        hopeless = refusal.hopeless
        promising = len(refusal.reasons) - len(hopeless)
        enough = max(LEAST, promising // PART)
        is_choosy = info.near or info.apart or info.spreads or self._cluster.tallies.concerning(pod)
        found = _Class(is_choosy=bool(is_choosy))
        counted: Counter[str] = Counter()
        looked_at = 0
        for node in self._ground.lowest.below(priority_of(pod)):
            if node in hopeless:
                continue
            if len(found.found) >= enough and not found.found[0][-1].violations:
                break
            looked_at += 1
            counted.update(self._try(found, node, pod, info))
        counted += Counter({UNHELPFUL: len(hopeless), NONE_FOUND: promising - looked_at})
        found.why = summed(len(refusal.reasons), counted)
        return found

    def _try(self, known: _Class, node: str, pod: Pod, info: PodInfo) -> tuple[str, ...]:
        """Why it would not help if pods went from this node; nothing if it would."""
        is_plain = not known.is_choosy and not info.ports
        victims = victims_on(node, pod, info, self._ground, is_plain=is_plain)
        if not isinstance(victims, Victims):
            return victims
        heapq.heappush(known.found, (victims.cost, node, self._changed_at(known, node), victims))
        return ()

    def _changed_at(self, known: _Class, node: str) -> int:
        return self.moves if known.is_choosy and self._for_many else self._cluster.node_infos[node].touched_at

    def _best(self, known: _Class, pod: Pod, info: PodInfo) -> tuple[str, Victims] | None:
        while known.found:
            _, node, found_at, victims = heapq.heappop(known.found)
            if self._changed_at(known, node) == found_at:
                return node, victims
            self._try(known, node, pod, info)
        return None
