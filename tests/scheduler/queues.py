"""LocalQueues for tests of scheduling, and a scheduler with a clock: rounds, pods that end, evictions that happen."""

from collections import Counter
from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from msgspec.structs import replace

from app.kinds.core.node import Node
from app.kinds.core.poddisruptionbudget import PodDisruptionBudget
from app.kinds.pod.pod import Pod
from app.kinds.scheduling.localqueue import LocalQueue, LocalQueuePreemption, LocalQueueSpec, prepare
from app.kinds.scheduling.podgroup import SCHEDULED, PodGroup
from app.machinery.base import ObjectMeta
from app.machinery.meta.meta_condition import Condition
from app.scheduler import Cluster, PodInfos
from app.scheduler.eviction_units import DisruptionBudgets
from app.scheduler.fair_sharing import FairSharing, queue_message, queue_positions
from app.scheduler.gang_scheduling import GangAttempt, GangScheduler, PodGroups
from app.scheduler.preemption import LowestPriorities
from app.scheduler.quota_admission import QuotaAdmission
from app.scheduler.scheduling_queue import SchedulingQueue
from app.scheduler.scheduling_round import PreemptionEvaluator, RoundResult, schedule_round
from tests.scheduler.cluster import a_cluster, a_node, a_pod

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def a_queue(
    name: str = "default", *, reclaims: bool = False, borrows: dict[str, str] | None = None, **spec: Any
) -> LocalQueue:
    """`quota` and `borrows` by resource; weight and cohort as they are."""
    quota = spec.pop("quota", {})
    preemption = LocalQueuePreemption(reclaim_within_cohort="Any" if reclaims else "Never")
    given = LocalQueueSpec(nominal_quota=quota, borrowing_limit=borrows or {}, preemption=preemption, **spec)
    return prepare(LocalQueue(metadata=ObjectMeta(name=name, uid=f"uid-of-{name}"), spec=given))


