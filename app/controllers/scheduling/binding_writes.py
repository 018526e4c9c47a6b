"""Binding writes of the scheduler: pods to nodes, gangs with the condition of their PodGroup, and the events `Scheduled`.

`app.scheduler.gang_scheduling` decides. The bindings of a gang and its condition are one write set, however many they are: no
reader sees a part of them, and if one pod has changed meanwhile, all are placed anew. The events of many bindings follow when all
pods have their nodes: no pod waits for them.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.controllers.planned_write import PlannedWrite
from app.kinds.pod.pod import Pod
from app.kinds.scheduling.podgroup import DISRUPTED, SCHEDULED, PodGroup
from app.machinery.meta.meta_condition import Condition, condition, with_condition
from app.plans.plan import Action, Emit, Plan, Update
from app.registry.verbs.binding import bound
from app.scheduler.gang_scheduling import GangAttempt
from app.store import Key

EVENTS = Key("scheduler", "", "events")
MAX_DEFERRED = 20_000  # events of bindings: more are not deferred further
DEFER_BY = timedelta(seconds=1)  # until it is checked again whether pods still wait


def bind_pods(pairs: Sequence[tuple[Pod, str]], now: datetime) -> tuple[Action, ...]:
    return tuple(Update(bound(pod, node, now), pod) for pod, node in pairs)


def scheduled_events(pairs: Iterable[tuple[Pod, str]]) -> tuple[Action, ...]:
    return tuple(Emit("Normal", "Scheduled", _event_message(pod, node), pod, once=True) for pod, node in pairs)


def _event_message(pod: Pod, node: str) -> str:
    return f"Successfully assigned {pod.metadata.namespace}/{pod.metadata.name} to {node}"


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


class DeferredEvents:
    """Events of bindings that are committed without them. A binding may be refused: its event is written once it was seen."""

    def __init__(self) -> None:
        self._assumed: set[str] = set()  # UIDs
        self._bound: list[Pod] = []

    def defer(self, pods: Iterable[Pod]) -> None:
        """The pods are about to be bound."""
        self._assumed.update(pod.metadata.uid for pod in pods)

    def note_bound(self, pod: Pod) -> list[Key]:
        """A pod was seen on a node. Returns what is to be reconciled."""
        if pod.metadata.uid not in self._assumed:
            return []
        self._assumed.remove(pod.metadata.uid)
        self._bound.append(pod)
        return [EVENTS]

    def drop_assumed(self) -> None:
        """Bindings that have not been seen by now were refused."""
        self._assumed.clear()

    def write(self, now: datetime, batch: int, *, is_busy: bool) -> list[PlannedWrite]:
        """Write sets of `batch` events each. While pods wait for their bindings (`is_busy`), events wait."""
        if is_busy and len(self._bound) < MAX_DEFERRED:
            return [PlannedWrite(Plan(again_at=now + DEFER_BY))]
        emits = scheduled_events((pod, pod.spec.node_name) for pod in self._bound)
        self._bound.clear()
        return [PlannedWrite(Plan(emits[n : n + batch])) for n in range(0, len(emits), batch)]
