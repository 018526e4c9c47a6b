"""Scheduling queue: pending pods in order (activeQ), and unschedulable pods until an event may help, or a back-off ends.

Order: priority, then age, which is the time of creation (kube-scheduler: of joining the queue, which a restart would
change); pods of one second by class, then by name. Pods of one scheduling class and priority share a bucket, and so do the
pods of a gang. A bucket is unschedulable until an event may help (kube-scheduler's queueing hints); then only as many of its
pods are tried again as may fit, and one more. If that fails, too, the bucket backs off: until that ends it is tried only if
it is among the first of the queue and a node would take its first pod. Pods that were placed are assumed: they are not tried
again unless their binding is refused. Pure; held by the scheduler's controller.
"""

from bisect import bisect_left, insort
from collections import Counter, defaultdict
from collections.abc import Collection, Container, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from heapq import heapify, heappop, heapreplace, merge, nsmallest
from itertools import chain, islice
from operator import itemgetter

from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_resources import Amounts
from app.plans.plan import earliest
from app.scheduler.cache import Cluster
from app.scheduler.fair_sharing import FairSharing
from app.scheduler.filters import fit_count
from app.scheduler.gang_scheduling import PodGroupInfo, PodGroups
from app.scheduler.placement import Pending
from app.scheduler.pod_info import PodInfo, SortKey, queue_sort_key

BACKOFF = timedelta(seconds=1), timedelta(seconds=10)  # first, and longest after doubling: podInitial/MaxBackoffSeconds
FLUSH_AFTER = timedelta(
    minutes=5
)  # unschedulable pods are tried again, as kube-scheduler's podMaxInUnschedulablePodsDuration
GANG_GRACE = timedelta(seconds=2)  # a gang is not reported while its pods are still being created
HEAD_BUCKETS = 64  # that are tried during their back-off if they fit
_MAX_EVENTS = 10_000  # that are remembered; a bucket that missed older ones takes all nodes for changed
_MOVED_ONE_BY_ONE = 16  # entries; more cost less together
# Labels that differ between the pods of an owner.
_PER_POD_LABELS = frozenset(
    {
        "batch.kubernetes.io/job-completion-index",
        "apps.kubernetes.io/pod-index",
        "statefulset.kubernetes.io/pod-name",
    }
)

Entry = tuple[SortKey, str]
"""A pod, by its UID."""
_Block = tuple[SortKey, list[str]]
"""Pods, by UID, that are tried together."""


@dataclass(slots=True, eq=False)
class Bucket:
    """Pods for which trying one tells the result for all; or, with a group, pods that are scheduled together."""

    key: Hashable
    info: PodInfo
    group: PodGroupInfo | None
    active: list[Entry] = field(default_factory=list)  # to be tried, in order
    unschedulable: list[Entry] = field(default_factory=list)  # in order
    assumed: set[str] = field(default_factory=set)  # UIDs of pods that were placed, and whose binding is not seen yet
    seen_node_events: int = 0  # how many the last attempt knew of
    seen_pod_events: int = 0
    tried_at: datetime | None = None  # without success
    attempts: int = 0  # without success, though an event might have helped
    backoff_ends: datetime | None = None

    @property
    def has_entries(self) -> bool:
        """It has pods that wait for a node."""
        return bool(self.active or self.unschedulable)

    @property
    def first(self) -> SortKey:
        return min(each[0][0] for each in (self.active, self.unschedulable) if each)


def _move_entries(
    pods: Mapping[str, SortKey], source: list[Entry], target: list[Entry]
) -> tuple[list[Entry], list[Entry]]:
    """Move those of the pods that are in `source`. Returns both lists."""
    if not source:
        return source, target
    if len(pods) < _MOVED_ONE_BY_ONE:
        for uid, key in pods.items():
            if _remove_entry(source, (key, uid)):
                insort(target, (key, uid))
        return source, target
    moving = [each for each in source if each[1] in pods]
    return [each for each in source if each[1] not in pods], sorted((*target, *moving))


def _without(entries: list[Entry], uids: Container[str]) -> list[Entry]:
    """Return the entries that have none of the UIDs. Placed pods mostly stood first, so these are skipped without a copy."""
    first = next((at for at, (_, uid) in enumerate(entries) if uid not in uids), len(entries))
    return [each for each in islice(entries, first, None) if each[1] not in uids]


def _contains(entries: list[Entry], entry: Entry, start: int) -> bool:
    at = bisect_left(entries, entry, start)
    return at < len(entries) and entries[at] == entry