class SimulatedScheduler:
    """A scheduler, its cluster and a clock."""

    def __init__(self, nodes: Iterable[Node] = (), **queues: LocalQueue) -> None:
        self.cluster: Cluster = a_cluster(list(nodes) or [a_node(cpu="1000", memory="1000Gi", pods="1000")])
        self.fair = FairSharing(self.cluster)
        self.groups = PodGroups()
        self.queue = SchedulingQueue(self.cluster, self.groups, self.fair)
        self.infos = PodInfos()
        self.lowest = LowestPriorities(self.cluster)
        self.now = NOW
        self.terminating: dict[str, Pod] = {}
        self.budgets: list[PodDisruptionBudget] = []
        self.why: dict[str, str] = {}
        self._born = 0
        for namespace, queue in queues.items():
            self.set(namespace, queue)

    def set(self, namespace: str, queue: LocalQueue | None) -> None:
        if self.fair.set(namespace, queue):
            self.queue.requeue([self.queue._pods[uid][0] for uid in list(self.queue._pods)])

    def group(self, group: PodGroup) -> None:
        self.groups.set((group.metadata.namespace, group.metadata.name), group)

    def add_pod(
        self,
        namespace: str,
        name: str,
        spec: dict[str, Any] | None = None,
        labels: dict[str, str] | None = None,
        **needs: str,
    ) -> Pod:
        """Each a second after the one before it; a CPU if nothing is said."""
        self._born += 1
        pod = a_pod(name, spec, labels, namespace, **(needs or {"cpu": "1"}))
        pod = replace(pod, metadata=replace(pod.metadata, creation_timestamp=NOW + timedelta(seconds=self._born)))
        pending = pod, self.infos.get(pod)
        if pod.spec.scheduling_group is not None:
            self.queue.requeue(self.groups.update_pod(pod, pod, pending))
        self.queue.add(*pending)
        return pod

    def add_pods(self, namespace: str, count: int, start: str = "p", **more: Any) -> list[Pod]:
        return [self.add_pod(namespace, f"{start}{number}", **more) for number in range(count)]

    def run_round(self) -> list[str]:
        """One round; who found a place, in order."""
        self.now += timedelta(seconds=1)
        pods = self.queue.pop(self.now, 2_000)
        gang_scheduler = GangScheduler(self.groups)
        budgets = DisruptionBudgets(self.budgets)
        quota_admission = QuotaAdmission(self.fair, self.groups, gang_scheduler, budgets)
        evaluator = PreemptionEvaluator(self.cluster, self.lowest, budgets, self.groups)
        outcome: RoundResult = schedule_round(
            pods, self.queue.nominated_pods(), self.cluster, evaluator, quota_admission, quota_admission.check
        )
        self._settle(outcome)
        if quota_admission.awaits_commit:
            self.queue.note_capacity_freed()
        for pod, node in outcome.bound:
            self._is_placed(pod, node)
        for each in gang_scheduler.attempts:
            self._is_said(each)
        for report in outcome.post_filter_results:
            self.why[report.pod.metadata.name] = report.message
            self._is_nominated(report.pod, report.nominated_node)
            for victim in report.victims:
                self._goes(victim)
        return [pod.metadata.name for pod, _ in outcome.bound]

    def _settle(self, outcome: RoundResult) -> None:
        decided = {each.pod.metadata.uid for each in outcome.post_filter_results}
        left = [pod for pod, _ in outcome.unbound if pod.metadata.uid not in decided]
        self.queue.record_outcome(
            [pod for pod, _ in outcome.bound], [each.pod for each in outcome.post_filter_results], self.now, left
        )

    def _is_said(self, attempt: GangAttempt) -> None:
        group = attempt.group.object
        if group is not None and attempt.group.min_count and not attempt.group.was_scheduled:
            said = Condition(type=SCHEDULED, status="True" if attempt.bound else "False")
            now = replace(group, status=replace(group.status, conditions=(said,)))
            self.queue.requeue(self.groups.set(attempt.group.key, now))

    def _is_nominated(self, pod: Pod, node: str) -> None:
        if pod.status.nominated_node_name == node:
            return
        now = replace(pod, status=replace(pod.status, nominated_node_name=node))
        if pod.spec.scheduling_group is not None:
            self.queue.requeue(self.groups.update_pod(pod, now, (now, self.infos.get(pod))))
        self.queue.update(now)
        if pod.status.nominated_node_name:
            self.queue.note_capacity_freed(pod.status.nominated_node_name)

    def _is_placed(self, pod: Pod, node: str) -> None:
        info = self.infos.get(pod)
        self.queue.remove(pod.metadata.uid)
        self.fair.forget_pod(pod.metadata.uid)
        there = replace(pod, spec=replace(pod.spec, node_name=node))
        if pod.spec.scheduling_group is not None:
            self.queue.requeue(self.groups.update_pod(pod, there, None))
        self.cluster.place(there, node, info)

    def _goes(self, pod: Pod) -> None:
        dying = replace(pod, metadata=replace(pod.metadata, deletion_timestamp=self.now))
        assert pod.metadata.name not in self.terminating
        self.terminating[pod.metadata.name] = dying
        if pod.spec.scheduling_group is not None:
            self.queue.requeue(self.groups.update_pod(pod, dying, None))
        self.cluster.place(dying, pod.spec.node_name, self.infos.get(pod))

    def end_pods(self, namespace: str, *names: str) -> None:
        for name in names:
            placed = self.cluster.unplace(f"uid-of-{namespace}-{name}")
            assert placed is not None
            self.terminating.pop(name, None)
            if placed.pod.spec.scheduling_group is not None:
                self.queue.requeue(self.groups.update_pod(placed.pod, None, None))
            self.queue.note_capacity_freed(placed.node)

    def pending_owners(self, namespace: str) -> list[str]:
        return list(queue_positions(self.fair.pending_in(namespace)))

    def message_of(self, pod: Pod) -> str:
        one = self.fair.pending_request(pod.metadata.uid)
        assert one is not None
        return queue_message(one, queue_positions(self.fair.pending_in(pod.metadata.namespace)))

    def running(self) -> Counter[str]:
        return Counter(each.pod.metadata.namespace for each in self.cluster.pods.values())

    def used(self, namespace: str, resource: str = "cpu") -> int:
        """In whole CPUs."""
        used = self.fair.usage.get(namespace).get(resource, 0)
        return used // 1000 if resource == "cpu" else used
