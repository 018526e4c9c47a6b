"""Preemption: which pods of lower priority go, and from where, so that a pod that fits no node gets a place. As Kubernetes
does.

A `Search` serves one round of the scheduler. Of a gang all pods get their places so, or nobody goes for it
(`gang_preemption`). Members of gangs are victims like all others, unless their group is disrupted only as a whole
(`eviction_units`).
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from app.kinds.pod.pod import Pod
from app.kinds.scheduling.podgroup import PodGroup
from app.scheduler.cache import Cluster
from app.scheduler.eviction_units import Units, is_going, priority_of
from app.scheduler.filters import Refusal
from app.scheduler.gang_preemption import GangPreemption, clearing, kept, priority
from app.scheduler.gangs import Group, GroupKey, Groups
from app.scheduler.pod_info import PodInfo
from app.scheduler.preemption_candidates import Options
from app.scheduler.preemption_context import Budgets, Lowest, PreemptionContext
from app.scheduler.topology_packing import Wanted
from app.scheduler.victims import Victims

NEVER = "not eligible due to preemptionPolicy=Never."
GOING = "not eligible due to a terminating pod on the nominated node."
GANG_GOING = "not eligible due to terminating pods on the nominated nodes."
GANG_IN_VAIN = "no place for enough pods of the group if those of lower priority went."

MOST = 32  # preemptions of one round
MOST_SOUGHT = 500  # pods of gangs; once room was looked for so many, the next gang has to wait for the next round


@dataclass(frozen=True, slots=True)
class Verdict:
    """What becomes of a pod that no node takes now: it waits. `node` is kept for it from now on, once the victims are gone.

    `why` is what it is told; nothing if it is not to be told anything. What is said of the pods of one `gang` is said at
    once; the first of them has all the victims.
    """

    pod: Pod
    why: str
    node: str = ""
    victims: tuple[Pod, ...] = ()
    disrupted: tuple[PodGroup, ...] = ()  # of which all pods go
    gang: GroupKey | None = None


@dataclass(slots=True)
class _Gang:
    """What becomes of a gang."""

    why: str = ""
    places: Sequence[Wanted] = ()
    nodes: dict[str, str] = field(default_factory=dict)  # by UID
    victims: tuple[Pod, ...] = ()  # until they are told


class Search:
    """For one round. What it answers it takes for done: the victims are going, and their room is the pod's."""

    def __init__(
        self, cluster: Cluster, lowest: Lowest, budgets: Budgets | None = None, groups: Groups | None = None
    ) -> None:
        self._cluster = cluster
        self._groups = groups or Groups()
        self._units = Units(cluster, self._groups)
        self._ground = PreemptionContext(cluster, lowest, budgets or Budgets(), self._units)
        self._options = Options(self._ground)
        self._gangs: dict[GroupKey, _Gang] = {}
        self._taken: dict[str, int] = {}  # nodes that were chosen, and the highest priority for which they were
        self._count = self._sought = 0
        self._texts: dict[tuple[Refusal, str], str] = {}

    def whole(self, pod: Pod) -> Group | None:
        """The group with which the pod is placed, or not at all: one place more would not help it."""
        return self._groups.whole(pod) if pod.spec.scheduling_group is not None else None

    def places(self, pod: Pod) -> Sequence[Wanted]:
        """Where all pods of its gang will be; nothing if that is not known, or there is none."""
        group = self.whole(pod)
        known = self._gangs.get(group.key) if group is not None else None
        return known.places if known is not None else ()

    def is_outdone(self, pod: Pod) -> bool:
        """Somebody more important was given the node that was kept for the pod."""
        taken = self._taken.get(pod.status.nominated_node_name)
        return taken is not None and taken > priority_of(pod)

    def of(self, pod: Pod, info: PodInfo, refusal: Refusal) -> Verdict | None:
        """None: there were enough preemptions in this round; ask again in the next.

        Whoever gets an answer with a node is expected to hold the room there before the next question; of a gang, all
        of its `places`.
        """
        if refusal.victims is not None:
            if refusal.victims:
                self._options.go(Victims(refusal.victims))
            return Verdict(pod, refusal.text(), "", refusal.victims, self._units.disrupted(refusal.victims))
        if (group := self.whole(pod)) is not None:
            return self._of_gang(group, pod, refusal)
        if why := self._ineligible(pod, refusal):
            return Verdict(pod, self._text(refusal, why), pod.status.nominated_node_name)
        if self._count >= MOST:
            return None
        found = self._options.best(pod, info, lambda: refusal)
        if isinstance(found, str):
            return Verdict(pod, self._text(refusal, found))
        node, victims = found
        self._count += 1
        self._take(node, priority_of(pod))
        return Verdict(pod, self._text(refusal), node, victims.pods, self._units.disrupted(victims.pods))

    def _take(self, node: str, importance: int) -> None:
        self._taken[node] = max(importance, self._taken.get(node, importance))

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
        node_info = self._cluster.node_infos.get(node)
        if node_info is None or node in refusal.hopeless or self.is_outdone(pod):
            return ""
        there = (each.pod for each in node_info.pods.values() if priority_of(each.pod) < priority_of(pod))
        return GOING if any(is_going(each, self._ground.going) for each in there) else ""

    # Gangs

    def _of_gang(self, group: Group, pod: Pod, refusal: Refusal) -> Verdict | None:
        known = self._gangs.get(group.key)
        if known is None:
            known = self._decided(group) if refusal.reasons else _Gang()  # else it was not even tried
            if known is None:
                return None
            self._gangs[group.key] = known
        victims, known.victims = known.victims, ()
        node = known.nodes.get(pod.metadata.uid, "")
        text, disrupted = self._text(refusal, known.why), self._units.disrupted(victims)
        return Verdict(pod, text, node, victims, disrupted, group.key if known.places else None)

    def _decided(self, group: Group) -> _Gang | None:
        """None if there were enough preemptions in this round."""
        context = self._ground
        if group.is_kept_room and (known := kept(group, context)) is not None:
            return self._given(known, GANG_GOING)
        if any(pod.spec.preemption_policy == "Never" for pod, _ in group.waiting.values()):
            return _Gang(NEVER)
        least = priority(group)
        if not context.lowest.below(least):
            return _Gang()
        if self._sought >= MOST_SOUGHT:
            return None
        self._sought += len(group.waiting)
        found = clearing(group, context)
        if found is None:
            return _Gang(GANG_IN_VAIN)
        self._options.go(found.victims)
        for node in {node for _, _, node in found.places}:
            self._take(node, least)
        return self._given(found)

    def _given(self, found: GangPreemption, why: str = "") -> _Gang:
        nodes = {pod.metadata.uid: node for pod, _, node in found.places}
        return _Gang(why, found.places, nodes, found.victims.pods)
