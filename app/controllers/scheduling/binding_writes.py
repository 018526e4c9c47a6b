"""Binding writes of the scheduler: pods to nodes, gangs with the condition of their PodGroup, and the events `Scheduled`.

`app.scheduler.gang_scheduling` decides. The bindings of a gang and its condition are one write set, however many they are: no
reader sees a part of them, and if one pod has changed meanwhile, all are placed anew. The events of many bindings follow when all
pods have their nodes: no pod waits for them.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from app.controllers.planned_write import PlannedWrite
from app.kinds.pod.pod import Pod
from app.kinds.scheduling.podgroup import DISRUPTED, SCHEDULED, PodGroup
from app.machinery.base import ObjectMeta
from app.machinery.meta.meta_condition import Condition, condition, with_condition
from app.plans.plan import Action, Emit, Plan, Update
from app.registry.verbs.binding import bound
from app.scheduler.gang_scheduling import GangAttempt
from app.store import Key

EVENTS = Key("scheduler", "", "events")
MAX_DEFERRED = 100_000  # events of bindings: more are not deferred further
SETS_TOGETHER = 10  # write sets of events: then pods that have come meanwhile are bound
DEFER_BY = timedelta(seconds=1)  # until it is checked again whether pods still wait


def bind_pods(pairs: Sequence[tuple[Pod, str]], now: datetime) -> tuple[Action, ...]:
    return tuple(Update(bound(pod, node, now), pod) for pod, node in pairs)


def scheduled_events(pairs: Iterable[tuple[Pod, str]]) -> tuple[Action, ...]:
    return tuple(_scheduled_event(pod, node) for pod, node in pairs)


def _scheduled_event(pod: Pod, node: str) -> Action:
    message = f"Successfully assigned {pod.metadata.namespace}/{pod.metadata.name} to {node}"
    return Emit("Normal", "Scheduled", message, pod, once=True)


def write_gang_attempt(
    attempt: GangAttempt, now: datetime, *, with_events: bool, volumes: tuple[Action, ...] = ()
) -> Iterable[PlannedWrite]:
    """One write; none if nothing has changed. `volumes`: what else is written with the bindings."""
    actions = bind_pods(attempt.bound, now) + volumes
    if attempt.group.object is not None and attempt.group.min_count:
        actions += _update_group(attempt, attempt.group.object, now)
    if with_events:
        actions += scheduled_events(attempt.bound)
    if actions:
        yield PlannedWrite(Plan(actions))


def _update_group(attempt: GangAttempt, group: PodGroup, now: datetime) -> tuple[Action, ...]:
    """Set the condition to the result. Once True it stays, whatever becomes of the pods."""
    conditions = group.status.conditions
    old, is_bound = condition(conditions, SCHEDULED), bool(attempt.bound)
    if is_bound:  # a gang that is scheduled anew is not disrupted any more
        conditions = tuple(each for each in conditions if each.type != DISRUPTED)
    if old is not None and (old.status == "True" or (not is_bound and old.message == attempt.message)):
        return () if conditions == group.status.conditions else _set_conditions(group, conditions)
    new = Condition(
        type=SCHEDULED,
        status="True" if is_bound else "False",
        observed_generation=group.metadata.generation,
        last_transition_time=now,
        reason="Scheduled" if is_bound else "Unschedulable",
        message=attempt.message,
    )
    return _set_conditions(group, with_condition(conditions, new))


def _set_conditions(group: PodGroup, conditions: tuple[Condition, ...]) -> tuple[Action, ...]:
    return (Update(replace(group, status=replace(group.status, conditions=conditions)), group),)


_POD = Pod()  # to make one takes ten times as long as to copy it


class _Binding(NamedTuple):
    """Facts of a bound pod for its `Scheduled` event. The pod itself may be deleted before the event is written."""

    namespace: str
    name: str
    uid: str
    resource_version: str
    node: str

    def event(self) -> Action:
        meta = ObjectMeta(
            name=self.name, namespace=self.namespace, uid=self.uid, resource_version=self.resource_version
        )
        return _scheduled_event(replace(_POD, metadata=meta), self.node)


class DeferredEvents:
    """Events of bindings that are committed without them. A binding may be refused: its event is written once it was seen."""

    def __init__(self) -> None:
        self._assumed: set[str] = set()  # UIDs
        self._bound: deque[_Binding] = deque()

    def defer(self, pods: Iterable[Pod]) -> None:
        """The pods are about to be bound."""
        self._assumed.update(pod.metadata.uid for pod in pods)

    def note_bound(self, pod: Pod) -> Sequence[Key]:
        """A pod was seen on a node. Returns what is to be reconciled."""
        meta = pod.metadata
        if meta.uid not in self._assumed:
            return ()
        self._assumed.remove(meta.uid)
        self._bound.append(_Binding(meta.namespace, meta.name, meta.uid, meta.resource_version, pod.spec.node_name))
        return (EVENTS,)

    def drop_assumed(self) -> None:
        """Bindings that have not been seen by now were refused."""
        self._assumed.clear()

    def write(self, now: datetime, batch: int, *, is_busy: bool) -> Iterator[PlannedWrite]:
        """Some write sets of `batch` events each. While pods wait for their bindings (`is_busy`), events wait."""
        left = SETS_TOGETHER if not is_busy else 0
        while self._bound and (left > 0 or len(self._bound) >= MAX_DEFERRED):
            left -= 1
            some = [self._bound.popleft() for _ in range(min(batch, len(self._bound)))]
            yield PlannedWrite(Plan(tuple(each.event() for each in some)))
        if self._bound:
            yield PlannedWrite(Plan(again_at=now + DEFER_BY if is_busy else now))
