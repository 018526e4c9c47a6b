"""Priority bands: each band of equal priority is placed, and preempts, before the next gets what is left.

Room that is kept for a pod (`status.nominatedNodeName`) until others are gone is held against pods of the same and of
lower priority, not against more important ones: as in Kubernetes.
"""

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from msgspec.structs import replace as changed

from app.kinds.pod.pod import Pod
from app.kinds.scheduling.podgroup import PodGroup
from app.scheduler.cache import Cluster
from app.scheduler.eviction_units import Budgets, Units, is_going, priority_of
from app.scheduler.filters import Refusal
from app.scheduler.gang_preemption import GangPreemption, clearing, kept, priority
from app.scheduler.gang_scheduling import Group, GroupKey, Groups
from app.scheduler.placement import Outcome, Pending, Wanted, schedule
from app.scheduler.pod_info import PodInfo
from app.scheduler.preemption import Lowest, Options, PreemptionContext, Victims

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


Place = Callable[[Iterable[Pending], Cluster], Outcome]
May = Callable[[Pod, PodInfo], Refusal | None]
"""Why a pod may go to no node, whether or not there is room."""


def anybody(_: Pod, __: PodInfo) -> None:
    """Nothing but the nodes decides."""


@dataclass
class Tiered:
    """Bindings, and what becomes of the others; of those without a verdict, that is found out in the next round.

    Verdicts are also about pods whose turn it was not, but whose room was given to a more important one.
    """

    bound: list[tuple[Pod, str]] = field(default_factory=list)
    unbound: list[tuple[Pod, Refusal]] = field(default_factory=list)
    verdicts: list[Verdict] = field(default_factory=list)


def in_tiers(
    pending: Iterable[Pending],
    nominated: Iterable[Pending],
    cluster: Cluster,
    search: Search,
    place: Place = schedule,
    may: May = anybody,
) -> Tiered:
    """`nominated`: all pods that room is kept for, also if it is not their turn. In each tier the order is the one given."""
    result, nominated = Tiered(), list(nominated)
    round_ = _Round(cluster, search, place, may, nominated, result)
    try:
        for _, tier in groupby(sorted(pending, key=_downwards), _downwards):
            round_.take(list(tier))
    finally:
        round_.end()
    seen = {pod.metadata.uid for pod, _ in (*result.bound, *result.unbound)} if nominated else set()
    outdone = (pod for pod, _ in nominated if search.is_outdone(pod) and pod.metadata.uid not in seen)
    result.verdicts += (Verdict(pod, "") for pod in outdone)
    return result


def _downwards(pending: Pending) -> int:
    return -priority_of(pending[0])


class _Round:
    def __init__(
        self, cluster: Cluster, search: Search, place: Place, may: May, nominated: Iterable[Pending], result: Tiered
    ) -> None:
        self._cluster = cluster
        self._search = search
        self._place = place
        self._may = may
        self._result = result
        self._to_hold = sorted(nominated, key=_downwards, reverse=True)  # the last is the next
        self._own_room = {_party(pod, search) for pod, _ in nominated}
        self._held: set[str] = set()

    def take(self, tier: Sequence[Pending]) -> None:
        """Those that room is kept for come first, and go where it is if they can."""
        self._hold_down_to(tier[0])
        if not self._own_room:
            self._settle(tier, self._place)
            return
        firsts: dict[Hashable, list[Pending]] = {}
        rest: list[Pending] = []
        for each in tier:
            party = _party(each[0], self._search)
            (firsts.setdefault(party, []) if party in self._own_room else rest).append(each)
        for some in firsts.values():
            self._settle(some, self._place if self._search.whole(some[0][0]) else self._first)
        if rest:
            self._settle(rest, self._place)

    def _first(self, pending: Iterable[Pending], cluster: Cluster) -> Outcome:
        ((pod, info),) = pending
        node = pod.status.nominated_node_name
        if node not in cluster.node_infos or cluster.fits(pod, info, node):
            return self._place([(pod, info)], cluster)
        if (why := self._may(pod, info)) is not None:
            return Outcome([], [(pod, why)])
        cluster.place(pod, node, info)
        return Outcome([(pod, node)], [])

    def _settle(self, some: Sequence[Pending], place: Place) -> None:
        for pod, _ in some if self._held else ():
            if not self._search.places(pod):  # those were given to its gang in this round
                self._let_go(pod.metadata.uid)
        outcome = place(some, self._cluster)
        self._result.bound += outcome.bound
        self._result.unbound += outcome.unbound
        infos = {pod.metadata.uid: info for pod, info in some} if outcome.unbound else {}
        for pod, refusal in outcome.unbound:
            info = infos[pod.metadata.uid]
            verdict = self._search.of(pod, info, refusal)
            if verdict is not None:
                self._result.verdicts.append(verdict)
            if node := pod.status.nominated_node_name if verdict is None else verdict.node:
                self._hold_all(self._search.places(pod) or [(pod, info, node)])

    # Room that is kept

    def _hold_down_to(self, one: Pending) -> None:
        while self._to_hold and _downwards(self._to_hold[-1]) <= _downwards(one):
            pod, info = self._to_hold.pop()
            if not self._search.is_outdone(pod):
                self._hold(pod, pod.status.nominated_node_name, info)

    def _hold_all(self, wanted: Sequence[Wanted]) -> None:
        for pod, info, node in wanted if wanted[0][0].metadata.uid not in self._held else ():
            self._hold(pod, node, info)

    def _hold(self, pod: Pod, node: str, info: PodInfo) -> None:
        """It is not there yet: who wants to be near it, or as far from it as others are, does not see it."""
        if pod.metadata.uid in self._cluster.placed:
            return  # with the more important of its gang
        unseen = changed(pod, metadata=changed(pod.metadata, labels={}))
        self._cluster.place(unseen, node, _quiet(info))
        self._held.add(pod.metadata.uid)

    def _let_go(self, uid: str) -> None:
        if uid in self._held:
            self._held.remove(uid)
            self._cluster.unplace(uid)

    def end(self) -> None:
        for uid in list(self._held):
            self._let_go(uid)


def _party(pod: Pod, search: Search) -> Hashable:
    """Its gang, or the pod itself."""
    group = search.whole(pod)
    return pod.metadata.uid if group is None else group.key


def _quiet(info: PodInfo) -> PodInfo:
    """Only what it does not want near it counts already."""
    apart = tuple(bond for bond in info.bonds if bond.sort == "apart")
    return dataclasses.replace(info, bonds=apart) if apart != info.bonds else info
