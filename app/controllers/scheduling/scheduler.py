"""The scheduler's controller: rounds place the pods that are to be tried, and commit bindings many at a time.

`app.scheduler` decides, on a cache that is updated here as nodes and pods come and go. What a round has placed counts from
then on, before it is committed (kube-scheduler's assumed pods): no two rounds give away the same resources. So a round is
planned while bindings of the rounds before it are on their way to the database. A few bindings are committed with their events;
of many, the events follow when all pods have their nodes.
"""

import time
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import cast

from app.controllers.metrics.scheduler import SchedulerMetrics
from app.controllers.planned_write import PlannedWrite
from app.controllers.scheduling.binding_writes import (
    EVENTS,
    DeferredEvents,
    bind_pods,
    scheduled_events,
    write_gang_attempt,
)
from app.controllers.scheduling.local_queues import QUEUES, LocalQueues
from app.controllers.scheduling.preemption_writes import PendingReports, write_results
from app.controllers.scheduling.volume_binding import Reservations, VolumeBinder, require_claims
from app.controllers.volumes.volume_index import VolumeIndex, as_volume
from app.kinds.core.node import KIND as NODES
from app.kinds.core.node import Node
from app.kinds.core.poddisruptionbudget import KIND as BUDGETS
from app.kinds.core.poddisruptionbudget import PodDisruptionBudget
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod, is_terminal
from app.kinds.scheduling.localqueue import KIND as LOCAL_QUEUES
from app.kinds.scheduling.localqueue import LocalQueue
from app.kinds.scheduling.podgroup import KIND as POD_GROUPS
from app.kinds.scheduling.podgroup import PodGroup
from app.kinds.storage.persistentvolume import KIND as VOLUMES
from app.kinds.storage.persistentvolumeclaim import KIND as CLAIMS
from app.kinds.storage.persistentvolumeclaim import is_exclusive, is_single_node
from app.kinds.storage.storageclass import KIND as CLASSES
from app.machinery.base import Object
from app.metrics.registry import MetricsRegistry
from app.plans.plan import Action, Plan, earliest
from app.plans.volumes.pod_volumes import NO_VOLUMES, PodVolumes, has_claims, resolve
from app.registry.codec import NAMESPACES
from app.scheduler import DEFAULT, Cluster, Pending, PodInfo, PodInfos, ScoringSettings
from app.scheduler.eviction_units import DisruptionBudgets
from app.scheduler.fair_sharing import FairSharing
from app.scheduler.filters import Diagnosis
from app.scheduler.gang_scheduling import GangScheduler, PodGroups
from app.scheduler.preemption import LowestPriorities
from app.scheduler.quota_admission import QuotaAdmission
from app.scheduler.scheduling_queue import SchedulingQueue
from app.scheduler.scheduling_round import PostFilterResult, PreemptionEvaluator, RoundResult, schedule_round
from app.store import Key, Mirror

BATCH = 250  # bindings or events of one write set
ROUND = Key("scheduler", "", "round")
RECLAIM_DELAY = timedelta(seconds=1)  # until quota of pods placed in a round can be reclaimed
ROUND_PODS = 500  # of a round: the event loop waits for it
MAX_ROUND_PODS = 5_000  # of a round that looks at many classes, and of rounds that do not wait for the one before
STORAGE_KINDS = frozenset(kind.resource for kind in (CLAIMS, VOLUMES, CLASSES))


