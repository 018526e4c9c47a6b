"""Fair sharing: the order among namespaces by dominant share; quotas and cohorts of their LocalQueues. As in Kueue.

`FairSharing` holds the configuration of the queues and the requests that are pending for quota; `scheduling_queue` asks it
for the order among namespaces, `quota_admission` and `reclaim` for quotas. Without a LocalQueue it holds nothing.

Order: by priority; among equals, the namespace with the smallest dominant share for its weight; in a namespace, the oldest
pod.

Quota: a namespace uses at most its nominal quota and borrowing limit, a cohort at most the nominal quotas of its
queues. A request that is pending within its own nominal quota has a claim on unused quota, before all borrowers.
"""

import math
from bisect import insort
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heapreplace
from typing import TypeVar

from app.kinds.pod.pod_resources import Amounts, amount
from app.kinds.scheduling.localqueue import ANY, COHORT, LocalQueue
from app.machinery.quantity import add, canonical
from app.scheduler.cache import Cluster, NamespaceUsage
from app.scheduler.pod_info import SortKey

_NO_USAGE = NamespaceUsage()


@dataclass(frozen=True, slots=True, eq=False)
class QueueConfig:
    """Spec of a LocalQueue in the units of `pod_resources`. `borrowing_limits` by resource; without one, all may be
    borrowed.
    """

    queue: LocalQueue
    weight: int
    nominal: Amounts
    borrowing_limits: Mapping[str, int]
    cohort: str
    reclaims: bool

    def max_usage(self, resource: str) -> float:
        """Nominal quota and borrowing limit."""
        return self.nominal[resource] + self.borrowing_limits.get(resource, math.inf)

    def limited_resources(self, requests: Amounts) -> Iterator[str]:
        """Resources that are requested and have a quota."""
        return (name for name in self.nominal if requests.get(name))

    def format_amount(self, resource: str, count: int) -> str:
        """As a quantity with the suffix of the queue's quota."""
        unit = "m" if resource == "cpu" else ""
        if not self.nominal.get(resource):
            return canonical(f"{count}{unit}")
        return add(self.queue.spec.nominal_quota[resource], f"{self.nominal[resource] - count}{unit}", -1)


def queue_config_of(queue: LocalQueue) -> QueueConfig:
    spec = queue.spec
    return QueueConfig(
        queue=queue,
        weight=spec.weight or 1,
        nominal={name: amount(name, each) for name, each in spec.nominal_quota.items()},
        borrowing_limits={name: amount(name, each) for name, each in spec.borrowing_limit.items()},
        cohort=spec.cohort or COHORT,
        reclaims=spec.preemption is not None and spec.preemption.reclaim_within_cohort == ANY,
    )


@dataclass(frozen=True, slots=True, eq=False)
class QuotaRequest:
    """Request of a pod, or of all pods of a gang, which are admitted together. `owner`: as in messages, such as `job
    train-7`.
    """

    key: Hashable
    namespace: str
    requests: Amounts
    sort_key: SortKey
    owner: str
    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class PendingRequest:
    """A request without quota, the resources that are short, the message about it, and what would have to change."""

    request: QuotaRequest
    short_resources: frozenset[str]
    message: str
    hint: str = ""

    @property
    def sort_key(self) -> SortKey:
        return self.request.sort_key


_T = TypeVar("_T")