def _remove_entry(entries: list[Entry], entry: Entry) -> bool:
    at = bisect_left(entries, entry)
    if at == len(entries) or entries[at] != entry:
        return False
    del entries[at]
    return True


class SchedulingQueue:
    def __init__(self, cluster: Cluster, groups: PodGroups, fair: FairSharing | None = None) -> None:
        self._cluster = cluster
        self._groups = groups
        self._fair = fair or FairSharing(cluster)
        self._pods: dict[str, tuple[Pending, SortKey, Bucket]] = {}  # by UID
        self._buckets: dict[Hashable, Bucket] = {}
        self._node_events: list[str | None] = []  # nodes on which more is free; None: on any
        self._node_events_start = 0
        self._known_events: tuple[tuple[int, int], dict[str | None, None]] = (0, 0), {}  # of events between two counts
        self._pod_events = 0
        self._uses_labels = False
        self._nominated: set[str] = set()
        self._popped: dict[Bucket, bool] = {}  # and whether an event had happened for it
        self._cut: set[Bucket] = set()  # popped, but not all pods that were to be tried
        self.pod_dependent_count = 0  # pods that may fit when other pods come to nodes
        self.has_more = False  # pods to be tried, after a pop

    def __len__(self) -> int:
        return len(self._pods)

    @property
    def bucket_count(self) -> int:
        return len(self._buckets)

    def count_entries(self, now: datetime | None) -> dict[str, int]:
        """Return how many pods are active, how many back off, and how many are unschedulable, as kube-scheduler counts them."""
        counts = {"active": 0, "backoff": 0, "unschedulable": 0}
        for bucket in self._buckets.values():
            counts["active"] += len(bucket.active)
            is_early = now is not None and bucket.backoff_ends is not None and bucket.backoff_ends > now
            backs_off = is_early and self._has_event(bucket)
            counts["backoff" if backs_off else "unschedulable"] += len(bucket.unschedulable)
        return counts

    # Pods

    def add(self, pod: Pod, info: PodInfo) -> None:
        """A pod is pending, or has changed in a way that may help it. An assumed pod stays so until `restore`."""
        uid = pod.metadata.uid
        is_assumed = self._is_assumed(uid)
        self.remove(uid)
        group = self._groups.gang_of(pod)
        key = group.key if group is not None else self._bucket_key(pod, info)
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = Bucket(
                key, info, group, seen_node_events=self._node_event_count, seen_pod_events=self._pod_events
            )
        sort_key = queue_sort_key(pod, info)
        if is_assumed:
            bucket.assumed.add(uid)
        else:
            insort(bucket.active, (sort_key, uid))
        self._pods[uid] = (pod, info), sort_key, bucket
        self.pod_dependent_count += info.depends_on_pods
        self._note_nomination(pod)

    def update(self, pod: Pod) -> None:
        """A pod has changed in a way that does not matter to where it may go."""
        (_, info), sort_key, bucket = self._pods[pod.metadata.uid]
        self._pods[pod.metadata.uid] = (pod, info), sort_key, bucket
        self._note_nomination(pod)

    def _note_nomination(self, pod: Pod) -> None:
        (self._nominated.add if pod.status.nominated_node_name else self._nominated.discard)(pod.metadata.uid)

    def get_pod(self, uid: str) -> Pod:
        return self._pods[uid][0][0]

    def count_by_namespace(self) -> Counter[str]:
        return Counter(pod.metadata.namespace for (pod, _), _, _ in self._pods.values())

    def nominated_pods(self) -> list[Pending]:
        """Pods with a nominated node, also those that are not to be tried. Assumed pods have a node."""
        known = ((uid, self._pods[uid]) for uid in sorted(self._nominated))
        return [pending for uid, (pending, _, bucket) in known if uid not in bucket.assumed]

    def remove(self, uid: str) -> None:
        """A pod is not pending any more."""
        known = self._pods.pop(uid, None)
        if known is None:
            return
        self._nominated.discard(uid)
        (_, info), sort_key, bucket = known
        self.pod_dependent_count -= info.depends_on_pods
        if uid in bucket.assumed:
            bucket.assumed.remove(uid)
        else:
            _remove_entry(bucket.active, (sort_key, uid)) or _remove_entry(bucket.unschedulable, (sort_key, uid))
        if not bucket.has_entries and not bucket.assumed:
            del self._buckets[bucket.key]

    def restore(self, uids: Iterable[str]) -> None:
        """The bindings of these pods were refused: those that are still pending are tried again."""
        for uid in uids:
            if self._is_assumed(uid):
                pending, _, bucket = self._pods[uid]
                bucket.assumed.remove(uid)
                self.add(*pending)

    def _is_assumed(self, uid: str) -> bool:
        known = self._pods.get(uid)
        return known is not None and uid in known[2].assumed

    def requeue(self, pods: Iterable[Pending]) -> None:
        """Add pods again whose group or quota has changed: that may be to another bucket, and they are tried."""
        for pod, info in list(pods):
            self.add(pod, info)

    def _bucket_key(self, pod: Pod, info: PodInfo) -> Hashable:
        """With labels once a pod on a node has an (anti-)affinity term, as these decide whether it matches."""
        spec, meta = pod.spec, pod.metadata
        namespace = meta.namespace if self._fair.is_active else ""
        key = info.key, spec.priority or 0, spec.preemption_policy, namespace
        if not self._uses_labels:
            return key
        labels = frozenset((name, meta.labels[name]) for name in meta.labels.keys() - _PER_POD_LABELS)
        return (*key, meta.namespace, labels)

    # Events

    def note_capacity_freed(self, node: str | None = None) -> None:
        """There may be more free on a node; None: on any."""
        self._node_events.append(node)
        if len(self._node_events) > _MAX_EVENTS:
            half = len(self._node_events) // 2
            del self._node_events[:half]
            self._node_events_start += half

    def note_pod_assigned(self) -> None:
        """Pods came to nodes, or changed their labels: that may help pods with affinity or topology spread."""
        self._pod_events += 1

    @property
    def _node_event_count(self) -> int:
        return self._node_events_start + len(self._node_events)

    # Rounds

    def pop(self, now: datetime, most: int) -> list[Pending]:
        """Pods to be tried now, in order; a gang as a whole. The caller reports the results to `record_outcome`."""
        self._begin_to_use_labels()
        self._popped = {}
        nominated = self._nominated_entries()
        head = self._head_buckets()
        queues: list[Iterator[_Block]] = []
        offered: dict[Bucket, int] = {}
        for bucket in self._buckets.values():
            if bucket.group is not None and bucket.assumed:
                continue  # until the group knows which of its pods are on nodes
            self._flush(bucket, now)
            is_retried = self._has_event(bucket) and (
                bucket.backoff_ends is None
                or bucket.backoff_ends <= now
                or bucket in nominated
                or self._first_pending_quota(bucket) is not None
                or (bucket in head and self._fits(bucket))
            )
            if is_retried or (bucket.active and not self._grace_ends(bucket, now)):
                self._popped[bucket] = is_retried
                offered[bucket], queue = self._blocks(bucket, most, nominated.get(bucket, ()) if is_retried else None)
                queues.append(queue)
        taken = self._merge(self._merge_by_share(queues) if self._fair.is_active else queues, most)
        counted = Counter(self._pods[pod.metadata.uid][2] for pod, _ in taken)
        self._popped = {bucket: was_retried for bucket, was_retried in self._popped.items() if counted[bucket]}
        self._cut = {bucket for bucket in self._popped if counted[bucket] < offered[bucket]}
        return taken

    def _head_buckets(self) -> set[Bucket]:
        """The first in order; without gangs, for which `_fits` would cost too much."""
        buckets = (bucket for bucket in self._buckets.values() if bucket.group is None and bucket.has_entries)
        firsts = ((bucket.first, bucket) for bucket in buckets)
        return {bucket for _, bucket in nsmallest(HEAD_BUCKETS, firsts, key=itemgetter(0))}

    def _fits(self, bucket: Bucket) -> bool:
        (pod, info), _, _ = self._pods[bucket.unschedulable[0][1]]
        return self._cluster.ranking(pod, info).best_node() is not None

    def _nominated_entries(self) -> Mapping[Bucket, list[Entry]]:
        found: defaultdict[Bucket, list[Entry]] = defaultdict(list)
        for uid in self._nominated:
            _, sort_key, bucket = self._pods[uid]
            found[bucket].append((sort_key, uid))
        return found

    def _blocks(self, bucket: Bucket, most: int, nominated: Iterable[Entry] | None) -> tuple[int, Iterator[_Block]]:
        """Return how many pods of a bucket are to be tried, and these; with `nominated`, also unschedulable ones."""
        if bucket.group is not None:
            uids = [uid for _, uid in sorted((*bucket.active, *bucket.unschedulable))]
            return len(uids), iter([(bucket.first, uids)])
        entries = bucket.active[: most + 1]  # one more than are taken, to know that there is more
        if nominated is not None:
            retried = self._retried_entries(bucket, most, nominated)
            entries = sorted(entries + retried)[: most + 1] if entries else retried[: most + 1]
        return len(entries), ((sort_key, [uid]) for sort_key, uid in entries)

    def _retried_entries(self, bucket: Bucket, most: int, nominated: Iterable[Entry]) -> list[Entry]:
        """Of the unschedulable pods, the first, and those with a nominated node."""
        count = self._retry_count(bucket, most + 1)  # one more, here too
        unschedulable = bucket.unschedulable
        others = sorted(entry for entry in nominated if _contains(unschedulable, entry, count))
        return unschedulable[:count] + others

    def _merge_by_share(self, queues: Iterable[Iterator[_Block]]) -> list[Iterator[_Block]]:
        by_namespace: defaultdict[str, list[Iterator[_Block]]] = defaultdict(list)
        for queue in queues:
            block = next(queue)
            by_namespace[self.get_pod(block[1][0]).metadata.namespace].append(chain((block,), queue))
        merged = {namespace: merge(*some) for namespace, some in by_namespace.items()}
        return [self._fair.merge_by_share(merged, self._requests_of)] if merged else []

    def _requests_of(self, uids: Iterable[str]) -> Iterator[Amounts]:
        return (self._pods[uid][0][1].requests for uid in uids)

    def _merge(self, queues: list[Iterator[_Block]], most: int) -> list[Pending]:
        """In order, until there are `most` pods; the last gang is not split."""
        taken: list[Pending] = []
        heads = [(*next(queue), number) for number, queue in enumerate(queues)]
        heapify(heads)
        while heads and len(taken) < most:
            _, uids, number = heads[0]
            taken += (self._pods[uid][0] for uid in uids)
            following = next(queues[number], None)
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (*following, number))
        self.has_more = bool(heads)
        return taken

    def _begin_to_use_labels(self) -> None:
        if not self._uses_labels and self._cluster.pod_count_index.has_symmetric_terms:
            self._uses_labels = True
            self.requeue([each for each, _, _ in self._pods.values()])

    def _flush(self, bucket: Bucket, now: datetime) -> None:
        """Try all pods again after a while, in case an event was missed."""
        if bucket.unschedulable and bucket.tried_at is not None and now - bucket.tried_at >= FLUSH_AFTER:
            bucket.active, bucket.unschedulable = sorted((*bucket.active, *bucket.unschedulable)), []

    def _has_event(self, bucket: Bucket) -> bool:
        """Something has happened that may help unschedulable pods: kube-scheduler's queueing hints."""
        has_node_event = bucket.seen_node_events != self._node_event_count
        has_pod_event = bucket.info.depends_on_pods and bucket.seen_pod_events != self._pod_events
        return bool(bucket.unschedulable) and (has_node_event or has_pod_event)

    def _grace_ends(self, bucket: Bucket, now: datetime) -> datetime | None:
        """Until when a gang without enough pods is not tried; None if that is over."""
        if bucket.group is None or bucket.group.has_enough_pods:
            return None
        created = (self.get_pod(uid).metadata.creation_timestamp for _, uid in bucket.active)
        ends = max((each for each in created if each is not None), default=now - GANG_GRACE) + GANG_GRACE
        return ends if ends > now else None

    def _retry_count(self, bucket: Bucket, most: int) -> int:
        """Return how many unschedulable pods to try: as many as may fit, and one more for its diagnosis."""
        names = self._nodes_with_events(bucket.seen_node_events)
        # With anti-affinity, a pod that is gone may make place in all of its domain.
        has_anti_affinity = bucket.info.required_anti_affinity or self._uses_labels
        if bucket.info.depends_on_pods or has_anti_affinity or None in names:
            return most
        count = 1 + self._count_fits(bucket.info, names, min(most, len(bucket.unschedulable)))
        first = self._first_pending_quota(bucket)
        if first is not None:  # quota that is free again is good for any node
            namespace = self.get_pod(bucket.unschedulable[first][1]).metadata.namespace
            count = max(count, first + 1 + self._fair.fit_count(namespace, bucket.info.requests))
        return min(most, count)

    def _nodes_with_events(self, since: int) -> Collection[str | None]:
        """Kept for the next bucket, which mostly asks for the same."""
        asked = since, self._node_event_count
        if self._known_events[0] != asked:
            start = since - self._node_events_start
            names = dict.fromkeys(self._node_events[start:] if start >= 0 else [None])
            self._known_events = asked, names
        return self._known_events[1]

    def _count_fits(self, info: PodInfo, names: Iterable[str | None], enough: int) -> int:
        """Count the pods that fit these nodes, until there are enough."""
        count = 0
        for node_info in map(self._cluster.node_infos.get, filter(None, names)):
            if count >= enough:
                break
            count += fit_count(node_info, info) if node_info is not None else 0
        return count

    def _first_pending_quota(self, bucket: Bucket) -> int | None:
        """Index of the first unschedulable pod that is pending for quota, for which there is no back-off; None without one."""
        unschedulable = bucket.unschedulable
        if not unschedulable or not self._fair.pending_in(self.get_pod(unschedulable[0][1]).metadata.namespace):
            return None
        return next((number for number, (_, uid) in enumerate(unschedulable) if self._fair.is_pending(uid)), None)

    def record_outcome(
        self, bound: Iterable[Pod], unschedulable: Iterable[Pod], now: datetime, undecided: Iterable[Pod] = ()
    ) -> None:
        """After a pop. `bound`: assumed on nodes, until `restore`; `undecided`: to be tried in the next round."""
        successful = self._assume(bound)
        self._move(unschedulable, is_unschedulable=True)
        self.has_more |= bool(self._move(undecided, is_unschedulable=False))
        for bucket, was_retried in self._popped.items():
            if bucket in successful and bucket in self._cut:
                continue  # its other pods may fit, too
            self._record_attempt(bucket, now, was_retried, bucket in successful)
        self._popped = {}

    def _record_attempt(self, bucket: Bucket, now: datetime, was_retried: bool, was_successful: bool) -> None:
        bucket.seen_node_events, bucket.tried_at = self._node_event_count, now
        if not was_successful:  # else what was placed may help other pods of the bucket
            bucket.seen_pod_events = self._pod_events
        bucket.attempts = 0 if was_successful else bucket.attempts + was_retried
        initial, longest = BACKOFF
        doublings = min(bucket.attempts - 1, 10)
        bucket.backoff_ends = now + min(initial * 2**doublings, longest) if bucket.attempts else None

    def _assume(self, pods: Iterable[Pod]) -> Collection[Bucket]:
        """Returns the buckets of the pods."""
        by_bucket = self._by_bucket(pods)
        for bucket, keys in by_bucket.items():
            bucket.active, bucket.unschedulable = _without(bucket.active, keys), _without(bucket.unschedulable, keys)
            bucket.assumed.update(keys)
        return by_bucket.keys()

    def _by_bucket(self, pods: Iterable[Pod]) -> Mapping[Bucket, dict[str, SortKey]]:
        """The pods' places in order, by UID."""
        found: defaultdict[Bucket, dict[str, SortKey]] = defaultdict(dict)
        for pod in pods:
            _, sort_key, bucket = self._pods[pod.metadata.uid]
            found[bucket][pod.metadata.uid] = sort_key
        return found

    def _move(self, pods: Iterable[Pod], *, is_unschedulable: bool) -> set[Bucket]:
        """Move pods to the unschedulable or the active ones of their buckets. Returns the buckets."""
        by_bucket = self._by_bucket(pods)
        for bucket, keys in by_bucket.items():
            if is_unschedulable:
                bucket.active, bucket.unschedulable = _move_entries(keys, bucket.active, bucket.unschedulable)
            else:
                bucket.unschedulable, bucket.active = _move_entries(keys, bucket.unschedulable, bucket.active)
        return set(by_bucket)

    def next_pop_at(self, now: datetime) -> datetime | None:
        """Return when to pop next if nothing happens before."""
        if self.has_more:
            return now
        return earliest(chain.from_iterable(self._next_tries(bucket, now) for bucket in self._buckets.values()))

    def _next_tries(self, bucket: Bucket, now: datetime) -> Iterator[datetime | None]:
        yield self._grace_ends(bucket, now) if bucket.active else None
        if bucket.unschedulable and bucket.tried_at is not None:
            yield bucket.tried_at + FLUSH_AFTER
            yield bucket.backoff_ends if self._has_event(bucket) else None