class Scheduler:
    component = "default-scheduler"

    def __init__(
        self,
        mirror: Mirror,
        settings: ScoringSettings = DEFAULT,
        metrics: MetricsRegistry | None = None,
        *,
        has_groups: bool = True,
    ) -> None:
        self._mirror = mirror
        self._pod_infos = PodInfos()
        self._cluster = Cluster(settings)
        self._lowest = LowestPriorities(self._cluster)
        self._groups = PodGroups(is_enabled=has_groups)
        self._fair = FairSharing(self._cluster)
        self._queue = SchedulingQueue(self._cluster, self._groups, self._fair)
        self._metrics = SchedulerMetrics(metrics or MetricsRegistry(), self._queue, self._cluster)
        self._local_queues = LocalQueues(mirror, self._fair, self._queue)
        self._volumes = VolumeIndex(mirror)
        self._pending: dict[Key, Pending] = {}
        self._claiming: set[Key] = set()  # pending pods with claims
        # Of the last rounds, which may have been refused: UIDs of pods that they placed, and reports of others.
        self._assumed: set[str] = set()
        self._written_results: list[PostFilterResult] = []
        self._pending_reports = PendingReports()
        self._deferred_events = DeferredEvents()

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        if key.kind == PODS.resource:
            return self._on_pod(key, cast("Pod | None", before), cast("Pod | None", now))
        if key.kind == NODES.resource:
            return self._on_node(key.name, cast("Node | None", now))
        if key.kind == NAMESPACES:
            return self._on_namespace(key.name, now)
        if key.kind in STORAGE_KINDS:
            return self._on_storage(key, before, now)
        if key.kind == POD_GROUPS.resource:
            return self._on_pod_group(key, cast("PodGroup | None", now))
        if key.kind == LOCAL_QUEUES.resource:
            return self._on_local_queue(key, cast("LocalQueue | None", now))
        return []

    def _on_node(self, name: str, now: Node | None) -> Iterable[Key]:
        has_changed = self._cluster.set_node(now) if now is not None else self._cluster.remove_node(name)
        if not has_changed:
            return []
        self._fair.note_nodes_changed()
        return self._note_capacity_freed(name)

    def _on_namespace(self, name: str, now: Object | None) -> Iterable[Key]:
        has_changed = self._cluster.set_namespace(name, now.metadata.labels if now is not None else None)
        return self._note_capacity_freed(None) if has_changed else []

    def _on_pod_group(self, key: Key, now: PodGroup | None) -> Iterable[Key]:
        pods = self._groups.set((key.namespace, key.name), now)
        self._queue.requeue(pods)
        return [ROUND] if pods else []

    def _on_local_queue(self, key: Key, now: LocalQueue | None) -> Iterable[Key]:
        if not self._local_queues.set(key, now):
            return [QUEUES]
        self._queue.requeue(self._pending.values())
        return [ROUND, QUEUES]

    def _on_storage(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        """Pending pods whose claims may be had otherwise now are looked at anew."""
        if key.kind == CLAIMS.resource:
            return self._renew_pods(_pod_keys(self._volumes.pods(key)))
        if key.kind == CLASSES.resource:
            return self._renew_pods(self._claiming)
        old, new = as_volume(before), as_volume(now)
        if self._volumes.on_volume(old, new):
            return self._renew_pods(self._claiming)
        claims = {
            each for volume in (old, new) if volume is not None for each in self._volumes.claims_of_volume(volume)
        }
        return self._renew_pods(pod for claim in claims for pod in _pod_keys(self._volumes.pods(claim)))

    def _renew_pods(self, keys: Iterable[Key]) -> Iterable[Key]:
        """Resolve the claims of pending pods; those for which that matters are tried again."""
        has_changed = False
        for key in [key for key in keys if key in self._claiming]:
            pod, known = self._pending[key]
            info = self._pod_info(pod)
            if info is known:
                continue
            self._pending[key] = pod, info
            self._update_group(pod, pod, self._pending[key])
            self._queue.add(pod, info)
            has_changed = True
        return [ROUND] if has_changed else []

    def _pod_info(self, pod: Pod) -> PodInfo:
        return self._pod_infos.get(pod, resolve(pod, self._volumes.storage))

    def _note_capacity_freed(self, node: str | None) -> Iterable[Key]:
        self._queue.note_capacity_freed(node)
        return [ROUND] if self._pending else []

    def _on_pod(self, key: Key, before: Pod | None, now: Pod | None) -> Iterable[Key]:
        keys: list[Key] = [QUEUES] if key.namespace in self._fair.configs else []
        if any(pod is not None and has_claims(pod) for pod in (before, now)):
            keys += self._on_claims_used(self._volumes.on_pod(key, now))
        if before is not None and (now is None or now.metadata.uid != before.metadata.uid):
            keys += self._on_pod_end(key, before, None)
        if now is not None and is_terminal(now):
            keys += self._on_pod_end(key, now, now)
        if node := _lost_nomination(before, now):
            keys += self._note_capacity_freed(node)
        if now is not None and _is_pending(now):
            keys += self._on_pending_pod(key, now)
        elif now is not None and not is_terminal(now):
            keys += self._on_assigned_pod(key, before, now)
        return keys

    def _on_claims_used(self, claims: Mapping[Key, bool]) -> Iterable[Key]:
        """Pods that want a claim for themselves, or for their node, wait until no other has it.

        claims: and whether other nodes use them now. A thousand pods of one node change that twice.
        """
        limited = [
            key
            for key, has_moved in claims.items()
            if (claim := self._volumes.claim(key)) is not None
            and (is_exclusive(claim) or (has_moved and is_single_node(claim)))
        ]
        return self._renew_pods(pod for key in limited for pod in _pod_keys(self._volumes.pods(key)))

    def _on_pod_end(self, key: Key, pod: Pod, now: Pod | None) -> Iterable[Key]:
        """A pod is deleted (None) or terminal."""
        self._remove_pending(key)
        self._metrics.note_gone(pod.metadata.uid)
        self._update_group(pod, now, None)
        self._assumed.discard(pod.metadata.uid)
        placed = self._cluster.unplace(pod.metadata.uid)
        return self._note_capacity_freed(placed.node) if placed is not None else []

    def _on_pending_pod(self, key: Key, pod: Pod) -> Iterable[Key]:
        self._metrics.note_pending(pod.metadata.uid)
        known = self._pending.get(key)
        if known is not None and known[0].spec == pod.spec and known[0].metadata.labels == pod.metadata.labels:
            self._pending[key] = pod, known[1]
            self._update_group(pod, pod, self._pending[key])
            self._queue.update(pod)
            return []
        self._pending[key] = pod, self._pod_info(pod)
        if has_claims(pod):
            self._claiming.add(key)
        self._update_group(pod, pod, self._pending[key])
        self._queue.add(*self._pending[key])
        return [ROUND]

    def _on_assigned_pod(self, key: Key, before: Pod | None, now: Pod) -> Iterable[Key]:
        """A pod is on a node; or not to be scheduled: it is being deleted, gated, or of another scheduler."""
        known = self._remove_pending(key)
        self._update_group(now, now, None)
        if not now.spec.node_name:
            return []
        self._metrics.note_bound(now.metadata.uid)
        self._assumed.discard(now.metadata.uid)
        events = self._deferred_events.note_bound(now)
        self._cluster.place(now, now.spec.node_name, self._info_of(now, known))
        if before is not None and _is_same_to_others(before, now):
            return events
        self._queue.note_pod_assigned()
        if (
            before is not None and before.metadata.labels != now.metadata.labels
        ):  # its domain may be open to anti-affinity
            return [*self._note_capacity_freed(now.spec.node_name), *events]
        return [ROUND, *events] if self._queue.pod_dependent_count else events

    def _remove_pending(self, key: Key) -> Pending | None:
        known = self._pending.pop(key, None)
        self._claiming.discard(key)
        if known is not None:
            self._queue.remove(known[0].metadata.uid)
            self._fair.forget_pod(known[0].metadata.uid)
        return known

    def _update_group(self, pod: Pod, now: Pod | None, pending: Pending | None) -> None:
        if pod.spec.scheduling_group is not None:
            self._queue.requeue(self._groups.update_pod(pod, now, pending))

    def _info_of(self, pod: Pod, known: Pending | None) -> PodInfo:
        placed = self._cluster.pods.get(pod.metadata.uid)
        if placed is not None:
            return placed.info
        return known[1] if known is not None else self._pod_infos.get(pod)

    def enqueue_all(self) -> Iterable[Key]:
        self._volumes.rebuild()
        for kind in (NAMESPACES, NODES.resource, LOCAL_QUEUES.resource, POD_GROUPS.resource, PODS.resource):
            for each in list(self._mirror.all(kind)):
                self.on_event(Key(kind, each.metadata.namespace, each.metadata.name), None, each)
        return [ROUND, QUEUES]

    def reconcile(self, key: Key, now: datetime) -> Sequence[PlannedWrite] | Iterator[PlannedWrite]:
        if key == QUEUES:
            return [*self._local_queues.write_statuses(now)]
        if key == EVENTS:
            return self._deferred_events.write(now, BATCH, is_busy=self._queue.has_more)
        return self._plan_rounds(now)

    def _plan_rounds(self, now: datetime) -> Iterator[PlannedWrite]:
        """Plan some rounds, which depend on nothing that those before them write; then tell when to look again."""
        self._forget_refused()
        self._requeue(self._pending_reports.pop_due(now))
        taken = 0
        while pods := self._queue.pop(now, self._round_size()):
            taken += len(pods)
            goes_on = yield from self._plan_round(pods, now)
            if not goes_on or taken >= MAX_ROUND_PODS:
                break
        again_at = earliest((self._queue.next_pop_at(now), self._pending_reports.next_due_at()))
        if again_at is not None:
            yield PlannedWrite(Plan(again_at=again_at))

    def _round_size(self) -> int:
        """Each round looks at all classes. With quotas or claims, each is committed before the next: then few are better."""
        if self._fair.is_active or self._claiming:
            return MAX_ROUND_PODS
        return min(max(ROUND_PODS, self._queue.bucket_count), MAX_ROUND_PODS)

    def _plan_round(self, pods: Sequence[Pending], now: datetime) -> Generator[PlannedWrite, None, bool]:
        """Returns whether the next round may be planned before this one is committed."""
        began = time.perf_counter()
        gang_scheduler = GangScheduler(self._groups)
        budgets = DisruptionBudgets(self._budgets())
        evaluator = PreemptionEvaluator(self._cluster, self._lowest, budgets, self._groups)
        quota_admission = QuotaAdmission(self._fair, self._groups, gang_scheduler, budgets)
        nominated = self._queue.nominated_pods()
        result = schedule_round(pods, nominated, self._cluster, evaluator, quota_admission, quota_admission.check)
        reservations = self._reserve_volumes(result, gang_scheduler, now)
        result.post_filter_results = self._local_queues.add_positions(result.post_filter_results)
        self._cluster.trim_rankings()
        self._record_outcome(result, now)
        self._metrics.note_round(began, len(result.bound), len(result.unbound), now)
        if quota_admission.awaits_commit:
            self._queue.note_capacity_freed()
        goes_on = self._queue.has_more and not (self._fair.is_active or self._claiming or _preempts(result))
        writes = self._write(result, gang_scheduler, reservations, now.replace(microsecond=0))
        writes += [PlannedWrite(Plan(again_at=now + RECLAIM_DELAY))] if quota_admission.awaits_commit else []
        writes += self._local_queues.write_reports(self._written_results, now.replace(microsecond=0))
        yield from writes
        return goes_on

    def _reserve_volumes(self, result: RoundResult, gang_scheduler: GangScheduler, now: datetime) -> Reservations:
        """Decide what unbound claims get. Pods that cannot have theirs now are taken off their nodes."""
        if not self._claiming:
            return Reservations()
        binder = VolumeBinder(self._cluster, self._volumes_of, now.replace(microsecond=0))
        reservations = binder.reserve(result.bound, gang_scheduler.attempts)
        unplaced = reservations.unplaced
        for pod, _ in result.bound if unplaced else ():
            uid = pod.metadata.uid
            if uid in unplaced:
                self._cluster.unplace(uid)
                reason = reservations.rejected.get(uid, NO_VOLUMES)
                diagnosis = Diagnosis(dict.fromkeys(self._cluster.node_infos, (reason,)), frozenset())
                result.unbound.append((pod, diagnosis))
                if uid in reservations.rejected:
                    result.post_filter_results.append(PostFilterResult(pod, diagnosis.text()))
        result.bound = [each for each in result.bound if each[0].metadata.uid not in unplaced]
        return reservations

    def _volumes_of(self, pod: Pod) -> PodVolumes | None:
        known = self._pending.get(Key(PODS.resource, pod.metadata.namespace, pod.metadata.name))
        return known[1].volumes if known is not None else None

    def _record_outcome(self, result: RoundResult, now: datetime) -> None:
        self._assumed.update(pod.metadata.uid for pod, _ in result.bound)
        decided = {each.pod.metadata.uid for each in result.post_filter_results}
        undecided = [pod for pod, _ in result.unbound if pod.metadata.uid not in decided]
        unschedulable = (each.pod for each in result.post_filter_results)
        self._queue.record_outcome((pod for pod, _ in result.bound), unschedulable, now, undecided)

    def _write(
        self, result: RoundResult, gang_scheduler: GangScheduler, reservations: Reservations, now: datetime
    ) -> list[PlannedWrite]:
        with_events = len(result.bound) <= BATCH
        if not with_events:
            self._deferred_events.defer(pod for pod, _ in result.bound)
        unplaced, actions = reservations.unplaced, reservations.actions
        attempts = [
            each for each in gang_scheduler.attempts if not each.bound or each.bound[0][0].metadata.uid not in unplaced
        ]
        writes = [PlannedWrite(Plan(each)) for each in reservations.alone]
        for each in attempts:
            volumes = tuple(action for pod, _ in each.bound for action in actions.get(pod.metadata.uid, ()))
            volumes += require_claims(each.bound) if self._claiming else ()
            writes += write_gang_attempt(each, now, with_events=with_events, volumes=volumes)
        of_gangs = {pod.metadata.uid for each in attempts for pod, _ in each.bound}
        single = [each for each in result.bound if each[0].metadata.uid not in of_gangs] if of_gangs else result.bound
        if self._claiming:  # a pod that is bound with its claims is written by itself
            with_claims = [each for each in single if each[0].metadata.uid in actions]
            single = [each for each in single if each[0].metadata.uid not in actions]
            for pair in with_claims:
                writes.append(self._write_bindings([pair], now, actions[pair[0].metadata.uid], with_events=with_events))
        for start in range(0, len(single), BATCH):
            writes.append(self._write_bindings(single[start : start + BATCH], now, (), with_events=with_events))
        for results, write in write_results(result.post_filter_results, now):
            writes.append(write)
            self._written_results += results
        self._pending_reports.add(result.post_filter_results, now)
        return writes

    def _write_bindings(
        self, pairs: Sequence[tuple[Pod, str]], now: datetime, volumes: tuple[Action, ...], *, with_events: bool
    ) -> PlannedWrite:
        required = require_claims(pairs) if self._claiming and not volumes else ()
        events = scheduled_events(pairs) if with_events else ()
        return PlannedWrite(Plan((*bind_pods(pairs, now), *volumes, *required, *events)))

    def _budgets(self) -> list[PodDisruptionBudget]:
        return [cast("PodDisruptionBudget", each) for each in self._mirror.all(BUDGETS.resource)]

    def _forget_refused(self) -> None:
        """Undo what was not committed of the last rounds: what was has been seen by now."""
        for uid in self._assumed:
            placed = self._cluster.unplace(uid)
            if placed is not None:
                self._queue.note_capacity_freed(placed.node)
        self._queue.restore(self._assumed)
        self._assumed.clear()
        self._deferred_events.drop_assumed()
        for result in self._written_results:
            meta = result.pod.metadata
            known = self._pending.get(Key(PODS.resource, meta.namespace, meta.name))
            if known is not None and known[0].metadata.resource_version == meta.resource_version:
                self._queue.add(*known)
        self._written_results.clear()

    def _requeue(self, keys: Iterable[Key]) -> None:
        for known in filter(None, map(self._pending.get, keys)):
            self._queue.add(*known)


def _preempts(result: RoundResult) -> bool:
    """Later rounds decide from what becomes of the victims and the nominated nodes."""
    return any(each.victims or each.nominated_node for each in result.post_filter_results)


def _pod_keys(pods: Iterable[Pod]) -> list[Key]:
    return [Key(PODS.resource, pod.metadata.namespace, pod.metadata.name) for pod in pods]


def _lost_nomination(before: Pod | None, now: Pod | None) -> str:
    """The node that was the pod's nominated node, and is not any more."""
    node = before.status.nominated_node_name if before is not None else ""
    return "" if now is not None and now.status.nominated_node_name == node else node


def _is_same_to_others(before: Pod, now: Pod) -> bool:
    """To pods with affinity or topology spread."""
    old, new = before.metadata, now.metadata
    is_deleted = old.deletion_timestamp is None, new.deletion_timestamp is None
    return before.spec.node_name == now.spec.node_name and old.labels == new.labels and is_deleted[0] == is_deleted[1]


def _is_pending(pod: Pod) -> bool:
    return (
        not pod.spec.node_name
        and pod.metadata.deletion_timestamp is None
        and not is_terminal(pod)
        and not pod.spec.scheduling_gates
        and pod.spec.scheduler_name in ("", "default-scheduler")
    )