class FairSharing:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.configs: dict[str, QueueConfig] = {}  # by namespace
        self._pending: defaultdict[str, list[PendingRequest]] = defaultdict(list)  # by namespace, in order
        self._pending_by_uid: dict[str, PendingRequest] = {}
        self._allocatable: Amounts | None = None
        self._members: dict[tuple[str, str], Sequence[tuple[str, QueueConfig]]] = {}
        self._cohort_quotas: dict[tuple[str, str], int] = {}

    @property
    def is_active(self) -> bool:
        """There are LocalQueues."""
        return bool(self.configs)

    @property
    def usage(self) -> NamespaceUsage:
        return self.cluster.usage or _NO_USAGE

    def set(self, namespace: str, queue: LocalQueue | None) -> bool:
        """Set or, with None, remove the queue of a namespace. Returns whether all pending pods have to be admitted anew."""
        old = self.configs.pop(namespace, None)
        if queue is not None:
            self.configs[namespace] = queue_config_of(queue)
        self.cluster.track_usage(self.is_active)
        if old is not None and queue is not None and old.queue.spec == queue.spec:
            self._members.clear()
            return False
        for table in (self._pending, self._pending_by_uid, self._members, self._cohort_quotas):
            table.clear()
        return True

    def note_nodes_changed(self) -> None:
        self._allocatable = None

    @property
    def allocatable(self) -> Amounts:
        """Of all nodes together."""
        if self._allocatable is None:
            self._allocatable = {}
            for node_info in self.cluster.node_infos.values():
                for name, count in node_info.allocatable.items():
                    self._allocatable[name] = self._allocatable.get(name, 0) + count
        return self._allocatable

    # Pending requests

    def is_pending(self, uid: str) -> bool:
        """A pod is pending for want of quota."""
        return uid in self._pending_by_uid

    def pending_request(self, uid: str) -> PendingRequest | None:
        return self._pending_by_uid.get(uid)

    @property
    def pending(self) -> Mapping[str, Sequence[PendingRequest]]:
        """By namespace, in order."""
        return self._pending

    def pending_in(self, namespace: str) -> Sequence[PendingRequest]:
        return self._pending.get(namespace, ())

    def add_pending(self, request: QuotaRequest, short_resources: frozenset[str], message: str, hint: str = "") -> None:
        self.remove_pending(request)
        pending = PendingRequest(request, short_resources, message, hint)
        insort(self._pending[request.namespace], pending, key=_sort_key)
        for uid in request.uids:
            self._pending_by_uid[uid] = pending

    def remove_pending(self, request: QuotaRequest) -> None:
        for known in {self._pending_by_uid[uid] for uid in request.uids if uid in self._pending_by_uid}:
            for uid in known.request.uids:
                self._pending_by_uid.pop(uid, None)
            self._pending[known.request.namespace].remove(known)

    def forget_pod(self, uid: str) -> None:
        """A pod is not pending any more. The request of its gang remains while other pods of it are."""
        known = self._pending_by_uid.pop(uid, None)
        if known is not None and not any(each in self._pending_by_uid for each in known.request.uids):
            self._pending[known.request.namespace].remove(known)

    # Shares

    def dominant_share(self, namespace: str, used: Mapping[str, int]) -> float:
        """The largest part of an allocatable resource that the namespace uses, divided by its weight."""
        allocatable, config = self.allocatable, self.configs.get(namespace)
        parts = (count / allocatable[name] for name, count in used.items() if allocatable.get(name))
        return max(parts, default=0.0) / (config.weight if config is not None else 1)

    def merge_by_share(
        self, queues: Mapping[str, Iterator[tuple[SortKey, _T]]], requests_of: Callable[[_T], Iterable[Amounts]]
    ) -> Iterator[tuple[SortKey, _T]]:
        """Merge the queues of namespaces: by priority, then by dominant share, as if all that was yielded got its node."""
        used = {namespace: dict(self.usage.get(namespace)) for namespace in queues}
        firsts = ((namespace, next(queue)) for namespace, queue in queues.items())
        heads = [(item[0][0], self.dominant_share(space, used[space]), item, space) for space, item in firsts]
        heapify(heads)
        while heads:
            _, _, item, namespace = heads[0]
            yield item
            usage = used[namespace]
            for requests in requests_of(item[1]):
                for name, count in requests.items():
                    usage[name] = usage.get(name, 0) + count
            following = next(queues[namespace], None)
            if following is None:
                heappop(heads)
            else:
                heapreplace(heads, (following[0][0], self.dominant_share(namespace, usage), following, namespace))

    # Quotas

    def fit_count(self, namespace: str, requests: Amounts) -> int:
        """Upper bound of the pods with these requests that have quota now, or may have it by reclaim."""
        config = self.configs.get(namespace)
        if config is None:
            return len(self._pending_by_uid)
        used, found = self.usage.get(namespace), []
        for name in config.limited_resources(requests):
            in_use = used.get(name, 0)
            borrowable = min(config.max_usage(name) - in_use, self.unused(config.cohort, name))
            found.append(int(max(config.nominal[name] - in_use, borrowable)) // requests[name])
        return max(0, min(found, default=len(self._pending_by_uid)))

    def members(self, cohort: str, resource: str) -> Sequence[tuple[str, QueueConfig]]:
        """Namespaces of a cohort that have a quota of a resource."""
        found = self._members.get((cohort, resource))
        if found is None:
            found = [each for each in self.configs.items() if each[1].cohort == cohort and resource in each[1].nominal]
            self._members[cohort, resource] = found
        return found

    def cohort_quota(self, cohort: str, resource: str) -> int:
        """Sum of the nominal quotas."""
        found = self._cohort_quotas.get((cohort, resource))
        if found is None:
            found = sum(config.nominal[resource] for _, config in self.members(cohort, resource))
            self._cohort_quotas[cohort, resource] = found
        return found

    def unused(self, cohort: str, resource: str) -> int:
        """Part of the cohort's quota that no member uses."""
        usage = self.usage
        used = sum(usage.get(namespace).get(resource, 0) for namespace, _ in self.members(cohort, resource))
        return self.cohort_quota(cohort, resource) - used


def _sort_key(pending: PendingRequest) -> SortKey:
    return pending.sort_key


def queue_positions(pending: Sequence[PendingRequest]) -> dict[str, int]:
    """Queue positions, from 1, by owner. A Job has the position of its first pod."""
    found: dict[str, int] = {}
    for each in pending:
        found.setdefault(each.request.owner, len(found) + 1)
    return found


def queue_message(pending: PendingRequest, positions: dict[str, int]) -> str:
    """`queue default: over its quota of cpu (10 of 10 used); job train-7 is 3rd of 7 in line`, and what would have to change."""
    owner = pending.request.owner
    position = positions[owner]
    text = f"{pending.message}; {owner} is {ordinal(position)} of {len(positions)} in line"
    if not pending.hint:
        return text
    return f"{text}. {pending.hint}{' when those before it have started' if position > 1 else ''}."


def ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
