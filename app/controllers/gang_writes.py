"""Writes of the scheduler about gangs: all bindings with the PodGroup's condition, or why there are none.

`app.scheduler.gangs` decides. The bindings of a group and its condition are one write set, however many they are: so
no moment shows a part of them, and one pod that has changed meanwhile means that all are placed anew.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from app.controllers.planned_write import PlannedWrite
from app.kinds.pod.pod import Pod
from app.kinds.scheduling.podgroup import DISRUPTED, SCHEDULED, PodGroup
from app.machinery.meta_condition import Condition, condition, with_condition
from app.plans.plan import Action, Emit, Plan, Update
from app.registry.binding import bound
from app.scheduler.gang_scheduling import Attempt


def bindings(pairs: Sequence[tuple[Pod, str]], now: datetime) -> tuple[Action, ...]:
    """Pods go to nodes."""
    return tuple(Update(bound(pod, node, now), pod) for pod, node in pairs)


def scheduled(pairs: Iterable[tuple[Pod, str]]) -> tuple[Action, ...]:
    """The events that say so."""
    return tuple(Emit("Normal", "Scheduled", _where(pod, node), pod, once=True) for pod, node in pairs)


def _where(pod: Pod, node: str) -> str:
    return f"Successfully assigned {pod.metadata.namespace}/{pod.metadata.name} to {node}"


def attempted(attempt: Attempt, now: datetime, *, with_events: bool) -> Iterable[PlannedWrite]:
    """Nothing if there is nothing new to say."""
    actions = bindings(attempt.bound, now)
    if attempt.group.object is not None and attempt.group.min_count:
        actions += _said(attempt, attempt.group.object, now)
    if with_events:
        actions += scheduled(attempt.bound)
    if actions:
        yield PlannedWrite(Plan(actions))


def _said(attempt: Attempt, group: PodGroup, now: datetime) -> tuple[Action, ...]:
    """The condition follows what was found out. A group that has its places keeps its word: only replacements wait."""
    known = group.status.conditions
    old, is_bound = condition(known, SCHEDULED), bool(attempt.bound)
    if is_bound:  # what has its places anew is not about to lose them
        known = tuple(each for each in known if each.type != DISRUPTED)
    is_said = old is not None and (old.status == "True") is is_bound and old.message == attempt.why
    if attempt.group.was_scheduled or (is_said and known == group.status.conditions):
        return ()
    new = Condition(
        type=SCHEDULED,
        status="True" if is_bound else "False",
        observed_generation=group.metadata.generation,
        last_transition_time=now,
        reason="Scheduled" if is_bound else "Unschedulable",
        message=attempt.why,
    )
    status = replace(group.status, conditions=with_condition(known, new))
    return (Update(replace(group, status=status), group),)
