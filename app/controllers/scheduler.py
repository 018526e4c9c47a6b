"""The scheduler: one round places all pending pods whose turn it is; some bindings are one write set, those of a gang all.

`app.scheduler` decides, on a cluster that is kept up to date here as nodes and pods come and go. What a round has
placed counts from then on, before it is committed: so no two rounds give away the same room. Few bindings are committed
with their events. Of many the events follow when all have their places: nobody waits for them.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import cast

from app.controllers.deferred_events import EVENTS, Untold
from app.controllers.gang_writes import attempted, bindings, scheduled
from app.controllers.local_queues import QUEUES, Queueing
from app.controllers.pending_messages import Unsaid
from app.controllers.planned_write import PlannedWrite
from app.controllers.preemption_writes import all_told
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
from app.machinery.base import Object
from app.plans.plan import Plan, earliest
from app.registry.codec import NAMESPACES
from app.scheduler import DEFAULT, Cluster, Pending, PodInfo, PodInfos, Settings
from app.scheduler.eviction_units import Budgets
from app.scheduler.fair_sharing import FairSharing
from app.scheduler.gang_scheduling import Groups, Whole
from app.scheduler.preemption import Lowest
from app.scheduler.quota_admission import QuotaAdmission
from app.scheduler.scheduling_queue import Queue
from app.scheduler.scheduling_round import Search, Tiered, Verdict, in_tiers
from app.store import Key, Mirror

TOGETHER = 250  # bindings of one write set
ROUND = Key("scheduler", "", "round")
SOON = timedelta(seconds=1)  # until quota that was given in a round can be taken back
MOST = 5_000  # pods of one round


class Scheduler:
    component = "default-scheduler"

    def __init__(self, mirror: Mirror, settings: Settings = DEFAULT) -> None:
        self._mirror = mirror
        self._wishes = PodInfos()
        self._cluster = Cluster(settings)
        self._lowest = Lowest(self._cluster)
        self._groups = Groups()
        self._fair = FairSharing(self._cluster)
        self._queue = Queue(self._cluster, self._groups, self._fair)
        self._queueing = Queueing(mirror, self._fair, self._queue)
        self._pending: dict[Key, Pending] = {}
        # What the last round did, which may have been refused: UIDs of pods that it placed, and what pods were told.
        self._assumed: set[str] = set()
        self._told: list[Verdict] = []
        self._unsaid = Unsaid()
        self._untold = Untold()

    def on_event(self, key: Key, before: Object | None, now: Object | None) -> Iterable[Key]:
        if key.kind == PODS.resource:
            return self._pod_changed(key, cast("Pod | None", before), cast("Pod | None", now))
        if key.kind == NODES.resource:
            return self._node_changed(key.name, cast("Node | None", now))
        if key.kind == NAMESPACES:
            return self._namespace_changed(key.name, now)
        if key.kind == POD_GROUPS.resource:
            return self._group_changed(key, cast("PodGroup | None", now))
        if key.kind == LOCAL_QUEUES.resource:
            return self._queue_changed(key, cast("LocalQueue | None", now))
        return []

    def _node_changed(self, name: str, now: Node | None) -> Iterable[Key]:
        changed = self._cluster.set_node(now) if now is not None else self._cluster.remove_node(name)
        if not changed:
            return []
        self._fair.resized()
        return self._eased(name)

    def _namespace_changed(self, name: str, now: Object | None) -> Iterable[Key]:
        changed = self._cluster.set_namespace(name, now.metadata.labels if now is not None else None)
        return self._eased(None) if changed else []

    def _group_changed(self, key: Key, now: PodGroup | None) -> Iterable[Key]:
        helped = self._groups.set((key.namespace, key.name), now)
        self._queue.again(helped)
        return [ROUND] if helped else []

    def _queue_changed(self, key: Key, now: LocalQueue | None) -> Iterable[Key]:
        if not self._queueing.set(key, now):
            return [QUEUES]
        self._queue.again(self._pending.values())
        return [ROUND, QUEUES]

    def _eased(self, node: str | None) -> Iterable[Key]:
        self._queue.ease(node)
        return [ROUND] if self._pending else []

    def _pod_changed(self, key: Key, before: Pod | None, now: Pod | None) -> Iterable[Key]:
        keys: list[Key] = [QUEUES] if key.namespace in self._fair.terms else []
        if before is not None and (now is None or now.metadata.uid != before.metadata.uid):
            keys += self._ends(key, before, None)
        if now is not None and is_terminal(now):
            keys += self._ends(key, now, now)
        if kept := _lets_room_go(before, now):
            keys += self._eased(kept)
        if now is not None and _is_pending(now):
            keys += self._waits(key, now)
        elif now is not None and not is_terminal(now):
            keys += self._is_placed(key, before, now)
        return keys

    def _ends(self, key: Key, pod: Pod, now: Pod | None) -> Iterable[Key]:
        """A pod is gone, or has come to its end."""
        self._no_longer_waits(key)
        self._note_member(pod, now, None)
        self._assumed.discard(pod.metadata.uid)
        placed = self._cluster.unplace(pod.metadata.uid)
        return self._eased(placed.node) if placed is not None else []

    def _waits(self, key: Key, pod: Pod) -> Iterable[Key]:
        known = self._pending.get(key)
        if known is not None and known[0].spec == pod.spec and known[0].metadata.labels == pod.metadata.labels:
            self._pending[key] = pod, known[1]
            self._note_member(pod, pod, self._pending[key])
            self._queue.renew(pod)
            return []
        self._pending[key] = pod, self._wishes.of(pod)
        self._note_member(pod, pod, self._pending[key])
        self._queue.put(*self._pending[key])
        return [ROUND]

    def _is_placed(self, key: Key, before: Pod | None, now: Pod) -> Iterable[Key]:
        """A pod is on a node; or it is not to be placed, for it goes, or is gated, or somebody else's."""
        waited = self._no_longer_waits(key)
        self._note_member(now, now, None)
        if not now.spec.node_name:
            return []
        self._assumed.discard(now.metadata.uid)
        news = self._untold.comes_true(now)
        self._cluster.place(now, now.spec.node_name, self._wish_of(now, waited))
        if before is not None and _looks_the_same(before, now):
            return news
        self._queue.move()
        if before is not None and before.metadata.labels != now.metadata.labels:  # those who stay away from it may come
            return [*self._eased(now.spec.node_name), *news]
        return [ROUND, *news] if self._queue.choosy else news

    def _no_longer_waits(self, key: Key) -> Pending | None:
        waited = self._pending.pop(key, None)
        if waited is not None:
            self._queue.remove(waited[0].metadata.uid)
            self._fair.gone(waited[0].metadata.uid)
        return waited

    def _note_member(self, pod: Pod, now: Pod | None, pending: Pending | None) -> None:
        if pod.spec.scheduling_group is not None:
            self._queue.again(self._groups.note(pod, now, pending))

    def _wish_of(self, pod: Pod, waited: Pending | None) -> PodInfo:
        placed = self._cluster.placed.get(pod.metadata.uid)
        if placed is not None:
            return placed.info
        return waited[1] if waited is not None else self._wishes.of(pod)

    def enqueue_all(self) -> Iterable[Key]:
        for kind in (NAMESPACES, NODES.resource, LOCAL_QUEUES.resource, POD_GROUPS.resource, PODS.resource):
            for each in list(self._mirror.all(kind)):
                self.on_event(Key(kind, each.metadata.namespace, each.metadata.name), None, each)
        return [ROUND, QUEUES]

    def reconcile(self, key: Key, now: datetime) -> Sequence[PlannedWrite]:
        if key == QUEUES:
            return [*self._queueing.statuses(now)]
        if key == EVENTS:
            return self._untold.told(now, TOGETHER, is_busy=self._queue.has_more)
        self._take_back()
        self._look_again_at(self._unsaid.due(now))
        pods = self._queue.turn(now, MOST)
        works: list[PlannedWrite] = []
        if pods:
            whole = Whole(self._groups)
            budgets = Budgets(self._budgets())
            search = Search(self._cluster, self._lowest, budgets, self._groups)
            quota_admission = QuotaAdmission(self._fair, self._groups, whole, budgets)
            outcome = in_tiers(
                pods, self._queue.nominated(), self._cluster, search, quota_admission, quota_admission.may
            )
            outcome.verdicts = self._queueing.worded(outcome.verdicts)
            self._cluster.forget()
            self._settle(outcome, now)
            if quota_admission.is_open:
                self._queue.ease()
            works = self._writes(outcome, whole, now.replace(microsecond=0))
            works += [PlannedWrite(Plan(again_at=now + SOON))] if quota_admission.is_open else []
            works += self._queueing.news(self._told, now.replace(microsecond=0))
        again_at = earliest((self._queue.again_at(now), self._unsaid.again_at()))
        return [*works, PlannedWrite(Plan(again_at=again_at))] if again_at is not None else works

    def _settle(self, outcome: Tiered, now: datetime) -> None:
        self._assumed.update(pod.metadata.uid for pod, _ in outcome.bound)
        decided = {verdict.pod.metadata.uid for verdict in outcome.verdicts}
        left = [pod for pod, _ in outcome.unbound if pod.metadata.uid not in decided]
        self._queue.settle((pod for pod, _ in outcome.bound), (each.pod for each in outcome.verdicts), now, left)

    def _writes(self, outcome: Tiered, whole: Whole, now: datetime) -> list[PlannedWrite]:
        with_events = len(outcome.bound) <= TOGETHER
        if not with_events:
            self._untold.defer(pod for pod, _ in outcome.bound)
        works = [work for attempt in whole.attempts for work in attempted(attempt, now, with_events=with_events)]
        together = {pod.metadata.uid for attempt in whole.attempts for pod, _ in attempt.bound}
        alone = [each for each in outcome.bound if each[0].metadata.uid not in together] if together else outcome.bound
        parts = (alone[n : n + TOGETHER] for n in range(0, len(alone), TOGETHER))
        works += [PlannedWrite(Plan(bindings(part, now) + (scheduled(part) if with_events else ()))) for part in parts]
        for verdicts, work in all_told(outcome.verdicts, now):
            works.append(work)
            self._told += verdicts
        self._unsaid.note(outcome.verdicts, now)
        return works

    def _budgets(self) -> list[PodDisruptionBudget]:
        return [cast("PodDisruptionBudget", each) for each in self._mirror.all(BUDGETS.resource)]

    def _take_back(self) -> None:
        """All of the last round is committed or refused, and what was committed has been seen: the rest did not happen."""
        for uid in self._assumed:
            placed = self._cluster.unplace(uid)
            if placed is not None:
                self._queue.ease(placed.node)
        self._assumed.clear()
        self._untold.take_back()
        for verdict in self._told:
            meta = verdict.pod.metadata
            known = self._pending.get(Key(PODS.resource, meta.namespace, meta.name))
            if known is not None and known[0].metadata.resource_version == meta.resource_version:
                self._queue.put(*known)
        self._told.clear()

    def _look_again_at(self, keys: Iterable[Key]) -> None:
        for known in filter(None, map(self._pending.get, keys)):
            self._queue.put(*known)


def _lets_room_go(before: Pod | None, now: Pod | None) -> str:
    """The node where room was kept for the pod, and is no more."""
    kept = before.status.nominated_node_name if before is not None else ""
    return "" if now is not None and now.status.nominated_node_name == kept else kept


def _looks_the_same(before: Pod, now: Pod) -> bool:
    """To pods that are to be near it, or not too many in a place with it."""
    old, new = before.metadata, now.metadata
    is_going = old.deletion_timestamp is None, new.deletion_timestamp is None
    return before.spec.node_name == now.spec.node_name and old.labels == new.labels and is_going[0] == is_going[1]


def _is_pending(pod: Pod) -> bool:
    return (
        not pod.spec.node_name
        and pod.metadata.deletion_timestamp is None
        and not is_terminal(pod)
        and not pod.spec.scheduling_gates
        and pod.spec.scheduler_name in ("", "default-scheduler")
    )
