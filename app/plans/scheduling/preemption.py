"""Which pods of lower priority go, and from where, so that a pod that no node takes has a place: as Kubernetes decides it.

A `Search` serves one round of the scheduler. Alike pods share what it finds out: it looks at all nodes once for a class,
and again only at those where something has changed. Members of gangs are victims like all others: a gang that loses one
is its owner's to mend.
"""

import heapq
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cached_property

from app.kinds.pod import Pod
from app.kinds.poddisruptionbudget import PodDisruptionBudget
from app.plans.scheduling.cluster import Cluster
from app.plans.scheduling.explain import Refusal, summed
from app.plans.scheduling.ranking import Ranking
from app.plans.scheduling.victims import NONE_FOUND, Budgets, Cost, Victims, is_going, priority_of, victims_on
from app.plans.scheduling.wish import Wish

UNHELPFUL = "Preemption is not helpful for scheduling"
NEVER = "not eligible due to preemptionPolicy=Never."
GOING = "not eligible due to a terminating pod on the nominated node."

LEAST = 100  # nodes where it would be possible, of which the best is taken; or
PART = 10  # one in so many of those that there are, if that is more
MOST = 32  # preemptions of one round


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a pod that no node takes now: it waits. `node` is kept for it from now on, once the victims are gone.

    `why` is what it is told; nothing if it is not to be told anything.
    """

    pod: Pod
    why: str
    node: str = ""
    victims: tuple[Pod, ...] = ()


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


@dataclass(slots=True)
class _Class:
    """Where pods of one class and priority could have others go."""

    why: str = ""  # not, if nowhere
    is_choosy: bool = False  # cares about pods on other nodes, too
    is_used: bool = False
    changed: list[str] = field(default_factory=list)  # nodes to look at again
    found: list[tuple[Cost, str, int, Victims]] = field(default_factory=list)  # a heap, with when it was found


class Search:
    """For one round. What it answers it takes for done: the victims are going, and their room is the pod's."""

    def __init__(
        self,
        cluster: Cluster,
        lowest: Lowest,
        budgets: Iterable[PodDisruptionBudget] = (),
        is_of_whole: Callable[[Pod], bool] = lambda _: False,
    ) -> None:
        """`is_of_whole`: a pod that is placed together with others, or not at all. One place more would not help it."""
        self.is_of_whole = is_of_whole
        self._cluster = cluster
        self._lowest = lowest
        self._given = budgets
        self._classes: dict[tuple[Ranking, int], _Class] = {}
        self._going: set[str] = set()
        self._taken: dict[str, int] = {}  # nodes that were chosen, and the highest priority for which they were
        self._count = 0
        self._texts: dict[tuple[Refusal, str], str] = {}

    @cached_property
    def _budgets(self) -> Budgets:
        return Budgets(self._given)  # in most rounds nobody asks

    def is_outdone(self, pod: Pod) -> bool:
        """Somebody more important was given the node that was kept for the pod."""
        taken = self._taken.get(pod.status.nominated_node_name)
        return taken is not None and taken > priority_of(pod)

    def of(self, pod: Pod, wish: Wish, refusal: Refusal) -> Verdict | None:
        """None: there were enough preemptions in this round; ask again in the next.

        Whoever gets an answer with a node is expected to hold the room there before the next question.
        """
        if refusal.victims is not None:
            self._going.update(each.metadata.uid for each in refusal.victims)
            return Verdict(pod, refusal.text(), victims=refusal.victims)
        if self.is_of_whole(pod):
            return Verdict(pod, self._text(refusal), pod.status.nominated_node_name)
        if why := self._ineligible(pod, refusal):
            return Verdict(pod, self._text(refusal, why), pod.status.nominated_node_name)
        if self._count >= MOST:
            return None
        known = self._class_of(pod, wish, refusal)
        best = self._best(known, pod, wish)
        if best is None:
            return Verdict(pod, self._text(refusal, known.why))
        node, victims = best
        self._choose(node, victims, pod, known)
        return Verdict(pod, self._text(refusal), node, victims.pods)

    def _text(self, refusal: Refusal, preemption: str = "") -> str:
        """Many pods are told the same of many nodes."""
        key = refusal, preemption
        if key not in self._texts:
            self._texts[key] = refusal.text(preemption)
        return self._texts[key]

    def _ineligible(self, pod: Pod, refusal: Refusal) -> str:
        if pod.spec.preemption_policy == "Never":
            return NEVER
        node = pod.status.nominated_node_name
        room = self._cluster.rooms.get(node)
        if room is None or node in refusal.hopeless or self.is_outdone(pod):
            return ""
        there = (each.pod for each in room.pods.values() if priority_of(each.pod) < priority_of(pod))
        return GOING if any(is_going(each, self._going) for each in there) else ""

    def _choose(self, node: str, victims: Victims, pod: Pod, known: _Class) -> None:
        self._count += 1
        self._going.update(each.metadata.uid for each in victims.pods)
        self._taken[node] = max(priority_of(pod), self._taken.get(node, priority_of(pod)))
        known.is_used = True
        known.changed.append(node)
        if self._budgets.take(victims.pods):
            self._classes.clear()

    # Looking

    def _class_of(self, pod: Pod, wish: Wish, refusal: Refusal) -> _Class:
        key = self._cluster.ranking(pod, wish), priority_of(pod)
        known = self._classes.get(key)
        if known is not None and known.is_used and known.is_choosy:
            known = None
        if known is not None:
            for node in known.changed:
                self._try(known, node, pod, wish)
            known.changed.clear()
        if known is None or (known.is_used and not known.found):
            known = self._classes[key] = self._looked(pod, wish, refusal)
        return known

    def _looked(self, pod: Pod, wish: Wish, refusal: Refusal) -> _Class:
        hopeless = refusal.hopeless
        promising = len(refusal.reasons) - len(hopeless)
        enough = max(LEAST, promising // PART)
        is_choosy = wish.near or wish.apart or wish.spreads or self._cluster.tallies.concerning(pod)
        found = _Class(is_choosy=bool(is_choosy))
        counted: Counter[str] = Counter()
        looked_at = 0
        for node in self._lowest.below(priority_of(pod)):
            if node in hopeless:
                continue
            if len(found.found) >= enough and not found.found[0][-1].violations:
                break
            looked_at += 1
            counted.update(self._try(found, node, pod, wish))
        counted += Counter({UNHELPFUL: len(hopeless), NONE_FOUND: promising - looked_at})
        found.why = summed(len(refusal.reasons), counted)
        return found

    def _try(self, known: _Class, node: str, pod: Pod, wish: Wish) -> tuple[str, ...]:
        """Why it would not help if pods went from this node; nothing if it would."""
        is_plain = not known.is_choosy and not wish.ports
        victims = victims_on(node, pod, wish, self._cluster, self._budgets, self._going, is_plain=is_plain)
        if not isinstance(victims, Victims):
            return victims
        heapq.heappush(known.found, (victims.cost, node, self._cluster.rooms[node].touched_at, victims))
        return ()

    def _best(self, known: _Class, pod: Pod, wish: Wish) -> tuple[str, Victims] | None:
        while known.found:
            _, node, touched_at, victims = heapq.heappop(known.found)
            if self._cluster.rooms[node].touched_at == touched_at:
                return node, victims
            self._try(known, node, pod, wish)
        return None
