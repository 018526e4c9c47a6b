"""Gangs (PodGroup): pods that are placed together or not at all: what there is of each, and whether it fits.

The scheduler's controller tells `Groups` of PodGroups and pods; the queue asks which pods are to be placed as a whole, and
`Whole` places them in a round. Nothing is held for a group that does not fit: it is tried out, and undone.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from app.kinds.pod.pod import Pod, is_terminal
from app.kinds.scheduling.pod_group_schema import POD_GROUP
from app.kinds.scheduling.podgroup import SCHEDULED, PodGroup
from app.machinery.meta_condition import condition
from app.plans.jobs.indexes import COMPLETION_INDEX
from app.scheduler import placement
from app.scheduler.cache import Cluster
from app.scheduler.filters import Refusal
from app.scheduler.placement import Outcome, Pending, schedule
from app.scheduler.pod_info import order_of

TOO_FEW = "waiting for minCount pods from a gang to appear in scheduling queue"

GroupKey = tuple[str, str]
"""Namespace and name."""


@dataclass(eq=False)
class Group:
    key: GroupKey
    object: PodGroup | None = None
    waiting: dict[str, Pending] = field(default_factory=dict)  # by UID, as are all of these
    bound: dict[str, str] = field(default_factory=dict)  # on a node, and not on their way out: the node
    ended: dict[str, tuple[str, str]] = field(default_factory=dict)  # phase and completion index

    @property
    def is_needless(self) -> bool:
        return not (self.object or self.waiting or self.bound or self.ended)

    @property
    def min_count(self) -> int:
        gang = self.object.spec.scheduling_policy.gang if self.object is not None else None
        return gang.min_count if gang is not None else 0

    @property
    def topology(self) -> str:
        """The label of nodes that must have the same value for all; empty if none must."""
        constraints = self.object.spec.scheduling_constraints if self.object is not None else None
        return constraints.topology[0].key if constraints is not None and constraints.topology else ""

    @property
    def goes_whole(self) -> bool:
        """Nobody may have one of its pods go without the others."""
        return self.object is not None and self.object.spec.disruption_mode == POD_GROUP

    @property
    def is_kept_room(self) -> bool:
        """For some of its pods, until others are gone."""
        return any(pod.status.nominated_node_name for pod, _ in self.waiting.values())

    @property
    def was_scheduled(self) -> bool:
        """Its places were found, and it has them: what comes now replaces what went. Without any pod it begins anew."""
        said = condition(self.object.status.conditions, SCHEDULED) if self.object is not None else None
        return bool(self.bound) and said is not None and said.status == "True"

    @property
    def is_whole(self) -> bool:
        """Its pods are not to be placed as if they had no group."""
        if self.object is None or self.topology:
            return True
        return bool(self.min_count) and not self.was_scheduled

    @property
    def there(self) -> int:
        """How many need no place any more: they have one, or have ended and are not replaced."""
        indexes = {pod.metadata.labels.get(COMPLETION_INDEX) for pod, _ in self.waiting.values()}
        done = sum(index not in indexes if index else phase == "Succeeded" for phase, index in self.ended.values())
        return len(self.bound) + done

    @property
    def needed(self) -> int:
        """So many must find a place at the same time, or none is given one."""
        return 0 if self.was_scheduled else max(0, self.min_count - self.there)

    @property
    def is_complete(self) -> bool:
        return self.object is not None and len(self.waiting) >= self.needed


class Groups:
    """All groups that there are, or that pods say they are of."""

    def __init__(self) -> None:
        self._groups: dict[GroupKey, Group] = {}

    def whole(self, pod: Pod) -> Group | None:
        """The group with which the pod is to be placed; None if it is to be placed by itself."""
        key = key_of(pod)
        group = self._of(key) if key is not None else None
        return group if group is not None and group.is_whole else None

    def of(self, pod: Pod) -> Group | None:
        """The group that the pod says it is of."""
        key = key_of(pod)
        return self._groups.get(key) if key is not None else None

    def _of(self, key: GroupKey) -> Group:
        return self._groups.setdefault(key, Group(key))

    def set(self, key: GroupKey, now: PodGroup | None) -> Iterable[Pending]:
        """A PodGroup has changed; the pods that this may help."""
        group = self._of(key)
        before, group.object = (_matters(group), group.object), now
        changed = before[0] != _matters(group)
        self._tidy(group)
        return list(group.waiting.values()) if changed else []

    def note(self, before: Pod | None, now: Pod | None, pending: Pending | None) -> Iterable[Pending]:
        """A pod has changed. `pending` if it waits; the pods of its group that this may help, or make wait for others."""
        pod = now or before
        key = key_of(pod) if pod is not None else None
        if pod is None or key is None:
            return []
        group, uid = self._of(key), pod.metadata.uid
        was_whole = group.is_whole
        for known in (group.waiting, group.bound, group.ended):
            known.pop(uid, None)
        if pending is not None:
            group.waiting[uid] = pending
        elif now is not None and is_terminal(now):
            group.ended[uid] = now.status.phase, now.metadata.labels.get(COMPLETION_INDEX, "")
        elif now is not None and now.spec.node_name and now.metadata.deletion_timestamp is None:
            group.bound[uid] = now.spec.node_name
        self._tidy(group)
        return list(group.waiting.values()) if was_whole != group.is_whole else []

    def _tidy(self, group: Group) -> None:
        if group.is_needless:
            del self._groups[group.key]


def key_of(pod: Pod) -> GroupKey | None:
    group = pod.spec.scheduling_group
    return (pod.metadata.namespace, group.pod_group_name) if group is not None and group.pod_group_name else None


def _matters(group: Group) -> object:
    """What of a PodGroup decides how its pods are placed."""
    return group.object is None, group.min_count, group.topology, group.is_whole


@dataclass(frozen=True, slots=True, eq=False)
class _Missing(Refusal):
    """Why a group does not get its places: what is missing, and, if it was tried, why the nodes do not do."""

    said: str = ""
    was_tried: bool = False

    def text(self, preemption: str = "") -> str:
        return f"{self.said}: {Refusal.text(self, preemption)}" if self.was_tried else self.said


@dataclass(frozen=True)
class Attempt:
    """What came of trying to place a group. Without bindings, `why` says what is missing."""

    group: Group
    bound: Sequence[tuple[Pod, str]] = ()
    unbound: Sequence[tuple[Pod, Refusal]] = ()
    why: str = ""


class Whole:
    """Places the pods of one round, groups as a whole; takes the place of `schedule`, and keeps what came of groups."""

    def __init__(self, groups: Groups) -> None:
        self._groups = groups
        self._attempts: dict[GroupKey, Attempt] = {}

    @property
    def attempts(self) -> Iterable[Attempt]:
        return self._attempts.values()

    def knows(self, group: Group) -> bool:
        """It was tried already."""
        return group.key in self._attempts

    def refuse(self, group: Group, refusal: Refusal) -> None:
        """A group gets no places, and is not to be tried."""
        self._attempts[group.key] = _refused(group, group.waiting.values(), refusal)

    def __call__(self, pending: Iterable[Pending], cluster: Cluster) -> Outcome:
        bound: list[tuple[Pod, str]] = []
        unbound: list[tuple[Pod, Refusal]] = []
        for group, some in stretches(pending, self._groups):
            if group is None:
                outcome = schedule(some, cluster)
                bound += outcome.bound
                unbound += outcome.unbound
                continue
            known = self._attempts.get(group.key)
            if known is None:
                known = self._attempts[group.key] = attempt(group, cluster)
                bound += known.bound
            asked = {pod.metadata.uid for pod, _ in some}
            unbound += [each for each in known.unbound if each[0].metadata.uid in asked]
        return Outcome(bound, unbound)


def stretches(pending: Iterable[Pending], groups: Groups) -> Iterator[tuple[Group | None, list[Pending]]]:
    """Pods of one group that follow each other, and pods without between them."""
    some: list[Pending] = []
    last: Group | None = None
    for each in pending:
        group = groups.whole(each[0])
        if group is not last and some:
            yield last, some
            some = []
        last = group
        some.append(each)
    if some:
        yield last, some


def attempt(group: Group, cluster: Cluster) -> Attempt:
    """Place the pods of a group, and leave them placed, if enough of them fit; else leave all as it was."""
    pods = in_order(group)
    if group.object is None:
        why = f'waiting for pod\'s pod group "{group.key[1]}" to appear in scheduling queue'
        return _refused(group, pods, _Missing({}, frozenset(), why))
    needed, there = group.needed, group.there
    if len(pods) < needed:
        why = f"{TOO_FEW}: {there + len(pods)}/{group.min_count} pods of the group are there"
        return _refused(group, pods, _Missing({}, frozenset(), why))
    if group.is_kept_room and (kept := _where_room_is(group, pods, cluster)) is not None:
        return kept
    best: tuple[int, Refusal] | None = None
    for place in placement.places(group.topology, pods, needed, group.bound.values(), cluster):
        with cluster.trial() as trial:
            outcome = schedule(placement.inside(pods, place), cluster)
            count = len(outcome.bound)
            if count >= max(needed, 1):
                trial.keep()
                return _given(group, pods, outcome, cluster)
        if best is None or count > best[0]:
            best = count, outcome.unbound[0][1]
    if best is None:
        why = placement.nowhere(group.topology)
        return _refused(group, pods, _Missing({}, frozenset(), why))
    return _refused(group, pods, _explained(group, *best))


def in_order(group: Group) -> list[Pending]:
    """Its pods that wait."""
    return sorted(group.waiting.values(), key=lambda each: order_of(*each))


def _where_room_is(group: Group, pods: Sequence[Pending], cluster: Cluster) -> Attempt | None:
    """Each on the node that is kept for it; the others elsewhere."""
    place = placement.kept(group.topology, pods, group.bound.values(), cluster)
    if place is False:
        return None
    with cluster.trial() as trial:
        bound = placement.put(placement.nominated(pods), cluster)
        there = {pod.metadata.uid for pod, _ in bound}
        rest = [each for each in pods if each[0].metadata.uid not in there]
        outcome = schedule(placement.inside(rest, place), cluster)
        if len(bound) + len(outcome.bound) < max(group.needed, 1):
            return None
        trial.keep()
        return _given(group, pods, Outcome([*bound, *outcome.bound], outcome.unbound), cluster)


def _given(group: Group, pods: Sequence[Pending], outcome: Outcome, cluster: Cluster) -> Attempt:
    """The pods as they are, not as they were narrowed to a place."""
    whole = {pod.metadata.uid: (pod, info) for pod, info in pods}
    bound = []
    for narrowed, node in outcome.bound:
        pod, info = whole[narrowed.metadata.uid]
        if narrowed is not pod:
            cluster.place(pod, node, info)
        bound.append((pod, node))
    unbound = [(whole[pod.metadata.uid][0], refusal) for pod, refusal in outcome.unbound]
    return Attempt(group, bound, unbound)


def _explained(group: Group, count: int, refusal: Refusal) -> Refusal:
    if not group.needed:
        return refusal
    many = f"{group.there + count}/{group.min_count} pods of the group can be placed{placement.told(group.topology)}"
    return _Missing(refusal.reasons, refusal.hopeless, many, was_tried=True)


def _refused(group: Group, pods: Iterable[Pending], refusal: Refusal) -> Attempt:
    return Attempt(group, unbound=[(pod, refusal) for pod, _ in pods], why=refusal.text())
