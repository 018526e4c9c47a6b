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
from app.scheduler.cache import Cluster
from app.scheduler.eviction_units import priority_of
from app.scheduler.filters import Refusal
from app.scheduler.pod_info import PodInfo
from app.scheduler.preemption import Search, Verdict
from app.scheduler.scheduling_round import Outcome, Pending, schedule
from app.scheduler.topology_packing import Wanted

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
