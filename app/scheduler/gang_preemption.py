"""Gang preemption: which pods go so that a whole gang fits; all of it fits, or nobody goes. For `preemption`.

All is tried on the cluster, and undone. Pod by pod, as long as more must find a place: one that fits takes its place, for
another those go who cost least. If that does not do, for pods that differ or care about each other, all go who may before
the first is placed. In the end those come back without whom every pod keeps its place, the most important first.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from msgspec.structs import replace

from app.kinds.pod.pod import Pod
from app.scheduler import placement
from app.scheduler.eviction_units import Unit, priority_of
from app.scheduler.filters import most_fit_count
from app.scheduler.gang_scheduling import Group, in_order
from app.scheduler.node_info import Placed
from app.scheduler.node_ranking import Ranking
from app.scheduler.placement import Pending, Place, Wanted, schedule
from app.scheduler.preemption import Options, PreemptionContext, Reprieve, Victims, without

NOBODY = Victims(())
MOST_PLACES, MOST_TRIED = 16, 4_000  # if the gang is to be in one place: so many are tried, and for so many pods
PATIENCE = 5_000  # pods that are looked at again to see whether somebody can stay


@dataclass(frozen=True, slots=True, eq=False)
class GangPreemption:
    """Where the pods of a gang will be, and who goes for that; nobody if it is enough that those go who do anyway."""

    places: Sequence[Wanted]
    victims: Victims = NOBODY


def priority(group: Group) -> int:
    """That of its least important pod: nobody goes for a gang who would not go for each of its pods."""
    return min(priority_of(pod) for pod, _ in group.waiting.values())


def kept(group: Group, context: PreemptionContext) -> GangPreemption | None:
    """What was cleared for it before, if that is still good as soon as those are gone who are going."""
    pods, cluster = in_order(group), context.cluster
    place = placement.kept(group.topology, pods, group.bound.values(), cluster)
    if place is False:
        return None
    with cluster.trial():
        for each in context.units.going(priority(group), context.going):
            cluster.unplace(each.pod.metadata.uid)
        nodes = _nodes(placement.put(placement.nominated(placement.inside(pods, place)), cluster))
    return GangPreemption(_places(pods, nodes)) if len(nodes) >= max(group.needed, 1) else None


def clearing(group: Group, context: PreemptionContext) -> GangPreemption | None:
    """The one that costs least of all places where the gang may be."""
    found = (_cleared(group, place, context) for place in _where(group, context))
    return min((each for each in found if each is not None), key=lambda each: each.victims.cost, default=None)


def _where(group: Group, context: PreemptionContext) -> Iterable[Place]:
    """Places that would have room for enough of them if all went who may; those with the most room now first."""
    label, least, node_infos = group.topology, priority(group), context.cluster.node_infos
    taken = {node_infos[name].node.metadata.labels.get(label) for name in group.bound.values() if name in node_infos}
    infos = {info.key: info for _, info in group.waiting.values()}.values()
    now: Counter[str] = Counter()
    then: Counter[str] = Counter()
    for node_info in node_infos.values():
        value = node_info.node.metadata.labels.get(label, "") if label else label
        if not label or (value and (not taken or value in taken)):
            now[value] += most_fit_count(node_info, infos)
            then[value] += most_fit_count(
                node_info, infos, without(node_info, context.units.below(least, node_info.pods.values()))
            )
    enough = [value for value in then if then[value] >= max(group.needed, 1)]
    most = max(1, min(MOST_PLACES, MOST_TRIED // len(group.waiting)))
    first = sorted(enough, key=lambda value: (-now[value], value))[:most]
    return [(label, value) if label else None for value in first]


def _cleared(group: Group, place: Place, context: PreemptionContext) -> GangPreemption | None:
    pods, least = in_order(group), priority(group)
    alike = [
        each if priority_of(each[0]) == least else _as_if_of(least, each) for each in placement.inside(pods, place)
    ]
    for is_at_once in (False, True):
        with context.cluster.trial():
            tried = _Try(alike, max(group.needed, 1), least, context)
            victims = tried.victims(is_at_once=is_at_once)
        if victims is not None:
            return GangPreemption(_places(pods, _nodes((pod, node) for pod, _, node in tried.places)), victims)
        if not tried.has_hope and len({info.key for _, info in pods}) == 1:
            break  # another order would be no better
    return None


class _Try:
    """On a cluster on which all of it is undone."""

    def __init__(self, pods: Sequence[Pending], needed: int, least: int, context: PreemptionContext) -> None:
        self._pods = pods
        self._needed = needed
        self._least = least
        self._ground = context
        self._cluster = context.cluster
        infos = {info.key: (pod, info) for pod, info in pods}.values()
        self.is_plain = not any(
            info.near or info.apart or info.spreads or info.ports or self._cluster.tallies.concerning(pod)
            for pod, info in infos
        )
        self.has_hope = any(info.near or info.spreads for _, info in infos)  # that others make a place for a pod
        self._asked = {name for _, info in infos for name in info.needs}
        self._patience = PATIENCE
        self._gone: list[Placed] = []
        self._taken: set[str] = set()
        self.places: list[Wanted] = []

    def victims(self, *, is_at_once: bool) -> Victims | None:
        """None if not enough find places."""
        for each in self._ground.units.going(self._least, self._ground.going):
            self._cluster.unplace(each.pod.metadata.uid)
        (self._place_at_once if is_at_once else self._place_one_by_one)()
        if len(self.places) < self._needed:
            return None
        reprieve = Reprieve(self._ground.units.of(self._gone, self._ground.going), self._ground)
        self._taken = {node for _, _, node in self.places}
        gone = self._come_back(reprieve.order)
        if is_at_once and self._patience < 0:
            return None  # too many would go who might have stayed
        return reprieve.victims(gone)

    # Placing

    def _place_one_by_one(self) -> None:
        options = Options(self._ground.copy(), for_many=True)
        left, before = list(self._pods), -1
        while left and len(self.places) > before:  # some may want to be near others
            before = len(self.places)
            left = self._pass(left, options)

    def _pass(self, pods: Sequence[Pending], options: Options) -> list[Pending]:
        left: list[Pending] = []
        full: dict[Ranking, int] = {}  # classes without a place, and after how many moves
        for number, (pod, info) in enumerate(pods):
            if len(self.places) == self._needed:
                return []
            if not self.has_hope and len(self.places) + len(pods) - number < self._needed:
                return []
            ranking = self._cluster.ranking(pod, info)
            node = None if full.get(ranking) == options.moves else self._place_of((pod, info), ranking, options)
            if node is None:
                full[ranking] = options.moves
                left.append((pod, info))
            else:
                self._put((pod, info), node)
        return left

    def _place_of(self, pending: Pending, ranking: Ranking, options: Options) -> str | None:
        """A node, once those are gone from it who have to."""
        if node := ranking.best():
            options.moves += 1
            return node
        found = options.best(*pending, ranking.refusal)
        if isinstance(found, str):
            return None
        node, victims = found
        for pod in victims.pods:
            self._go(pod.metadata.uid)
        return node

    def _place_at_once(self) -> None:
        everybody = self._ground.units.below(self._least, self._cluster.placed.values())
        for each in everybody:
            self._go(each.pod.metadata.uid)
        infos = {pod.metadata.uid: info for pod, info in self._pods}
        for number, (pod, node) in enumerate(schedule(self._pods, self._cluster).bound):
            if number < self._needed:
                self.places.append((pod, infos[pod.metadata.uid], node))
            else:
                self._cluster.unplace(pod.metadata.uid)

    def _put(self, pending: Pending, node: str) -> None:
        pod, info = pending
        self._cluster.place(pod, node, info)
        self.places.append((pod, info, node))

    def _go(self, uid: str) -> None:
        placed = self._cluster.unplace(uid)
        if placed is not None:
            self._gone.append(placed)

    # Coming back

    def _come_back(self, units: Iterable[Unit]) -> list[Unit]:
        """Those that cannot, in this order."""
        gone: list[Unit] = []
        back: list[Unit] = []
        for unit in units:
            if self._has_room_for(unit):
                self._bring([unit])
                back.append(unit)
            else:
                gone.append(unit)
        if self.is_plain or self._is_still_placed():
            return gone
        self._send(back)
        unlucky: list[Unit] = []
        self._as_many_as_can(back, unlucky)
        return [unit for unit in (*unlucky, *gone) if not (self._has_room_for(unit) and self._may_stay([unit]))]

    def _as_many_as_can(self, units: Sequence[Unit], gone: list[Unit]) -> None:
        """Some at a time: most of them are nobody's concern."""
        if not units or self._may_stay(units):
            return
        if len(units) == 1:
            gone += units
            return
        half = len(units) // 2
        self._as_many_as_can(units[:half], gone)
        self._as_many_as_can(units[half:], gone)

    def _may_stay(self, units: Iterable[Unit]) -> bool:
        self._bring(units)
        if self._is_still_placed():
            return True
        self._send(units)
        return False

    def _bring(self, units: Iterable[Unit]) -> None:
        for each in (each for unit in units for each in unit.here):
            self._cluster.place(each.pod, each.node, each.info)

    def _send(self, units: Iterable[Unit]) -> None:
        for each in (each for unit in units for each in unit.here):
            self._cluster.unplace(each.pod.metadata.uid)

    def _has_room_for(self, unit: Unit) -> bool:
        """Beside the pods of the gang, as far as these need the same."""
        needs: Counter[tuple[str, str]] = Counter()
        for each in unit.here:
            for name in self._asked if each.node in self._taken else ():
                needs[each.node, name] += each.info.needs.get(name, 0)
        node_infos = self._cluster.node_infos
        return all(not count or node_infos[node].free.get(name, 0) >= count for (node, name), count in needs.items())

    def _is_still_placed(self) -> bool:
        """Each pod of the gang might be put where it is, if it were not there."""
        self._patience -= len(self.places)
        if self._patience < 0:
            return False
        for pod, info, node in self.places:
            self._cluster.unplace(pod.metadata.uid)
            why = self._cluster.fits(pod, info, node)
            self._cluster.place(pod, node, info)
            if why:
                return False
        return True


def _as_if_of(least: int, pending: Pending) -> Pending:
    pod, info = pending
    return replace(pod, spec=replace(pod.spec, priority=least)), info


def _nodes(bound: Iterable[tuple[Pod, str]]) -> dict[str, str]:
    return {pod.metadata.uid: node for pod, node in bound}


def _places(pods: Iterable[Pending], nodes: dict[str, str]) -> list[Wanted]:
    """The pods as they are, not as they were narrowed to a place."""
    return [(pod, info, nodes[uid]) for pod, info in pods if (uid := pod.metadata.uid) in nodes]
