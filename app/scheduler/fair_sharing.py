"""Fair sharing: which namespace comes first and what each may use, by LocalQueues as the scheduler knows them. Pure.

`FairSharing` holds the queues and the pods that wait for quota; `scheduling_queue` asks it for the order among namespaces,
`quota_admission` for what fits. Without any LocalQueue it holds nothing.

Order: by priority; among equals, the namespace with the least dominant share for its weight; in a namespace, the oldest.
Quota: a namespace uses no more than its nominal quota and borrowing limit, and a cohort no more than its quotas together. Who
waits although their own quota would do has a claim on what is idle, that borrowers do not get.
"""

import math
from bisect import insort
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.kinds.pod.pod_resources import Amounts, amount
from app.kinds.scheduling.localqueue import ANY, COHORT, LocalQueue
from app.machinery.quantity import canonical, plus
from app.scheduler.cache import Cluster, NamespaceUsage
from app.scheduler.pod_info import Order


@dataclass(frozen=True, slots=True, eq=False)
class QueueConfig:
    queue: LocalQueue
    weight: int
    nominal: Amounts
    limit: Mapping[str, int]  # of what may be borrowed
    cohort: str
    reclaims: bool

    def most(self, resource: str) -> float:
        """With all that may be borrowed."""
        return self.nominal[resource] + self.limit.get(resource, math.inf)

    def shown(self, resource: str, count: int) -> str:
        """An amount, written as the quota is."""
        unit = "m" if resource == "cpu" else ""
        if not self.nominal.get(resource):
            return canonical(f"{count}{unit}")
        return plus(self.queue.spec.nominal_quota[resource], f"{self.nominal[resource] - count}{unit}", -1)


def queue_config_of(queue: LocalQueue) -> QueueConfig:
    spec = queue.spec
    return QueueConfig(
        queue=queue,
        weight=spec.weight or 1,
        nominal={name: amount(name, each) for name, each in spec.nominal_quota.items()},
        limit={name: amount(name, each) for name, each in spec.borrowing_limit.items()},
        cohort=spec.cohort or COHORT,
        reclaims=spec.preemption is not None and spec.preemption.reclaim_within_cohort == ANY,
    )


def limited(terms: QueueConfig, needs: Amounts) -> Iterator[str]:
    """What is limited, and asked for."""
    return (name for name in terms.nominal if needs.get(name))


_NOBODY = NamespaceUsage()


