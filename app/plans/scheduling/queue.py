"""What waits for a place, whose turn it is, and what is not worth looking at now. Pure; the scheduler's controller holds it.

In order of priority, then of age, which is the time of creation (Kubernetes: of joining the queue; a restart would change
that); what is of one second goes class by class, then by name. Pods that can be treated alike are one lot, and so are the
members of a gang. What was looked at in vain is looked at again when something happens that can help; of a lot only as
many as there may be room for, and one more. If that was in vain, too, there is a back-off: until it ends a lot is looked at
only if it is among the first in line, and a node would take its first pod now.
"""

from bisect import insort
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from heapq import heapify, heappop, heapreplace, merge, nsmallest
from itertools import chain

from app.kinds.pod import Pod
from app.plans.plan import earliest
from app.plans.scheduling.cluster import Cluster
from app.plans.scheduling.fair import Fair
from app.plans.scheduling.gangs import Groups
from app.plans.scheduling.lots import Entry, Lot, drop, is_choosy, is_in, moved
from app.plans.scheduling.order import Order, order_of
from app.plans.scheduling.round import Pending
from app.plans.scheduling.slots import slots
from app.plans.scheduling.wish import Wish

BACK_OFF = timedelta(seconds=1), timedelta(seconds=10)  # doubling; of kube-scheduler
FLUSH = timedelta(minutes=5)  # in the unlikely case that an event was missed
GATHERING = timedelta(seconds=2)  # nothing is said of a gang while its pods are still being created
FOREMOST = 64  # lots that are next
_EVENTS = 10_000  # that are remembered: a lot that slept through more takes all nodes for changed
# Labels that are different for each pod of an owner.
_OWN = frozenset(
    {
        "batch.kubernetes.io/job-completion-index",
        "apps.kubernetes.io/pod-index",
        "statefulset.kubernetes.io/pod-name",
    }
)

_Block = tuple[Order, list[str]]
"""Pods, by UID, that are looked at together."""


