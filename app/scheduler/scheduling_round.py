"""Scheduling round: pending pods are placed by priority band, and each band preempts before the next gets what is left.

`schedule_round` is called by the scheduler's controller, which carries out what it returns. `PreemptionEvaluator` answers
for pods that no node takes: kube-scheduler's PostFilter. What is reserved for a nominated pod (`status.nominatedNodeName`)
counts for pods of the same and of lower priority, not for more important ones, as in kube-scheduler.
"""

import dataclasses
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from msgspec.structs import replace

from app.kinds.pod.pod import Pod
from app.kinds.scheduling.podgroup import PodGroup
from app.scheduler.cache import Cluster
from app.scheduler.eviction_units import DisruptionBudgets, EvictionUnits, is_terminating, priority_of
from app.scheduler.filters import Diagnosis
from app.scheduler.gang_preemption import GangPreemption, find_earlier_preemption, find_preemption, gang_priority
from app.scheduler.gang_scheduling import PodGroupInfo, PodGroupKey, PodGroups
from app.scheduler.placement import Assignment, Pending, PlacementResult, schedule
from app.scheduler.pod_info import PodInfo
from app.scheduler.preemption import CandidateSearch, LowestPriorities, PreemptionContext, Victims

NEVER_PREEMPTS = "not eligible due to preemptionPolicy=Never."
VICTIMS_TERMINATING = "not eligible due to a terminating pod on the nominated node."
GANG_VICTIMS_TERMINATING = "not eligible due to terminating pods on the nominated nodes."
GANG_NOT_HELPFUL = "no place for enough pods of the group if those of lower priority went."

MAX_PREEMPTIONS = 32  # of pods, in one round
MAX_GANG_PODS = 500  # once preemption was tried for gangs of so many pods, the next gang waits for the next round


@dataclass(frozen=True, slots=True)
class PostFilterResult:
    """What is reported of a pod that no node takes now. kube-scheduler's `PostFilterResult`.

    message: of the condition PodScheduled; empty: no report.
    nominated_node: what the pod will have once the victims are gone; empty: none.
    disrupted_groups: PodGroups that are evicted whole.
    gang: results of one gang are reported together; the first of them has all the victims.
    """

    pod: Pod
    message: str
    nominated_node: str = ""
    victims: tuple[Pod, ...] = ()
    disrupted_groups: tuple[PodGroup, ...] = ()
    gang: PodGroupKey | None = None


@dataclass(slots=True)
class _GangResult:
    message: str = ""
    assignments: Sequence[Assignment] = ()
    nodes: dict[str, str] = field(default_factory=dict)  # by UID
    victims: tuple[Pod, ...] = ()  # until they are in a result


