"""Writes of the scheduler about pods that no node takes: why, the nominated node, and the victims.

`app.scheduler.preemption` decides. The victims, the event on each and the pod that they go for are one write set: so
nobody goes for a pod that has changed, or is gone.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.controllers.planned_write import PlannedWrite
from app.kinds.pod.pod import Pod, condition
from app.kinds.scheduling.podgroup import DISRUPTED, PodGroup
from app.machinery.base import Condition
from app.machinery.meta_condition import Condition as GroupCondition
from app.machinery.meta_condition import with_condition as with_group_condition
from app.plans.plan import Action, Delete, Emit, Plan, Update
from app.registry.binding import with_condition
from app.scheduler.gang_scheduling import GroupKey
from app.scheduler.scheduling_round import Verdict

BY_SCHEDULER = "PreemptionByScheduler"  # a reason
SAY_AGAIN = timedelta(seconds=15)  # how often a pod that stays pending is told a changed reason


def all_told(verdicts: Iterable[Verdict], now: datetime) -> Iterator[tuple[Sequence[Verdict], PlannedWrite]]:
    """What is new, by what is one write set: a pod, or all of a gang that room is kept for."""
    gangs: dict[GroupKey, list[Verdict]] = {}
    for verdict in verdicts:
        if verdict.gang is not None:
            gangs.setdefault(verdict.gang, []).append(verdict)
        elif work := told(verdict, now):
            yield [verdict], work
    for some in gangs.values():
        works = (told(verdict, now) for verdict in some)
        if actions := tuple(action for work in works if work is not None for action in work.plan.actions):
            yield some, PlannedWrite(Plan(actions))


def told(verdict: Verdict, now: datetime, pace: timedelta = SAY_AGAIN) -> PlannedWrite | None:
    """Nothing if there is nothing new to say, or the last word was said less than `pace` ago."""
    pod = verdict.pod
    waits = _waiting(pod, verdict.why, now) if _is_news(pod, verdict.why, now, pace) else pod
    if waits.status.nominated_node_name != verdict.node:
        waits = replace(waits, status=replace(waits.status, nominated_node_name=verdict.node))
    if waits is pod and not verdict.victims:
        return None
    actions: list[Action] = [Update(waits, pod)]
    if condition(waits.status.conditions, "PodScheduled") is not condition(pod.status.conditions, "PodScheduled"):
        actions.append(Emit("Warning", "FailedScheduling", verdict.why, pod))
    for victim in verdict.victims:
        actions += _preempted(victim, verdict, now)
    actions += (_disrupted(group, verdict, now) for group in verdict.disrupted)
    return PlannedWrite(Plan(tuple(actions)))


def _is_news(pod: Pod, why: str, now: datetime, pace: timedelta) -> bool:
    """At once, and again when the reason has changed for a while."""
    said = condition(pod.status.conditions, "PodScheduled")
    if said is None or said.status != "False" or not why:
        return bool(why)
    return said.message != why and sayable_at(pod, why, now, pace) is None


def sayable_at(pod: Pod, why: str, now: datetime, pace: timedelta = SAY_AGAIN) -> datetime | None:
    """When the pod may be told this, if that is not now. None also if it has been told."""
    said = condition(pod.status.conditions, "PodScheduled")
    if said is None or said.status != "False" or not why or said.message == why:
        return None
    since = said.last_probe_time or said.last_transition_time
    return since + pace if since is not None and now - since < pace else None


def _waiting(pod: Pod, why: str, now: datetime) -> Pod:
    said = condition(pod.status.conditions, "PodScheduled")
    unschedulable = Condition(
        type="PodScheduled",
        status="False",
        reason="Unschedulable",
        message=why,
        last_probe_time=now,
        last_transition_time=said.last_transition_time if said is not None and said.status == "False" else now,
    )
    return with_condition(pod, unschedulable)


def _preempted(victim: Pod, verdict: Verdict, now: datetime) -> Iterable[Action]:
    """It ends with its own grace, and as a disruption: so a Job's failure policy can tell."""
    target = Condition(
        type=DISRUPTED, status="True", reason=BY_SCHEDULER, message=_purpose(verdict), last_transition_time=now
    )
    yield Delete(with_condition(victim, target), victim)
    yield Emit("Normal", "Preempted", _preemptor(verdict, victim), victim)


def _disrupted(group: PodGroup, verdict: Verdict, now: datetime) -> Action:
    """All of its pods go."""
    target = GroupCondition(
        type=DISRUPTED,
        status="True",
        observed_generation=group.metadata.generation,
        last_transition_time=now,
        reason=BY_SCHEDULER,
        message=_purpose(verdict),
    )
    conditions = with_group_condition(group.status.conditions, target)
    return Update(replace(group, status=replace(group.status, conditions=conditions)), group)


def _purpose(verdict: Verdict) -> str:
    if verdict.gang is not None:
        return "default-scheduler: preempting to accommodate a higher priority pod group"
    if verdict.node:
        return "default-scheduler: preempting to accommodate a higher priority pod"
    return f"default-scheduler: preempting to return quota to namespace {verdict.pod.metadata.namespace}"


def _preemptor(verdict: Verdict, victim: Pod) -> str:
    if verdict.gang is not None:
        return f"Preempted by pod group {'/'.join(verdict.gang)} on node {victim.spec.node_name}"
    by = f"Preempted by pod {verdict.pod.metadata.uid}"
    if verdict.node:
        return f"{by} on node {verdict.node}"
    return f"{by}: the quota that it used was lent by namespace {verdict.pod.metadata.namespace}"