@dataclass(frozen=True, slots=True, eq=False)
class Asking:
    """A pod or a gang: what is given quota together."""

    key: Hashable
    namespace: str
    needs: Amounts
    order: Order
    who: str  # stands in line, such as `job train-7`
    uids: tuple[str, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Waiting:
    """One in line."""

    asking: Asking
    short: frozenset[str]
    why: str

    @property
    def order(self) -> Order:
        return self.asking.order


class FairSharing:
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.terms: dict[str, QueueConfig] = {}  # by namespace
        self._lines: defaultdict[str, list[Waiting]] = defaultdict(list)
        self._of: dict[str, Waiting] = {}  # by the pod's UID
        self._size: Amounts | None = None
        self._members: dict[tuple[str, str], Sequence[tuple[str, QueueConfig]]] = {}
        self._pools: dict[tuple[str, str], int] = {}

    @property
    def is_active(self) -> bool:
        """There are queues."""
        return bool(self.terms)

    @property
    def ledger(self) -> NamespaceUsage:
        return self.cluster.ledger or _NOBODY

    def set(self, namespace: str, queue: LocalQueue | None) -> bool:
        """The queue of a namespace is another, or is gone; true if that matters: then all who wait are to ask again."""
        old = self.terms.pop(namespace, None)
        if queue is not None:
            self.terms[namespace] = queue_config_of(queue)
        self.cluster.keep_ledger(self.is_active)
        if old is not None and queue is not None and old.queue.spec == queue.spec:
            self._members.clear()
            return False
        for table in (self._lines, self._of, self._members, self._pools):
            table.clear()
        return True

    def resized(self) -> None:
        """Nodes have changed."""
        self._size = None

    @property
    def size(self) -> Amounts:
        """Of the whole cluster."""
        if self._size is None:
            self._size = {}
            for node_info in self.cluster.node_infos.values():
                for name, count in node_info.size.items():
                    self._size[name] = self._size.get(name, 0) + count
        return self._size

    # The line

    def waits(self, uid: str) -> bool:
        """For quota."""
        return uid in self._of

    def waiting(self, uid: str) -> Waiting | None:
        return self._of.get(uid)

    def lines(self) -> Mapping[str, Sequence[Waiting]]:
        """By namespace."""
        return self._lines

    def line(self, namespace: str) -> Sequence[Waiting]:
        return self._lines.get(namespace, ())

    def join(self, asking: Asking, short: frozenset[str], why: str) -> None:
        self.leave(asking)
        one = Waiting(asking, short, why)
        insort(self._lines[asking.namespace], one, key=_order)
        for uid in asking.uids:
            self._of[uid] = one

    def leave(self, asking: Asking) -> None:
        for known in {self._of[uid] for uid in asking.uids if uid in self._of}:
            for uid in known.asking.uids:
                self._of.pop(uid, None)
            self._lines[known.asking.namespace].remove(known)

    def gone(self, uid: str) -> None:
        """A pod waits no more. The rest of its gang keeps its place."""
        known = self._of.pop(uid, None)
        if known is not None and not any(each in self._of for each in known.asking.uids):
            self._lines[known.asking.namespace].remove(known)

    # Questions

    def share(self, namespace: str, used: Mapping[str, int]) -> float:
        """The namespace's part of what is scarcest to it, for its weight."""
        size, terms = self.size, self.terms.get(namespace)
        parts = (count / size[name] for name, count in used.items() if size.get(name))
        return max(parts, default=0.0) / (terms.weight if terms is not None else 1)

    def fit_count(self, namespace: str, needs: Amounts) -> int:
        """How many pods of a class may get quota now, or may have it given back to them, at most."""
        terms = self.terms.get(namespace)
        if terms is None:
            return len(self._of)
        used, found = self.ledger.of(namespace), []
        for name in limited(terms, needs):
            taken = used.get(name, 0)
            borrowed = min(terms.most(name) - taken, self.idle(terms.cohort, name))
            found.append(int(max(terms.nominal[name] - taken, borrowed)) // needs[name])
        return max(0, min(found, default=len(self._of)))

    def members(self, cohort: str, resource: str) -> Sequence[tuple[str, QueueConfig]]:
        """The namespaces that have a part in a cohort's quota of a resource."""
        found = self._members.get((cohort, resource))
        if found is None:
            of = [each for each in self.terms.items() if each[1].cohort == cohort and resource in each[1].nominal]
            found = self._members[cohort, resource] = of
        return found

    def pool(self, cohort: str, resource: str) -> int:
        """All quotas of a cohort."""
        found = self._pools.get((cohort, resource))
        if found is None:
            found = sum(terms.nominal[resource] for _, terms in self.members(cohort, resource))
            self._pools[cohort, resource] = found
        return found

    def idle(self, cohort: str, resource: str) -> int:
        """What nobody of a cohort uses of its quotas."""
        ledger = self.ledger
        used = sum(ledger.of(namespace).get(resource, 0) for namespace, _ in self.members(cohort, resource))
        return self.pool(cohort, resource) - used


def _order(one: Waiting) -> Order:
    return one.order


def queue_positions(line: Sequence[Waiting]) -> dict[str, int]:
    """Queue positions, from 1, by who waits. A Job has the position of its first pod."""
    found: dict[str, int] = {}
    for each in line:
        found.setdefault(each.asking.who, len(found) + 1)
    return found


def queue_message(one: Waiting, standing: dict[str, int]) -> str:
    """Message for who waits: `queue default: over its quota of cpu (10 of 10 used); job train-7 is 3rd of 7 in line`."""
    who = one.asking.who
    return f"{one.why}; {who} is {ordinal(standing[who])} of {len(standing)} in line"


def ordinal(number: int) -> str:
    suffix = "th" if number % 100 in (11, 12, 13) else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{suffix}"
