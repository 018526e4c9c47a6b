"""Gang scheduling (PodGroup): pods that are placed together or not at all. Kubernetes' GangScheduling plugin.

The scheduler's controller tells `PodGroups` of PodGroups and pods; the queue asks it which pods are scheduled together, and
`GangScheduler` places them in a round. A gang that does not fit holds no resources: it is tried, and rolled back.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from app.kinds.pod.pod import Pod, is_terminal
from app.kinds.scheduling.podgroup import SCHEDULED, PodGroup, disrupts_whole
from app.machinery.meta.meta_condition import condition
from app.plans.jobs.indexes import COMPLETION_INDEX
from app.scheduler.cache import Cluster
from app.scheduler.filters import Diagnosis
from app.scheduler.placement import (
    Pending,
    PlacementResult,
    find_placements,
    nominated_placement,
    place_nominated,
    restrict,
    schedule,
)
from app.scheduler.pod_info import queue_sort_key
from app.scheduler.shared_claims import find_sharers, schedule_together

MIN_COUNT_NOT_REACHED = "waiting for minCount pods from a gang to appear in scheduling queue"

PodGroupKey = tuple[str, str]
"""Namespace and name."""


@dataclass(eq=False)
class PodGroupInfo:
    """A PodGroup with its pods, by UID. `bound`: node of each pod that is on one and not being deleted."""

    key: PodGroupKey
    object: PodGroup | None = None
    pending: dict[str, Pending] = field(default_factory=dict)
    bound: dict[str, str] = field(default_factory=dict)
    finished: dict[str, tuple[str, str]] = field(default_factory=dict)  # phase and completion index

    @property
    def is_empty(self) -> bool:
        return not (self.object or self.pending or self.bound or self.finished)

    @property
    def min_count(self) -> int:
        gang = self.object.spec.scheduling_policy.gang if self.object is not None else None
        return gang.min_count if gang is not None else 0

    @property
    def topology_key(self) -> str:
        """The node label that must have one value for all pods; empty without such a constraint."""
        constraints = self.object.spec.scheduling_constraints if self.object is not None else None
        return constraints.topology[0].key if constraints is not None and constraints.topology else ""

    @property
    def disrupts_whole(self) -> bool:
        """`disruptionMode.all`: its pods are evicted together."""
        return self.object is not None and disrupts_whole(self.object.spec)

    @property
    def has_nominated_pods(self) -> bool:
        return any(pod.status.nominated_node_name for pod, _ in self.pending.values())

    @property
    def was_scheduled(self) -> bool:
        """It was scheduled and has pods on nodes: new pods are replacements. Without any pod it begins anew."""
        scheduled = condition(self.object.status.conditions, SCHEDULED) if self.object is not None else None
        return bool(self.bound) and scheduled is not None and scheduled.status == "True"

    @property
    def schedules_together(self) -> bool:
        """Its pods are not scheduled one by one."""
        if self.object is None or self.topology_key:
            return True
        return bool(self.min_count) and not self.was_scheduled

    @property
    def placed_count(self) -> int:
        """Pods that need no node any more: on a node, or finished and not replaced."""
        indexes = {pod.metadata.labels.get(COMPLETION_INDEX) for pod, _ in self.pending.values()}
        finished = sum(
            index not in indexes if index else phase == "Succeeded" for phase, index in self.finished.values()
        )
        return len(self.bound) + finished

    @property
    def needed_count(self) -> int:
        """Pods that must fit at the same time, or none is placed."""
        return 0 if self.was_scheduled else max(0, self.min_count - self.placed_count)

    @property
    def has_enough_pods(self) -> bool:
        return self.object is not None and len(self.pending) >= self.needed_count

    def sort_pending(self) -> list[Pending]:
        return sorted(self.pending.values(), key=lambda each: queue_sort_key(*each))


class PodGroups:
    """All PodGroups, and all groups that pods name. None where the feature gate is off: pods are scheduled by themselves."""

    def __init__(self, *, is_enabled: bool = True) -> None:
        self._is_enabled = is_enabled
        self._groups: dict[PodGroupKey, PodGroupInfo] = {}

    def gang_of(self, pod: Pod) -> PodGroupInfo | None:
        """The group with which the pod is scheduled; None if it is scheduled by itself."""
        key = self._group_key(pod)
        group = self._get(key) if key is not None else None
        return group if group is not None and group.schedules_together else None

    def group_of(self, pod: Pod) -> PodGroupInfo | None:
        """The group that the pod names."""
        key = self._group_key(pod)
        return self._groups.get(key) if key is not None else None

    def _group_key(self, pod: Pod) -> PodGroupKey | None:
        group = pod.spec.scheduling_group
        if group is None or not group.pod_group_name or not self._is_enabled:
            return None
        return pod.metadata.namespace, group.pod_group_name

    def _get(self, key: PodGroupKey) -> PodGroupInfo:
        return self._groups.setdefault(key, PodGroupInfo(key))

    def set(self, key: PodGroupKey, now: PodGroup | None) -> Iterable[Pending]:
        """Add, update or, with None, remove a PodGroup. Returns its pods if that changes how they are scheduled."""
        group = self._get(key)
        before, group.object = (_scheduling_fields(group), group.object), now
        has_changed = before[0] != _scheduling_fields(group)
        self._drop_if_empty(group)
        return list(group.pending.values()) if has_changed else []

    def update_pod(self, before: Pod | None, now: Pod | None, pending: Pending | None) -> Iterable[Pending]:
        """A pod has changed; `pending` if it is to be scheduled.

        Returns the pods of its group if these are scheduled together from now on, or one by one.
        """
        pod = now or before
        key = self._group_key(pod) if pod is not None else None
        if pod is None or key is None:
            return []
        group, uid = self._get(key), pod.metadata.uid
        was_together = group.schedules_together
        for pods in (group.pending, group.bound, group.finished):
            pods.pop(uid, None)
        if pending is not None:
            group.pending[uid] = pending
        elif now is not None and is_terminal(now):
            group.finished[uid] = now.status.phase, now.metadata.labels.get(COMPLETION_INDEX, "")
        elif now is not None and now.spec.node_name and now.metadata.deletion_timestamp is None:
            group.bound[uid] = now.spec.node_name
        self._drop_if_empty(group)
        return list(group.pending.values()) if was_together != group.schedules_together else []

    def _drop_if_empty(self, group: PodGroupInfo) -> None:
        if group.is_empty:
            del self._groups[group.key]


def _scheduling_fields(group: PodGroupInfo) -> object:
    """Return what of a PodGroup decides how its pods are scheduled."""
    return group.object is None, group.min_count, group.topology_key, group.schedules_together


@dataclass(frozen=True, slots=True, eq=False)
class _GangDiagnosis(Diagnosis):
    """Why a gang is not placed: what is missing and, if it was tried, why nodes are rejected."""

    message: str = ""
    was_tried: bool = False

    def text(self, preemption: str = "") -> str:
        return f"{self.message}: {Diagnosis.text(self, preemption)}" if self.was_tried else self.message


@dataclass(frozen=True)
class GangAttempt:
    """Result of an attempt to place a gang. `message`: what is missing, without bindings."""

    group: PodGroupInfo
    bound: Sequence[tuple[Pod, str]] = ()
    unbound: Sequence[tuple[Pod, Diagnosis]] = ()
    message: str = ""


class GangScheduler:
    """Places the pods of one round, gangs together; takes the place of `schedule`, and keeps the attempts."""

    def __init__(self, groups: PodGroups) -> None:
        self._groups = groups
        self._attempts: dict[PodGroupKey, GangAttempt] = {}

    @property
    def attempts(self) -> Iterable[GangAttempt]:
        return self._attempts.values()

    def has_attempted(self, group: PodGroupInfo) -> bool:
        return group.key in self._attempts

    def reject(self, group: PodGroupInfo, diagnosis: Diagnosis) -> None:
        """Do not try to place a gang."""
        self._attempts[group.key] = _reject(group, group.pending.values(), diagnosis)

    def __call__(self, pending: Iterable[Pending], cluster: Cluster) -> PlacementResult:
        bound: list[tuple[Pod, str]] = []
        unbound: list[tuple[Pod, Diagnosis]] = []
        for group, pods in split_by_gang(pending, self._groups):
            if group is None:
                outcome = schedule(pods, cluster)
                bound += outcome.bound
                unbound += outcome.unbound
                continue
            attempt = self._attempts.get(group.key)
            if attempt is None:
                attempt = self._attempts[group.key] = schedule_gang(group, cluster)
                bound += attempt.bound
            asked = {pod.metadata.uid for pod, _ in pods}
            unbound += [each for each in attempt.unbound if each[0].metadata.uid in asked]
        return PlacementResult(bound, unbound)


def split_by_gang(pending: Iterable[Pending], groups: PodGroups) -> Iterator[tuple[PodGroupInfo | None, list[Pending]]]:
    """Runs of pods of one gang, and runs of pods without a gang (None) between them."""
    run: list[Pending] = []
    last: PodGroupInfo | None = None
    for each in pending:
        group = groups.gang_of(each[0])
        if group is not last and run:
            yield last, run
            run = []
        last = group
        run.append(each)
    if run:
        yield last, run


def schedule_gang(group: PodGroupInfo, cluster: Cluster) -> GangAttempt:
    """Place the pods of a gang, and leave them placed, if at least `needed_count` fit; else roll back."""
    pods = group.sort_pending()
    if group.object is None:
        message = f'waiting for pod\'s pod group "{group.key[1]}" to appear in scheduling queue'
        return _reject(group, pods, _GangDiagnosis({}, frozenset(), message))
    needed, placed = group.needed_count, group.placed_count
    if len(pods) < needed:
        counts = f"{placed + len(pods)}/{group.min_count} pods of the group are there"
        return _reject(group, pods, _GangDiagnosis({}, frozenset(), f"{MIN_COUNT_NOT_REACHED}: {counts}"))
    if (
        group.has_nominated_pods
        and not find_sharers(pods)
        and (nominated := _schedule_nominated(group, pods, cluster)) is not None
    ):
        return nominated
    best: tuple[int, Diagnosis] | None = None
    for placement in find_placements(group.topology_key, pods, needed, group.bound.values(), cluster):
        with cluster.trial() as trial:
            outcome = schedule_together(restrict(pods, placement), cluster)
            count = len(outcome.bound)
            if count >= max(needed, 1):
                trial.commit()
                return _accept(group, pods, outcome, cluster)
        if best is None or count > best[0]:
            best = count, outcome.unbound[0][1]
    if best is None:
        message = f"no node has the label {group.topology_key}, which all pods of the group must have in common"
        return _reject(group, pods, _GangDiagnosis({}, frozenset(), message))
    return _reject(group, pods, _diagnose_gang(group, *best))


def _schedule_nominated(group: PodGroupInfo, pods: Sequence[Pending], cluster: Cluster) -> GangAttempt | None:
    """Each pod on its nominated node, the others in the same placement; None if too few fit so."""
    placement = nominated_placement(group.topology_key, pods, group.bound.values(), cluster)
    if placement is False:
        return None
    with cluster.trial() as trial:
        bound = place_nominated(pods, cluster)
        uids = {pod.metadata.uid for pod, _ in bound}
        others = [each for each in pods if each[0].metadata.uid not in uids]
        outcome = schedule(restrict(others, placement), cluster)
        if len(bound) + len(outcome.bound) < max(group.needed_count, 1):
            return None
        trial.commit()
        return _accept(group, pods, PlacementResult([*bound, *outcome.bound], outcome.unbound), cluster)


def _accept(group: PodGroupInfo, pods: Sequence[Pending], outcome: PlacementResult, cluster: Cluster) -> GangAttempt:
    """Replace pods that were restricted to a placement by the original ones."""
    originals = {pod.metadata.uid: (pod, info) for pod, info in pods}
    bound = []
    for restricted, node in outcome.bound:
        pod, info = originals[restricted.metadata.uid]
        if restricted is not pod:
            cluster.place(pod, node, info)
        bound.append((pod, node))
    unbound = [(originals[pod.metadata.uid][0], diagnosis) for pod, diagnosis in outcome.unbound]
    return GangAttempt(group, bound, unbound)


def _diagnose_gang(group: PodGroupInfo, count: int, diagnosis: Diagnosis) -> Diagnosis:
    if not group.needed_count:
        return diagnosis
    where = f" on nodes with the same {group.topology_key}" if group.topology_key else ""
    message = f"{group.placed_count + count}/{group.min_count} pods of the group can be placed{where}"
    return _GangDiagnosis(diagnosis.reasons, diagnosis.unresolvable, message, was_tried=True)


def _reject(group: PodGroupInfo, pods: Iterable[Pending], diagnosis: Diagnosis) -> GangAttempt:
    return GangAttempt(group, unbound=[(pod, diagnosis) for pod, _ in pods], message=diagnosis.text())
