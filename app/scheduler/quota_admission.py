"""Quota admission: which pods pass the quotas of their namespaces' LocalQueues before a node is looked for. As in Kueue.

`QuotaAdmission` serves one round, in the place of `schedule`: it hands pods with quota to `GangScheduler`, and rejects the
others, which are then pending in the queue. Quota admitted for a pod that then fits no node passes to the next pod in the
queue. Without LocalQueues it hands on all pods. ResourceQuota is not part of it: that limits the creation of objects
(`plans/admission`).
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from app.kinds.pod.pod import Pod
from app.machinery.meta.owner_references import controller_of
from app.scheduler.cache import Cluster
from app.scheduler.eviction_units import DisruptionBudgets, EvictionUnits
from app.scheduler.fair_sharing import FairSharing, QueueConfig, QuotaRequest
from app.scheduler.filters import Diagnosis
from app.scheduler.fit_hints import START
from app.scheduler.gang_scheduling import GangScheduler, PodGroupInfo, PodGroups, split_by_gang
from app.scheduler.placement import Pending, PlacementResult
from app.scheduler.pod_info import PodInfo, queue_sort_key
from app.scheduler.reclaim import find_reclaim_victims


@dataclass(frozen=True, slots=True)
class QuotaShortage:
    """Why there is no quota now. `is_permanent`: there never will be, with these queues. `hint`: what would have to change."""

    resources: frozenset[str]
    message: str
    is_permanent: bool = False
    hint: str = ""


class QuotaSnapshot:
    """Quotas within a round: what was admitted counts as used before it is placed."""

    def __init__(self, fair: FairSharing) -> None:
        self._fair = fair
        self._admitted: defaultdict[str, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
        self._unused: dict[tuple[str, str], int] = {}
        self._claims: dict[str, Mapping[str, int]] = {}

    def find_shortage(self, request: QuotaRequest) -> QuotaShortage | None:
        """None: the request may be admitted."""
        config = self._fair.configs.get(request.namespace)
        if config is None or not config.nominal:
            return None
        names = list(config.limited_resources(request.requests))
        for name in names:
            most = min(config.max_usage(name), self._fair.cohort_quota(config.cohort, name))
            if request.requests[name] > most:
                message = _permanent_message(config, name, request.requests[name], int(most))
                return QuotaShortage(frozenset({name}), message, is_permanent=True)
        short = [name for name in names if self._is_short(request, config, name)] or self._find_earlier(request)
        if not short:
            return None
        message, hint = self._message(request, config, short[0]), self._hint(request, config, short[0])
        return QuotaShortage(frozenset(short), message, hint=hint)

    def _is_short(self, request: QuotaRequest, config: QueueConfig, name: str) -> bool:
        after = self.used(request.namespace, name) + request.requests[name]
        if after > config.max_usage(name):
            return True
        left = self.unused(config.cohort, name)
        if after > config.nominal[name]:  # it would borrow, which it may not from owners with pending requests
            left -= self._claimed_by_others(config.cohort, name, request.namespace)
        return request.requests[name] > left

    def _find_earlier(self, request: QuotaRequest) -> list[str]:
        """Requested resources that an earlier pending request of the namespace is short of."""
        for each in self._fair.pending_in(request.namespace):
            if each.sort_key >= request.sort_key:
                break
            if each.request.key != request.key and (both := sorted(each.short_resources & request.requests.keys())):
                return both
        return []

    def _message(self, request: QuotaRequest, config: QueueConfig, name: str) -> str:
        used, quota = self.used(request.namespace, name), config.nominal[name]
        text = f"{config.format_amount(name, used)} of {config.format_amount(name, quota)} used"
        after = used + request.requests[name]
        if after <= quota and request.requests[name] > self.unused(config.cohort, name):
            text += ", the rest is lent"
        elif config.borrowing_limits.get(name) and after > config.max_usage(name):
            limit = config.format_amount(name, config.borrowing_limits[name])
            text += f", of which no more than {limit} may be borrowed"
        return f"queue {config.queue.metadata.name}: over its quota of {name} ({text})"

    def _hint(self, request: QuotaRequest, config: QueueConfig, name: str) -> str:
        """Return how much must become free; empty if enough is, and those before it in line come first."""
        asked = request.requests[name]
        over_own = self.used(request.namespace, name) + asked - config.max_usage(name)
        over_shared = asked - self.unused(config.cohort, name)
        missing = int(max(over_own, over_shared))
        if missing <= 0:
            return ""
        is_alone = len(list(self._fair.members(config.cohort, name))) == 1
        where = f"queue {config.queue.metadata.name}" if is_alone or over_own >= over_shared else "the queues that lend"
        return f"{START}{config.format_amount(name, missing)} more of {name} becomes free in {where}"

    def admit(self, request: QuotaRequest) -> None:
        admitted, config = self._admitted[request.namespace], self._fair.configs.get(request.namespace)
        for name, count in request.requests.items():
            admitted[name] += count
            key = (config.cohort, name) if config is not None else None
            if config is not None and name in config.nominal and key in self._unused:
                self._unused[config.cohort, name] -= count
        self.reset_claims(request.namespace)

    def reset_claims(self, namespace: str) -> None:
        """Its pending requests have changed, or its usage."""
        self._claims.pop(namespace, None)

    def used(self, namespace: str, name: str) -> int:
        return self._fair.usage.get(namespace).get(name, 0) + self._admitted[namespace][name]

    def unused(self, cohort: str, name: str) -> int:
        found = self._unused.get((cohort, name))
        if found is None:
            members = self._fair.members(cohort, name)
            admitted = sum(self._admitted[namespace][name] for namespace, _ in members)
            found = self._unused[cohort, name] = self._fair.unused(cohort, name) - admitted
        return found

    def _claimed_by_others(self, cohort: str, name: str, but: str) -> int:
        members = self._fair.members(cohort, name)
        return sum(self.claims(namespace).get(name, 0) for namespace, _ in members if namespace != but)

    def claims(self, namespace: str) -> Mapping[str, int]:
        """By resource, what the first pending requests of a namespace ask for within its own nominal quota."""
        found = self._claims.get(namespace)
        if found is None:
            found = self._claims[namespace] = self._sum_claims(namespace, self._fair.configs[namespace])
        return found

    def _sum_claims(self, namespace: str, config: QueueConfig) -> Mapping[str, int]:
        total: defaultdict[str, int] = defaultdict(int)
        left = {name: quota - self.used(namespace, name) for name, quota in config.nominal.items()}
        for each in self._fair.pending_in(namespace):
            requests = each.request.requests
            names = list(config.limited_resources(requests))
            if any(requests[name] > left[name] for name in names):
                break
            for name in names:
                left[name] -= requests[name]
                total[name] += requests[name]
        return total


def _permanent_message(config: QueueConfig, name: str, requested: int, most: int) -> str:
    amounts = f"{config.format_amount(name, requested)} of {name}"
    limit = f"of which it may never have more than {config.format_amount(name, most)}"
    return f"queue {config.queue.metadata.name}: asks for {amounts}, {limit}"


@dataclass(frozen=True, slots=True, eq=False)
class OverQuota(Diagnosis):
    """Nodes were not asked. `reclaim_victims`: borrowers that are evicted for the pod."""

    message: str = ""
    reclaim_victims: tuple[Pod, ...] = ()

    @property
    def victims(self) -> tuple[Pod, ...] | None:
        return self.reclaim_victims

    def text(self, preemption: str = "") -> str:  # noqa: ARG002 - there is nothing to say about nodes
        return self.message


@dataclass(frozen=True, slots=True, eq=False)
class _Entry:
    """A pod, or the pods of a gang."""

    request: QuotaRequest
    pods: Sequence[Pending]
    group: PodGroupInfo | None


class QuotaAdmission:
    def __init__(
        self,
        fair: FairSharing,
        groups: PodGroups,
        gang_scheduler: GangScheduler,
        budgets: DisruptionBudgets | None = None,
    ) -> None:
        """`budgets`: weighed when victims are chosen; the caller accounts for the victims in them."""
        self._fair = fair
        self._budgets = budgets or DisruptionBudgets()
        self._groups = groups
        self._gang_scheduler = gang_scheduler
        self._terminating: set[str] = set()  # UIDs of victims of this round
        # Quota could be reclaimed from pods placed in this round: try again once they are bound.
        self.awaits_commit = False

    def __call__(self, pending: Iterable[Pending], cluster: Cluster) -> PlacementResult:
        if not self._fair.is_active:
            return self._gang_scheduler(pending, cluster)
        bound: list[tuple[Pod, str]] = []
        unbound: list[tuple[Pod, Diagnosis]] = []
        left, unschedulable = list(self._make_entries(pending)), _UnschedulableClasses()
        while left:
            snapshot = QuotaSnapshot(self._fair)
            admitted, short = self._admit(left, snapshot, unschedulable, unbound)
            outcome = self._gang_scheduler([each for entry in admitted for each in entry.pods], cluster)
            bound += outcome.bound
            unbound += outcome.unbound
            if not short or not outcome.unbound:
                unbound += self._reject(short)
                break
            unschedulable.add(admitted, outcome)
            left = [entry for entry, _ in short]
        return PlacementResult(bound, unbound)

    def check(self, pod: Pod, info: PodInfo) -> Diagnosis | None:
        """Return why one pod has no quota; None if it has."""
        if not self._fair.is_active:
            return None
        short = self._admit([_pod_entry(pod, info)], QuotaSnapshot(self._fair), _UnschedulableClasses(), [])[1]
        return next((diagnosis for _, diagnosis in self._reject(short)), None)

    def _make_entries(self, pending: Iterable[Pending]) -> Iterator[_Entry]:
        for group, pods in split_by_gang(pending, self._groups):
            if group is None:
                yield from (_pod_entry(pod, info) for pod, info in pods)
            else:
                yield _gang_entry(group, pods)

    def _admit(
        self,
        entries: Iterable[_Entry],
        snapshot: QuotaSnapshot,
        unschedulable: "_UnschedulableClasses",
        unbound: list[tuple[Pod, Diagnosis]],
    ) -> tuple[list[_Entry], list[tuple[_Entry, QuotaShortage]]]:
        """Returns entries that are admitted and entries without quota; those that no node takes are added to `unbound`."""
        admitted, short = [], []
        for entry in entries:
            if diagnosis := unschedulable.get(entry):
                self._fair.remove_pending(entry.request)
                unbound.append((entry.pods[0][0], diagnosis))
                continue
            shortage = None if self._was_attempted(entry) else snapshot.find_shortage(entry.request)
            if shortage is None:
                self._fair.remove_pending(entry.request)
                snapshot.admit(entry.request)
                admitted.append(entry)
                continue
            if shortage.is_permanent:
                self._fair.remove_pending(entry.request)
            else:
                self._fair.add_pending(entry.request, shortage.resources, shortage.message, shortage.hint)
            snapshot.reset_claims(entry.request.namespace)
            short.append((entry, shortage))
        return admitted, short

    def _was_attempted(self, entry: _Entry) -> bool:
        return entry.group is not None and self._gang_scheduler.has_attempted(entry.group)

    def _reject(self, short: Sequence[tuple[_Entry, QuotaShortage]]) -> list[tuple[Pod, Diagnosis]]:
        """The first pod of a cohort that may reclaim quota has the victims."""
        if not short:
            return []
        units, snapshot = EvictionUnits(self._fair.cluster, self._groups), QuotaSnapshot(self._fair)
        victims, awaits_commit = find_reclaim_victims(self._fair, snapshot, self._terminating, units, self._budgets)
        self.awaits_commit |= awaits_commit
        rejected: list[tuple[Pod, Diagnosis]] = []
        for entry, shortage in short:
            config = self._fair.configs[entry.request.namespace]
            may_reclaim = config.reclaims and self._fair.is_pending(entry.request.uids[0])
            its_victims = victims.pop(config.cohort, ()) if may_reclaim else ()
            self._terminating.update(each.metadata.uid for each in its_victims)
            others = OverQuota({}, frozenset(), shortage.message)
            if entry.group is not None:
                self._gang_scheduler.reject(entry.group, others)
            first = OverQuota({}, frozenset(), shortage.message, its_victims) if its_victims else others
            rejected += [(pod, others if number else first) for number, (pod, _) in enumerate(entry.pods)]
        return rejected


class _UnschedulableClasses:
    """Classes that no node takes: their pods need not be tried again in the same round."""

    def __init__(self) -> None:
        self._diagnoses: dict[tuple[str, bytes], Diagnosis] = {}

    def get(self, entry: _Entry) -> Diagnosis | None:
        return self._diagnoses.get(_class_of(entry)) if self._diagnoses and entry.group is None else None

    def add(self, admitted: Iterable[_Entry], outcome: PlacementResult) -> None:
        diagnoses = {pod.metadata.uid: diagnosis for pod, diagnosis in outcome.unbound}
        for entry in admitted:
            diagnosis = diagnoses.get(entry.request.uids[0])
            if entry.group is None and diagnosis is not None:
                self._diagnoses[_class_of(entry)] = diagnosis


def _class_of(entry: _Entry) -> tuple[str, bytes]:
    return entry.request.namespace, entry.pods[0][1].key


def _pod_entry(pod: Pod, info: PodInfo) -> _Entry:
    meta = pod.metadata
    sort_key = queue_sort_key(pod, info)
    request = QuotaRequest(meta.uid, meta.namespace, info.requests, sort_key, _owner_name(pod), (meta.uid,))
    return _Entry(request, [(pod, info)], None)


def _gang_entry(group: PodGroupInfo, given: Sequence[Pending]) -> _Entry:
    """With the requests of all pending pods of the gang, not only the given ones, as they are placed together."""
    requests: dict[str, int] = {}
    pods = [*group.pending.values()] or given
    for _, info in pods:
        for name, count in info.requests.items():
            requests[name] = requests.get(name, 0) + count
    first = min(pods, key=lambda each: queue_sort_key(*each))
    uids = tuple(pod.metadata.uid for pod, _ in pods)
    request = QuotaRequest(group.key, group.key[0], requests, queue_sort_key(*first), _owner_name(first[0]), uids)
    return _Entry(request, given, group)


def _owner_name(pod: Pod) -> str:
    owner = controller_of(pod)
    return f"{owner.kind.lower()} {owner.name}" if owner is not None else f"pod {pod.metadata.name}"