class PreemptionEvaluator:
    """Preemption for the pods of one round. Each answer counts as done: its victims are terminating, its node is reserved."""

    def __init__(
        self,
        cluster: Cluster,
        lowest: LowestPriorities,
        budgets: DisruptionBudgets | None = None,
        groups: PodGroups | None = None,
    ) -> None:
        self._cluster = cluster
        self._groups = groups or PodGroups()
        self._units = EvictionUnits(cluster, self._groups)
        self._context = PreemptionContext(cluster, lowest, budgets or DisruptionBudgets(), self._units)
        self._candidates = CandidateSearch(self._context)
        self._gangs: dict[PodGroupKey, _GangResult] = {}
        self._nominations: dict[str, int] = {}  # the highest priority for which each node was chosen
        self._preemptions = self._gang_pods = 0
        self._messages: dict[tuple[Diagnosis, str], str] = {}

    def gang_of(self, pod: Pod) -> PodGroupInfo | None:
        """The group with which the pod is placed: a node for the pod alone would not help it."""
        return self._groups.gang_of(pod) if pod.spec.scheduling_group is not None else None

    def gang_assignments(self, pod: Pod) -> Sequence[Assignment]:
        """Nodes for all pods of its gang; empty if there are none, or they are not known."""
        group = self.gang_of(pod)
        known = self._gangs.get(group.key) if group is not None else None
        return known.assignments if known is not None else ()

    def has_lost_nomination(self, pod: Pod) -> bool:
        """The nominated node was given to a more important pod."""
        priority = self._nominations.get(pod.status.nominated_node_name)
        return priority is not None and priority > priority_of(pod)

    def post_filter(self, pod: Pod, info: PodInfo, diagnosis: Diagnosis) -> PostFilterResult | None:
        """None: the round has had enough preemptions; ask in the next.

        If there is a nominated node, the caller reserves it before it asks again; of a gang, all `gang_assignments`.
        """
        if diagnosis.victims is not None:
            if diagnosis.victims:
                self._candidates.note_victims(Victims(diagnosis.victims))
            disrupted = self._units.disrupted_groups(diagnosis.victims)
            return PostFilterResult(pod, diagnosis.text(), "", diagnosis.victims, disrupted)
        if (group := self.gang_of(pod)) is not None:
            return self._post_filter_gang(group, pod, diagnosis)
        if reason := self._ineligible_reason(pod, diagnosis):
            return PostFilterResult(pod, self._message(diagnosis, reason), pod.status.nominated_node_name)
        if self._preemptions >= MAX_PREEMPTIONS:
            return None
        found = self._candidates.find_best(pod, info, lambda: diagnosis)
        if isinstance(found, str):
            return PostFilterResult(pod, self._message(diagnosis, found))
        node, victims = found
        self._preemptions += 1
        self._note_nomination(node, priority_of(pod))
        disrupted = self._units.disrupted_groups(victims.pods)
        return PostFilterResult(pod, self._message(diagnosis), node, victims.pods, disrupted)

    def _note_nomination(self, node: str, priority: int) -> None:
        self._nominations[node] = max(priority, self._nominations.get(node, priority))

    def _message(self, diagnosis: Diagnosis, preemption: str = "") -> str:
        """Many pods share one."""
        key = diagnosis, preemption
        if key not in self._messages:
            self._messages[key] = diagnosis.text(preemption)
        return self._messages[key]

    def _ineligible_reason(self, pod: Pod, diagnosis: Diagnosis) -> str:
        """kube-scheduler's `PodEligibleToPreemptOthers`."""
        if pod.spec.preemption_policy == "Never":
            return NEVER_PREEMPTS
        node = pod.status.nominated_node_name
        node_info = self._cluster.node_infos.get(node)
        if node_info is None or node in diagnosis.unresolvable or self.has_lost_nomination(pod):
            return ""
        lower = (each.pod for each in node_info.pods.values() if priority_of(each.pod) < priority_of(pod))
        return VICTIMS_TERMINATING if any(is_terminating(each, self._context.terminating) for each in lower) else ""

    def _post_filter_gang(self, group: PodGroupInfo, pod: Pod, diagnosis: Diagnosis) -> PostFilterResult | None:
        result = self._gangs.get(group.key)
        if result is None:
            # Without reasons of nodes, it was not even tried.
            result = self._preempt_for_gang(group) if diagnosis.reasons else _GangResult()
            if result is None:
                return None
            self._gangs[group.key] = result
        victims, result.victims = result.victims, ()
        return PostFilterResult(
            pod,
            self._message(diagnosis, result.message),
            result.nodes.get(pod.metadata.uid, ""),
            victims,
            self._units.disrupted_groups(victims),
            group.key if result.assignments else None,
        )

    def _preempt_for_gang(self, group: PodGroupInfo) -> _GangResult | None:
        """None if the round has had enough preemptions."""
        context = self._context
        if group.has_nominated_pods and (earlier := find_earlier_preemption(group, context)) is not None:
            return _gang_result(earlier, GANG_VICTIMS_TERMINATING)
        if any(pod.spec.preemption_policy == "Never" for pod, _ in group.pending.values()):
            return _GangResult(NEVER_PREEMPTS)
        priority = gang_priority(group)
        if not context.lowest.nodes_below(priority):
            return _GangResult()
        if self._gang_pods >= MAX_GANG_PODS:
            return None
        self._gang_pods += len(group.pending)
        found = find_preemption(group, context)
        if found is None:
            return _GangResult(GANG_NOT_HELPFUL)
        self._candidates.note_victims(found.victims)
        for node in {node for _, _, node in found.assignments}:
            self._note_nomination(node, priority)
        return _gang_result(found)


def _gang_result(found: GangPreemption, message: str = "") -> _GangResult:
    nodes = {pod.metadata.uid: node for pod, _, node in found.assignments}
    return _GangResult(message, found.assignments, nodes, found.victims.pods)


PlacePods = Callable[[Iterable[Pending], Cluster], PlacementResult]
CheckQuota = Callable[[Pod, PodInfo], Diagnosis | None]
"""Why a pod may not be placed on any node, whatever is free; None if it may."""


def pass_quota(_: Pod, __: PodInfo) -> None:
    """There are no quotas."""


@dataclass
class RoundResult:
    """Bindings, and reports of pods that stay pending; a pod of `unbound` without a report is tried in the next round.

    Reports are also about pods that were not tried, but have lost their nominated node to a more important one.
    """

    bound: list[tuple[Pod, str]] = field(default_factory=list)
    unbound: list[tuple[Pod, Diagnosis]] = field(default_factory=list)
    post_filter_results: list[PostFilterResult] = field(default_factory=list)


def schedule_round(
    pending: Iterable[Pending],
    nominated: Iterable[Pending],
    cluster: Cluster,
    evaluator: PreemptionEvaluator,
    place: PlacePods = schedule,
    check_quota: CheckQuota = pass_quota,
) -> RoundResult:
    """`nominated`: all pods with a nominated node, also those not in `pending`. In each band pods keep the order given."""
    result, nominated = RoundResult(), list(nominated)
    round_ = _Round(cluster, evaluator, place, check_quota, nominated, result)
    try:
        for _, band in groupby(sorted(pending, key=_negated_priority), _negated_priority):
            round_.place_band(list(band))
    finally:
        round_.close()
    seen = {pod.metadata.uid for pod, _ in (*result.bound, *result.unbound)} if nominated else set()
    lost = (pod for pod, _ in nominated if evaluator.has_lost_nomination(pod) and pod.metadata.uid not in seen)
    result.post_filter_results += (PostFilterResult(pod, "") for pod in lost)
    return result


