"""What the scheduler writes about pods that no node takes: why, what is kept for them, and who goes for them.

`app.plans.scheduling.preemption` decides. The victims, the event on each and the pod that they go for are one write set: so
nobody goes for a pod that has changed, or is gone.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.controllers.work import Work
from app.kinds.base import Condition
from app.kinds.pod import Pod, condition
from app.plans.plan import Action, Delete, Emit, Plan, Update
from app.plans.scheduling.preemption import Verdict
from app.registry.binding import with_condition

SAY_AGAIN = timedelta(seconds=15)  # how often a pod that stays pending is told a changed reason


def told(verdict: Verdict, now: datetime, pace: timedelta = SAY_AGAIN) -> Work | None:
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
    return Work(Plan(tuple(actions)))


def _is_news(pod: Pod, why: str, now: datetime, pace: timedelta) -> bool:
    """At once, and again when the reason has changed for a while."""
    said = condition(pod.status.conditions, "PodScheduled")
    if said is None or said.status != "False" or not why:
        return bool(why)
    since = said.last_probe_time or said.last_transition_time
    return said.message != why and (since is None or now - since >= pace)


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
    by = f"Preempted by pod {verdict.pod.metadata.uid}"
    if verdict.node:
        message = "default-scheduler: preempting to accommodate a higher priority pod"
        why = f"{by} on node {verdict.node}"
    else:
        message = f"default-scheduler: preempting to return quota to namespace {verdict.pod.metadata.namespace}"
        why = f"{by}: the quota that it used was lent by namespace {verdict.pod.metadata.namespace}"
    target = Condition(
        type="DisruptionTarget",
        status="True",
        reason="PreemptionByScheduler",
        message=message,
        last_transition_time=now,
    )
    yield Delete(with_condition(victim, target), victim)
    yield Emit("Normal", "Preempted", why, victim)
