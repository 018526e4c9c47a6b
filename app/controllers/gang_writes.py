"""What the scheduler writes about groups of pods: all of its bindings with the PodGroup's condition, or why there are none.

`app.plans.scheduling.gangs` decides. The bindings of a group and its condition are one write set, however many they are: so
no moment shows a part of them, and one pod that has changed meanwhile means that all are placed anew.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime

from msgspec.structs import replace

from app.controllers.work import Work
from app.kinds.meta_condition import Condition, condition, with_condition
from app.kinds.pod import Pod
from app.kinds.podgroup import SCHEDULED, PodGroup
from app.plans.plan import Action, Emit, Plan, Update
from app.plans.scheduling.gangs import Attempt
from app.registry.binding import bound


def bindings(pairs: Sequence[tuple[Pod, str]], now: datetime) -> tuple[Action, ...]:
    """Pods go to nodes, with an event each."""
    updates = [Update(bound(pod, node, now), pod) for pod, node in pairs]
    return (*updates, *(_scheduled(pod, node) for pod, node in pairs))


def _scheduled(pod: Pod, node: str) -> Emit:
    name = f"{pod.metadata.namespace}/{pod.metadata.name}"
    return Emit("Normal", "Scheduled", f"Successfully assigned {name} to {node}", pod)


def attempted(attempt: Attempt, now: datetime) -> Iterable[Work]:
    """Nothing if there is nothing new to say."""
    actions = bindings(attempt.bound, now)
    if attempt.group.object is not None and attempt.group.min_count:
        actions += _said(attempt, attempt.group.object, now)
    if actions:
        yield Work(Plan(actions))


def _said(attempt: Attempt, group: PodGroup, now: datetime) -> tuple[Action, ...]:
    """The condition follows what was found out. A group that has its places keeps its word: only replacements wait."""
    old = condition(group.status.conditions, SCHEDULED)
    if attempt.group.was_scheduled or (
        old is not None and (old.status == "True") is bool(attempt.bound) and old.message == attempt.why
    ):
        return ()
    new = Condition(
        type=SCHEDULED,
        status="True" if attempt.bound else "False",
        observed_generation=group.metadata.generation,
        last_transition_time=now,
        reason="Scheduled" if attempt.bound else "Unschedulable",
        message=attempt.why,
    )
    status = replace(group.status, conditions=with_condition(group.status.conditions, new))
    return (Update(replace(group, status=status), group),)