def _negated_priority(pending: Pending) -> int:
    return -priority_of(pending[0])


class _Round:
    def __init__(
        self,
        cluster: Cluster,
        evaluator: PreemptionEvaluator,
        place: PlacePods,
        check_quota: CheckQuota,
        nominated: Iterable[Pending],
        result: RoundResult,
    ) -> None:
        self._cluster = cluster
        self._evaluator = evaluator
        self._place = place
        self._check_quota = check_quota
        self._result = result
        self._to_reserve = sorted(nominated, key=_negated_priority, reverse=True)  # the last is the next
        self._nominated_keys = {_gang_or_pod_key(pod, evaluator) for pod, _ in nominated}
        self._reserved: set[str] = set()

    def place_band(self, band: Sequence[Pending]) -> None:
        """Nominated pods come first, and get their nominated nodes if they fit there."""
        self._reserve_nominated(band[0])
        if not self._nominated_keys:
            self._place_or_preempt(band, self._place)
            return
        nominated: dict[Hashable, list[Pending]] = {}
        others: list[Pending] = []
        for each in band:
            key = _gang_or_pod_key(each[0], self._evaluator)
            (nominated.setdefault(key, []) if key in self._nominated_keys else others).append(each)
        for pods in nominated.values():
            is_gang = self._evaluator.gang_of(pods[0][0]) is not None
            self._place_or_preempt(pods, self._place if is_gang else self._place_nominated)
        if others:
            self._place_or_preempt(others, self._place)

    def _place_nominated(self, pending: Iterable[Pending], cluster: Cluster) -> PlacementResult:
        """Place a single pod on its nominated node, else on any."""
        ((pod, info),) = pending
        node = pod.status.nominated_node_name
        if node not in cluster.node_infos or cluster.filter_reasons(pod, info, node):
            return self._place([(pod, info)], cluster)
        if (over_quota := self._check_quota(pod, info)) is not None:
            return PlacementResult([], [(pod, over_quota)])
        cluster.place(pod, node, info)
        return PlacementResult([(pod, node)], [])

    def _place_or_preempt(self, pods: Sequence[Pending], place: PlacePods) -> None:
        for pod, _ in pods if self._reserved else ():
            if not self._evaluator.gang_assignments(pod):  # these were reserved in this round, for its gang
                self._unreserve(pod.metadata.uid)
        outcome = place(pods, self._cluster)
        self._result.bound += outcome.bound
        self._result.unbound += outcome.unbound
        infos = {pod.metadata.uid: info for pod, info in pods} if outcome.unbound else {}
        for pod, diagnosis in outcome.unbound:
            info = infos[pod.metadata.uid]
            report = self._evaluator.post_filter(pod, info, diagnosis)
            if report is not None:
                self._result.post_filter_results.append(report)
            if node := pod.status.nominated_node_name if report is None else report.nominated_node:
                self._reserve_all(self._evaluator.gang_assignments(pod) or [(pod, info, node)])

    # Reservations

    def _reserve_nominated(self, one: Pending) -> None:
        """For nominated pods of at least the priority of this one."""
        while self._to_reserve and _negated_priority(self._to_reserve[-1]) <= _negated_priority(one):
            pod, info = self._to_reserve.pop()
            if not self._evaluator.has_lost_nomination(pod):
                self._reserve(pod, pod.status.nominated_node_name, info)

    def _reserve_all(self, assignments: Sequence[Assignment]) -> None:
        for pod, info, node in assignments if assignments[0][0].metadata.uid not in self._reserved else ():
            self._reserve(pod, node, info)

    def _reserve(self, pod: Pod, node: str, info: PodInfo) -> None:
        """Place the pod without labels: it is not there yet for pods that depend on it, by affinity or topology spread."""
        if pod.metadata.uid in self._cluster.pods:
            return  # with the more important pods of its gang
        unlabelled = replace(pod, metadata=replace(pod.metadata, labels={}))
        self._cluster.place(unlabelled, node, _with_anti_affinity_only(info))
        self._reserved.add(pod.metadata.uid)

    def _unreserve(self, uid: str) -> None:
        if uid in self._reserved:
            self._reserved.remove(uid)
            self._cluster.unplace(uid)

    def close(self) -> None:
        for uid in list(self._reserved):
            self._unreserve(uid)


def _gang_or_pod_key(pod: Pod, evaluator: PreemptionEvaluator) -> Hashable:
    group = evaluator.gang_of(pod)
    return pod.metadata.uid if group is None else group.key


def _with_anti_affinity_only(info: PodInfo) -> PodInfo:
    """Of its symmetric terms, only required anti-affinity counts for other pods."""
    terms = tuple(each for each in info.symmetric_terms if each.kind == "anti-affinity")
    return dataclasses.replace(info, symmetric_terms=terms) if terms != info.symmetric_terms else info