class Queue:
    def __init__(self, cluster: Cluster, groups: Groups, fair: Fair | None = None) -> None:
        self._cluster = cluster
        self._groups = groups
        self._fair = fair or Fair(cluster)
        self._pods: dict[str, tuple[Pending, Order, Lot]] = {}  # by UID
        self._lots: dict[Hashable, Lot] = {}
        self._eased: list[str | None] = []  # nodes with more room, or None for all of them
        self._eased_begins = 0
        self._moves = 0
        self._looks_at_labels = False
        self._nominated: set[str] = set()  # who has room kept for them
        self._turn: dict[Lot, bool] = {}  # the lots of this turn: whether they were woken
        self._cut: set[Lot] = set()  # those of which there was more to look at than the turn took
        self.choosy = 0  # pods that it may help when others come to nodes
        self.has_more = False  # after a turn: not all had theirs

    def __len__(self) -> int:
        return len(self._pods)

    # What waits

    def put(self, pod: Pod, wish: Wish) -> None:
        """A pod waits, or has changed in a way that may help it."""
        uid = pod.metadata.uid
        self.remove(uid)
        group = self._groups.whole(pod)
        key = group.key if group is not None else self._key(pod, wish)
        lot = self._lots.get(key)
        if lot is None:
            lot = self._lots[key] = Lot(key, wish, group, eased_at=self._now, moved_at=self._moves)
        order = order_of(pod, wish)
        insort(lot.fresh, (order, uid))
        self._pods[uid] = (pod, wish), order, lot
        self.choosy += is_choosy(wish)
        self._note_nomination(pod)

    def renew(self, pod: Pod) -> None:
        """A pod that waits has changed in a way that does not matter to where it may go."""
        (_, wish), order, lot = self._pods[pod.metadata.uid]
        self._pods[pod.metadata.uid] = (pod, wish), order, lot
        self._note_nomination(pod)

    def _note_nomination(self, pod: Pod) -> None:
        (self._nominated.add if pod.status.nominated_node_name else self._nominated.discard)(pod.metadata.uid)

    def pod(self, uid: str) -> Pod:
        """As it was last seen."""
        return self._pods[uid][0][0]

    def counts(self) -> Counter[str]:
        """How many wait, by namespace."""
        return Counter(pod.metadata.namespace for (pod, _), _, _ in self._pods.values())

    def nominated(self) -> list[Pending]:
        """Those that room is kept for, also if it is not their turn."""
        return [self._pods[uid][0] for uid in sorted(self._nominated)]

    def remove(self, uid: str) -> None:
        """A pod does not wait any more."""
        known = self._pods.pop(uid, None)
        if known is None:
            return
        self._nominated.discard(uid)
        (_, wish), order, lot = known
        self.choosy -= is_choosy(wish)
        drop(lot.fresh, (order, uid)) or drop(lot.vain, (order, uid))
        if not lot.fresh and not lot.vain:
            del self._lots[lot.key]

    def again(self, pods: Iterable[Pending]) -> None:
        """Their group is not what it was: they may be of another lot."""
        for pod, wish in list(pods):
            self.put(pod, wish)

    def _key(self, pod: Pod, wish: Wish) -> Hashable:
        """Whether other pods bear a pod's being near depends on its labels: as soon as any do not, labels matter."""
        spec, meta = pod.spec, pod.metadata
        space = meta.namespace if self._fair.is_active else ""
        alike = wish.key, spec.priority or 0, spec.preemption_policy, space
        if not self._looks_at_labels:
            return alike
        return (*alike, meta.namespace, frozenset((key, meta.labels[key]) for key in meta.labels.keys() - _OWN))

    # What happens

    def ease(self, node: str | None = None) -> None:
        """There may be more room on a node, or, without a name, on any."""
        self._eased.append(node)
        if len(self._eased) > _EVENTS:
            half = len(self._eased) // 2
            del self._eased[:half]
            self._eased_begins += half

    def move(self) -> None:
        """Pods came to nodes, or changed their labels: that helps those who want to be near them, or even with them."""
        self._moves += 1

    @property
    def _now(self) -> int:
        return self._eased_begins + len(self._eased)

    # Turns

    def turn(self, now: datetime, most: int) -> list[Pending]:
        """Those to be looked at now, in order; a gang as a whole. `settle` is told what came of it."""
        self._mind_labels()
        self._turn = {}
        own_room = self._own_room()
        foremost = self._foremost()
        found: list[Iterator[_Block]] = []
        offered: dict[Lot, int] = {}
        for lot in self._lots.values():
            self._flush(lot, now)
            is_woken = self._is_woken(lot) and (
                lot.ready_at is None
                or lot.ready_at <= now
                or lot in own_room
                or self._first_in_line(lot) is not None
                or (lot in foremost and self._fits(lot))
            )
            if is_woken or (lot.fresh and not self._gathers_until(lot, now)):
                self._turn[lot] = is_woken
                offered[lot], line = self._blocks(lot, most, own_room.get(lot, ()) if is_woken else None)
                found.append(line)
        taken = self._in_order(self._by_share(found) if self._fair.is_active else found, most)
        counted = Counter(self._pods[pod.metadata.uid][2] for pod, _ in taken)
        self._turn = {lot: was_woken for lot, was_woken in self._turn.items() if counted[lot]}
        self._cut = {lot for lot in self._turn if counted[lot] < offered[lot]}
        return taken

    def _foremost(self) -> set[Lot]:
        """The first in line, but for gangs: of them it cannot be told at a glance whether they fit."""
        lines = ((lot.first, lot) for lot in self._lots.values() if lot.group is None)
        return {lot for _, lot in nsmallest(FOREMOST, lines, key=_head)}

    def _fits(self, lot: Lot) -> bool:
        """Costs no more than what has changed, other than to say why it does not."""
        (pod, wish), _, _ = self._pods[lot.vain[0][1]]
        return self._cluster.ranking(pod, wish).best() is not None

    def _own_room(self) -> Mapping[Lot, list[Entry]]:
        """Whom room is kept for."""
        found: defaultdict[Lot, list[Entry]] = defaultdict(list)
        for uid in self._nominated:
            _, order, lot = self._pods[uid]
            found[lot].append((order, uid))
        return found

    def _blocks(self, lot: Lot, most: int, own_room: Iterable[Entry] | None) -> tuple[int, Iterator[_Block]]:
        """How many pods of a lot there are to look at, and those; if it was woken, also of those looked at in vain."""
        if lot.group is not None:
            uids = [uid for _, uid in sorted((*lot.fresh, *lot.vain))]
            return len(uids), iter([(lot.first, uids)])
        firsts = lot.fresh[: most + 1]  # one too many, to know that there is more
        if own_room is not None:
            firsts = sorted((*firsts, *self._seconds(lot, most, own_room)))[: most + 1]
        return len(firsts), ((order, [uid]) for order, uid in firsts)

    def _seconds(self, lot: Lot, most: int, own_room: Iterable[Entry]) -> list[Entry]:
        """Of those that were looked at in vain, the first, and those that room is kept for."""
        count = self._worth_a_look(lot, most + 1)  # one too many, here too
        return lot.vain[:count] + [entry for entry in own_room if is_in(lot.vain, entry, count)]

    def _by_share(self, found: Iterable[Iterator[_Block]]) -> list[Iterator[_Block]]:
        """Between namespaces, among equals in priority: as if each that is taken got its place."""
        of: defaultdict[str, list[Iterator[_Block]]] = defaultdict(list)
        for line in found:
            block = next(line)
            of[self._pods[block[1][0]][0][0].metadata.namespace].append(chain((block,), line))
        return [self._shared({namespace: merge(*lines) for namespace, lines in of.items()})] if of else []

    def _shared(self, lines: Mapping[str, Iterator[_Block]]) -> Iterator[_Block]:
        used = {namespace: dict(self._fair.ledger.of(namespace)) for namespace in lines}
        firsts = ((namespace, next(line)) for namespace, line in lines.items())
        heads = [(block[0][0], self._fair.share(space, used[space]), block, space) for space, block in firsts]
        heapify(heads)
        while heads:
            _, _, block, namespace = heads[0]
            yield block
            taken = used[namespace]
            for uid in block[1]:
                for name, count in self._pods[uid][0][1].needs.items():
                    taken[name] = taken.get(name, 0) + count
            following = next(lines[namespace], None)
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (following[0][0], self._fair.share(namespace, taken), following, namespace))

    def _in_order(self, found: list[Iterator[_Block]], most: int) -> list[Pending]:
        taken: list[Pending] = []
        heads = [(*next(line), number) for number, line in enumerate(found)]
        heapify(heads)
        while heads and len(taken) < most:
            _, uids, number = heads[0]
            taken += (self._pods[uid][0] for uid in uids)
            following = next(found[number], None)
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (*following, number))
        self.has_more = bool(heads)
        return taken

    def _mind_labels(self) -> None:
        if not self._looks_at_labels and self._cluster.tallies.are_held:
            self._looks_at_labels = True
            self.again([each for each, _, _ in self._pods.values()])

    def _flush(self, lot: Lot, now: datetime) -> None:
        """After a while all are looked at again, whatever happened."""
        if lot.vain and lot.looked_at is not None and now - lot.looked_at >= FLUSH:
            lot.fresh, lot.vain = sorted((*lot.fresh, *lot.vain)), []

    def _is_woken(self, lot: Lot) -> bool:
        """Something has happened that may help."""
        has_eased, has_moved = lot.eased_at != self._now, lot.is_choosy and lot.moved_at != self._moves
        return bool(lot.vain) and (has_eased or has_moved)

    def _gathers_until(self, lot: Lot, now: datetime) -> datetime | None:
        """Until when a gang that is not complete may be without a word about it."""
        if lot.group is None or lot.group.is_complete:
            return None
        born = (self._pods[uid][0][0].metadata.creation_timestamp for _, uid in lot.fresh)
        until = max((each for each in born if each is not None), default=now - GATHERING) + GATHERING
        return until if until > now else None

    def _worth_a_look(self, lot: Lot, most: int) -> int:
        """How many of those that were looked at in vain: no more than there can be room for, and one to hear why."""
        start = lot.eased_at - self._eased_begins
        names = set(self._eased[start:]) if start >= 0 else {None}
        keeps_away = lot.wish.apart or self._looks_at_labels  # then one that goes may make room in all of its zone
        if lot.is_choosy or keeps_away or None in names:
            return most
        count = 1 + self._slots(lot.wish, names, min(most, len(lot.vain)))
        first = self._first_in_line(lot)
        if first is not None:  # quota that was given back is good for any node
            space = self._pods[lot.vain[first][1]][0][0].metadata.namespace
            count = max(count, first + 1 + self._fair.slots(space, lot.wish.needs))
        return min(most, count)

    def _slots(self, wish: Wish, names: Iterable[str | None], enough: int) -> int:
        """On these nodes; more than enough need not be counted."""
        count = 0
        for room in map(self._cluster.rooms.get, filter(None, names)):
            if count >= enough:
                break
            count += slots(room, wish) if room is not None else 0
        return count

    def _first_in_line(self, lot: Lot) -> int | None:
        """The first that was refused for want of quota, not of a node: for quota nobody backs off."""
        if not lot.vain or not self._fair.line(self._pods[lot.vain[0][1]][0][0].metadata.namespace):
            return None
        return next((number for number, (_, uid) in enumerate(lot.vain) if self._fair.waits(uid)), None)

    def settle(self, bound: Iterable[Pod], vain: Iterable[Pod], now: datetime, undecided: Iterable[Pod] = ()) -> None:
        """After a turn: who has a place, unless its binding is refused; who was looked at in vain, or not to the end."""
        lucky = self._move(bound, vain=False)
        self._move(vain, vain=True)
        self.has_more |= bool(self._move(undecided, vain=False))
        for lot, was_woken in self._turn.items():
            if lot in lucky and lot in self._cut:
                continue  # there may be room for those, too, whose turn did not come
            self._settle_lot(lot, now, was_woken, lot in lucky)
        self._turn = {}

    def _settle_lot(self, lot: Lot, now: datetime, was_woken: bool, is_lucky: bool) -> None:
        lot.eased_at, lot.looked_at = self._now, now
        if not is_lucky:  # else what was placed may help others of the lot
            lot.moved_at = self._moves
        lot.attempts = 0 if is_lucky else lot.attempts + was_woken
        lot.ready_at = now + min(BACK_OFF[0] * 2 ** min(lot.attempts - 1, 10), BACK_OFF[1]) if lot.attempts else None

    def _move(self, pods: Iterable[Pod], *, vain: bool) -> set[Lot]:
        """To those that were looked at in vain, or to those that are to be looked at; their lots."""
        of: defaultdict[Lot, dict[str, Order]] = defaultdict(dict)
        for pod in pods:
            _, order, lot = self._pods[pod.metadata.uid]
            of[lot][pod.metadata.uid] = order
        for lot, orders in of.items():
            if vain:
                lot.fresh, lot.vain = moved(orders, lot.fresh, lot.vain)
            else:
                lot.vain, lot.fresh = moved(orders, lot.vain, lot.fresh)
        return set(of)

    def again_at(self, now: datetime) -> datetime | None:
        """When to take the next turn if nothing happens before."""
        if self.has_more:
            return now
        return earliest(chain.from_iterable(self._moments(lot, now) for lot in self._lots.values()))

    def _moments(self, lot: Lot, now: datetime) -> Iterator[datetime | None]:
        yield self._gathers_until(lot, now) if lot.fresh else None
        if lot.vain and lot.looked_at is not None:
            yield lot.looked_at + FLUSH
            yield lot.ready_at if self._is_woken(lot) else None


def _head(line: tuple[Order, Lot]) -> Order:
    return line[0]
