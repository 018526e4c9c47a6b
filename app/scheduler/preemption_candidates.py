"""Preemption candidates: nodes on which pods could go so that others fit. For `preemption` and, on a copy, `gang_preemption`.

Alike pods share what is found out: all nodes are looked at once for a class, and again only those where something has
changed.
"""

import heapq
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from app.kinds.pod.pod import Pod
from app.scheduler.eviction_units import priority_of
from app.scheduler.filters import Refusal, summed
from app.scheduler.node_ranking import Ranking
from app.scheduler.pod_info import PodInfo
from app.scheduler.preemption_context import PreemptionContext
from app.scheduler.victims import NONE_FOUND, Cost, Victims, victims_on

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
