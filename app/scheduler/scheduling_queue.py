"""Scheduling queue: pending pods in their order, and those that need no look now. Pure; held by the scheduler's controller.

In order of priority, then of age, which is the time of creation (Kubernetes: of joining the queue; a restart would change
that); what is of one second goes class by class, then by name. Pods that can be treated alike are one lot, and so are the
members of a gang. What was looked at in vain is looked at again when something happens that can help; of a lot only as
many as there may be room for, and one more. If that was in vain, too, there is a back-off: until it ends a lot is looked at
only if it is among the first in line, and a node would take its first pod now.
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heapify, heappop, heapreplace, merge, nsmallest
from itertools import chain

from app.kinds.pod.pod import Pod
from app.plans.plan import earliest
from app.scheduler.cache import Cluster
from app.scheduler.fair_sharing import FairSharing
from app.scheduler.filters import fit_count
from app.scheduler.gang_scheduling import Group, Groups
from app.scheduler.placement import Pending
from app.scheduler.pod_info import Order, PodInfo, order_of

_FEW = 16  # that are moved one by one; more cost less together
Entry = tuple[Order, str]
"""A pod, by its UID, and where it stands in line."""


@dataclass(slots=True, eq=False)
class Bucket:
    """Pods for which a look at one says what a look at all would say; or, with a group, pods to be placed together."""

    key: Hashable
    info: PodInfo
    group: Group | None
    fresh: list[Entry] = field(default_factory=list)  # to be looked at, in order, by UID
    vain: list[Entry] = field(default_factory=list)  # looked at already
    eased_at: int = 0  # how many events it knows of
    moved_at: int = 0
    looked_at: datetime | None = None  # when last in vain
    attempts: int = 0  # in vain, though something had happened that might have helped
    ready_at: datetime | None = None

    @property
    def first(self) -> Order:
        return min(each[0][0] for each in (self.fresh, self.vain) if each)

    @property
    def is_choosy(self) -> bool:
        """It may help it when pods come to nodes."""
        return is_choosy(self.info)


def is_choosy(info: PodInfo) -> bool:
    return bool(info.near or info.spreads)


def moved(orders: Mapping[str, Order], left: list[Entry], joined: list[Entry]) -> tuple[list[Entry], list[Entry]]:
    """From one list to the other, as far as they are in it."""
    if not left:
        return left, joined
    if len(orders) < _FEW:
        for uid, order in orders.items():
            if drop(left, (order, uid)):
                insort(joined, (order, uid))
        return left, joined
    moving = [each for each in left if each[1] in orders]
    return [each for each in left if each[1] not in orders], sorted((*joined, *moving))


def is_in(entries: list[Entry], entry: Entry, start: int = 0) -> bool:
    at = bisect_left(entries, entry, start)
    return at < len(entries) and entries[at] == entry


def drop(entries: list[Entry], entry: Entry) -> bool:
    at = bisect_left(entries, entry)
    if at == len(entries) or entries[at] != entry:
        return False
    del entries[at]
    return True


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
    def __init__(self, cluster: Cluster, groups: Groups, fair: FairSharing | None = None) -> None:
        self._cluster = cluster
        self._groups = groups
        self._fair = fair or FairSharing(cluster)
        self._pods: dict[str, tuple[Pending, Order, Bucket]] = {}  # by UID
        self._buckets: dict[Hashable, Bucket] = {}
        self._eased: list[str | None] = []  # nodes with more room, or None for all of them
        self._eased_begins = 0
        self._moves = 0
        self._looks_at_labels = False
        self._nominated: set[str] = set()  # who has room kept for them
        self._turn: dict[Bucket, bool] = {}  # the lots of this turn: whether they were woken
        self._cut: set[Bucket] = set()  # those of which there was more to look at than the turn took
        self.choosy = 0  # pods that it may help when others come to nodes
        self.has_more = False  # after a turn: not all had theirs

    def __len__(self) -> int:
        return len(self._pods)

    # What waits

    def put(self, pod: Pod, info: PodInfo) -> None:
        """A pod waits, or has changed in a way that may help it."""
        uid = pod.metadata.uid
        self.remove(uid)
        group = self._groups.whole(pod)
        key = group.key if group is not None else self._key(pod, info)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = Bucket(key, info, group, eased_at=self._now, moved_at=self._moves)
        order = order_of(pod, info)
        insort(bucket.fresh, (order, uid))
        self._pods[uid] = (pod, info), order, bucket
        self.choosy += is_choosy(info)
        self._note_nomination(pod)

    def renew(self, pod: Pod) -> None:
        """A pod that waits has changed in a way that does not matter to where it may go."""
        (_, info), order, bucket = self._pods[pod.metadata.uid]
        self._pods[pod.metadata.uid] = (pod, info), order, bucket
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
        (_, info), order, bucket = known
        self.choosy -= is_choosy(info)
        drop(bucket.fresh, (order, uid)) or drop(bucket.vain, (order, uid))
        if not bucket.fresh and not bucket.vain:
            del self._buckets[bucket.key]

    def again(self, pods: Iterable[Pending]) -> None:
        """Their group is not what it was: they may be of another lot."""
        for pod, info in list(pods):
            self.put(pod, info)

    def _key(self, pod: Pod, info: PodInfo) -> Hashable:
        """Whether other pods bear a pod's being near depends on its labels: as soon as any do not, labels matter."""
        spec, meta = pod.spec, pod.metadata
        space = meta.namespace if self._fair.is_active else ""
        alike = info.key, spec.priority or 0, spec.preemption_policy, space
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
        offered: dict[Bucket, int] = {}
        for bucket in self._buckets.values():
            self._flush(bucket, now)
            is_woken = self._is_woken(bucket) and (
                bucket.ready_at is None
                or bucket.ready_at <= now
                or bucket in own_room
                or self._first_in_line(bucket) is not None
                or (bucket in foremost and self._fits(bucket))
            )
            if is_woken or (bucket.fresh and not self._gathers_until(bucket, now)):
                self._turn[bucket] = is_woken
                offered[bucket], line = self._blocks(bucket, most, own_room.get(bucket, ()) if is_woken else None)
                found.append(line)
        taken = self._in_order(self._by_share(found) if self._fair.is_active else found, most)
        counted = Counter(self._pods[pod.metadata.uid][2] for pod, _ in taken)
        self._turn = {bucket: was_woken for bucket, was_woken in self._turn.items() if counted[bucket]}
        self._cut = {bucket for bucket in self._turn if counted[bucket] < offered[bucket]}
        return taken

    def _foremost(self) -> set[Bucket]:
        """The first in line, but for gangs: of them it cannot be told at a glance whether they fit."""
        lines = ((bucket.first, bucket) for bucket in self._buckets.values() if bucket.group is None)
        return {bucket for _, bucket in nsmallest(FOREMOST, lines, key=_head)}

    def _fits(self, bucket: Bucket) -> bool:
        """Costs no more than what has changed, other than to say why it does not."""
        (pod, info), _, _ = self._pods[bucket.vain[0][1]]
        return self._cluster.ranking(pod, info).best() is not None

    def _own_room(self) -> Mapping[Bucket, list[Entry]]:
        """Whom room is kept for."""
        found: defaultdict[Bucket, list[Entry]] = defaultdict(list)
        for uid in self._nominated:
            _, order, bucket = self._pods[uid]
            found[bucket].append((order, uid))
        return found

    def _blocks(self, bucket: Bucket, most: int, own_room: Iterable[Entry] | None) -> tuple[int, Iterator[_Block]]:
        """How many pods of a lot there are to look at, and those; if it was woken, also of those looked at in vain."""
        if bucket.group is not None:
            uids = [uid for _, uid in sorted((*bucket.fresh, *bucket.vain))]
            return len(uids), iter([(bucket.first, uids)])
        firsts = bucket.fresh[: most + 1]  # one too many, to know that there is more
        if own_room is not None:
            firsts = sorted((*firsts, *self._seconds(bucket, most, own_room)))[: most + 1]
        return len(firsts), ((order, [uid]) for order, uid in firsts)

    def _seconds(self, bucket: Bucket, most: int, own_room: Iterable[Entry]) -> list[Entry]:
        """Of those that were looked at in vain, the first, and those that room is kept for."""
        count = self._worth_a_look(bucket, most + 1)  # one too many, here too
        return bucket.vain[:count] + [entry for entry in own_room if is_in(bucket.vain, entry, count)]

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

    def _flush(self, bucket: Bucket, now: datetime) -> None:
        """After a while all are looked at again, whatever happened."""
        if bucket.vain and bucket.looked_at is not None and now - bucket.looked_at >= FLUSH:
            bucket.fresh, bucket.vain = sorted((*bucket.fresh, *bucket.vain)), []

    def _is_woken(self, bucket: Bucket) -> bool:
        """Something has happened that may help."""
        has_eased, has_moved = bucket.eased_at != self._now, bucket.is_choosy and bucket.moved_at != self._moves
        return bool(bucket.vain) and (has_eased or has_moved)

    def _gathers_until(self, bucket: Bucket, now: datetime) -> datetime | None:
        """Until when a gang that is not complete may be without a word about it."""
        if bucket.group is None or bucket.group.is_complete:
            return None
        born = (self._pods[uid][0][0].metadata.creation_timestamp for _, uid in bucket.fresh)
        until = max((each for each in born if each is not None), default=now - GATHERING) + GATHERING
        return until if until > now else None

    def _worth_a_look(self, bucket: Bucket, most: int) -> int:
        """How many of those that were looked at in vain: no more than there can be room for, and one to hear why."""
        start = bucket.eased_at - self._eased_begins
        names = set(self._eased[start:]) if start >= 0 else {None}
        keeps_away = bucket.info.apart or self._looks_at_labels  # then one that goes may make room in all of its zone
        if bucket.is_choosy or keeps_away or None in names:
            return most
        count = 1 + self._slots(bucket.info, names, min(most, len(bucket.vain)))
        first = self._first_in_line(bucket)
        if first is not None:  # quota that was given back is good for any node
            space = self._pods[bucket.vain[first][1]][0][0].metadata.namespace
            count = max(count, first + 1 + self._fair.fit_count(space, bucket.info.needs))
        return min(most, count)

    def _slots(self, info: PodInfo, names: Iterable[str | None], enough: int) -> int:
        """On these nodes; more than enough need not be counted."""
        count = 0
        for node_info in map(self._cluster.node_infos.get, filter(None, names)):
            if count >= enough:
                break
            count += fit_count(node_info, info) if node_info is not None else 0
        return count

    def _first_in_line(self, bucket: Bucket) -> int | None:
        """The first that was refused for want of quota, not of a node: for quota nobody backs off."""
        if not bucket.vain or not self._fair.line(self._pods[bucket.vain[0][1]][0][0].metadata.namespace):
            return None
        return next((number for number, (_, uid) in enumerate(bucket.vain) if self._fair.waits(uid)), None)

    def settle(self, bound: Iterable[Pod], vain: Iterable[Pod], now: datetime, undecided: Iterable[Pod] = ()) -> None:
        """After a turn: who has a place, unless its binding is refused; who was looked at in vain, or not to the end."""
        lucky = self._move(bound, vain=False)
        self._move(vain, vain=True)
        self.has_more |= bool(self._move(undecided, vain=False))
        for bucket, was_woken in self._turn.items():
            if bucket in lucky and bucket in self._cut:
                continue  # there may be room for those, too, whose turn did not come
            self._settle_lot(bucket, now, was_woken, bucket in lucky)
        self._turn = {}

    def _settle_lot(self, bucket: Bucket, now: datetime, was_woken: bool, is_lucky: bool) -> None:
        bucket.eased_at, bucket.looked_at = self._now, now
        if not is_lucky:  # else what was placed may help others of the lot
            bucket.moved_at = self._moves
        bucket.attempts = 0 if is_lucky else bucket.attempts + was_woken
        bucket.ready_at = (
            now + min(BACK_OFF[0] * 2 ** min(bucket.attempts - 1, 10), BACK_OFF[1]) if bucket.attempts else None
        )

    def _move(self, pods: Iterable[Pod], *, vain: bool) -> set[Bucket]:
        """To those that were looked at in vain, or to those that are to be looked at; their lots."""
        of: defaultdict[Bucket, dict[str, Order]] = defaultdict(dict)
        for pod in pods:
            _, order, bucket = self._pods[pod.metadata.uid]
            of[bucket][pod.metadata.uid] = order
        for bucket, orders in of.items():
            if vain:
                bucket.fresh, bucket.vain = moved(orders, bucket.fresh, bucket.vain)
            else:
                bucket.vain, bucket.fresh = moved(orders, bucket.vain, bucket.fresh)
        return set(of)

    def again_at(self, now: datetime) -> datetime | None:
        """When to take the next turn if nothing happens before."""
        if self.has_more:
            return now
        return earliest(chain.from_iterable(self._moments(bucket, now) for bucket in self._buckets.values()))

    def _moments(self, bucket: Bucket, now: datetime) -> Iterator[datetime | None]:
        yield self._gathers_until(bucket, now) if bucket.fresh else None
        if bucket.vain and bucket.looked_at is not None:
            yield bucket.looked_at + FLUSH
            yield bucket.ready_at if self._is_woken(bucket) else None


def _head(line: tuple[Order, Bucket]) -> Order:
    return line[0]
