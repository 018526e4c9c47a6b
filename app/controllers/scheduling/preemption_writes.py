"""Preemption writes of the scheduler: conditions and nominated nodes of pods that fit nowhere, and the eviction of victims.

`app.scheduler.scheduling_round` decides. The victims, the event on each and the pod that they are evicted for are one write
set: no pod is evicted for one that has changed, or is gone. The message of a condition changes at most every 15 seconds.
"""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime, timedelta

from msgspec.structs import replace

from app.controllers.planned_write import PlannedWrite
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod, condition
from app.kinds.scheduling.podgroup import DISRUPTED, PodGroup
from app.machinery.base import Condition
from app.machinery.meta.meta_condition import Condition as GroupCondition
from app.machinery.meta.meta_condition import with_condition as with_group_condition
from app.plans.plan import Action, Delete, Emit, Plan, Update, earliest
from app.registry.verbs.binding import with_condition
from app.scheduler.fit_hints import without_hint
from app.scheduler.gang_scheduling import PodGroupKey
from app.scheduler.scheduling_round import PostFilterResult
from app.store import Key

PREEMPTION_BY_SCHEDULER = "PreemptionByScheduler"  # a reason
REPORT_INTERVAL = timedelta(seconds=15)  # between changes of the message of a pod that stays pending
HINT_INTERVAL = timedelta(minutes=5)  # between changes of what would have to change, if the reasons stay the same


def write_results(
    results: Iterable[PostFilterResult], now: datetime
) -> Iterator[tuple[Sequence[PostFilterResult], PlannedWrite]]:
    """The results that change something, with their write set: one for a pod, or for a gang with nominated nodes."""
    gangs: dict[PodGroupKey, list[PostFilterResult]] = {}
    for result in results:
        if result.gang is not None:
            gangs.setdefault(result.gang, []).append(result)
        elif write := write_result(result, now):
            yield [result], write
    for gang in gangs.values():
        writes = (write_result(result, now) for result in gang)
        if actions := tuple(action for write in writes if write is not None for action in write.plan.actions):
            yield gang, PlannedWrite(Plan(actions))


def write_result(result: PostFilterResult, now: datetime, interval: timedelta = REPORT_INTERVAL) -> PlannedWrite | None:
    """None if nothing has changed, or only the message, and less than `interval` ago."""
    pod = result.pod
    is_due = _is_report_due(pod, result.message, now, interval)
    pending = _set_unschedulable(pod, result.message, now) if is_due else pod
    if pending.status.nominated_node_name != result.nominated_node:
        pending = replace(pending, status=replace(pending.status, nominated_node_name=result.nominated_node))
    if pending is pod and not result.victims:
        return None
    actions: list[Action] = [Update(pending, pod)]
    if condition(pending.status.conditions, "PodScheduled") is not condition(pod.status.conditions, "PodScheduled"):
        actions.append(Emit("Warning", "FailedScheduling", result.message, pod))
    for victim in result.victims:
        actions += _evict(victim, result, now)
    actions += (_disrupt_group(group, result, now) for group in result.disrupted_groups)
    return PlannedWrite(Plan(tuple(actions)))


def _is_report_due(pod: Pod, message: str, now: datetime, interval: timedelta) -> bool:
    """At once, and again for another message after the interval."""
    reported = condition(pod.status.conditions, "PodScheduled")
    if reported is None or reported.status != "False" or not message:
        return bool(message)
    if reported.message != message and without_hint(reported.message) == without_hint(message):
        since = reported.last_probe_time or reported.last_transition_time
        return since is None or now - since >= HINT_INTERVAL
    return reported.message != message and _next_report_at(pod, message, now, interval) is None


def _next_report_at(pod: Pod, message: str, now: datetime, interval: timedelta = REPORT_INTERVAL) -> datetime | None:
    """Return when the message may be reported, if that is not now. None also if it was reported, or only the hint differs."""
    reported = condition(pod.status.conditions, "PodScheduled")
    if (
        reported is None
        or reported.status != "False"
        or not message
        or without_hint(reported.message) == without_hint(message)
    ):
        return None
    since = reported.last_probe_time or reported.last_transition_time
    return since + interval if since is not None and now - since < interval else None


def _set_unschedulable(pod: Pod, message: str, now: datetime) -> Pod:
    old = condition(pod.status.conditions, "PodScheduled")
    unschedulable = Condition(
        type="PodScheduled",
        status="False",
        reason="Unschedulable",
        message=message,
        last_probe_time=now,
        last_transition_time=old.last_transition_time if old is not None and old.status == "False" else now,
    )
    return with_condition(pod, unschedulable)


def _evict(victim: Pod, result: PostFilterResult, now: datetime) -> Iterable[Action]:
    """With its own grace period, and the condition DisruptionTarget, which a Job's podFailurePolicy may match."""
    target = Condition(
        type=DISRUPTED,
        status="True",
        reason=PREEMPTION_BY_SCHEDULER,
        message=_target_message(result),
        last_transition_time=now,
    )
    yield Delete(with_condition(victim, target), victim)
    yield Emit("Normal", "Preempted", _event_message(result, victim), victim)


def _disrupt_group(group: PodGroup, result: PostFilterResult, now: datetime) -> Action:
    """All pods of the PodGroup are evicted."""
    target = GroupCondition(
        type=DISRUPTED,
        status="True",
        observed_generation=group.metadata.generation,
        last_transition_time=now,
        reason=PREEMPTION_BY_SCHEDULER,
        message=_target_message(result),
    )
    conditions = with_group_condition(group.status.conditions, target)
    return Update(replace(group, status=replace(group.status, conditions=conditions)), group)


def _target_message(result: PostFilterResult) -> str:
    if result.gang is not None:
        return "default-scheduler: preempting to accommodate a higher priority pod group"
    if result.nominated_node:
        return "default-scheduler: preempting to accommodate a higher priority pod"
    return f"default-scheduler: preempting to return quota to namespace {result.pod.metadata.namespace}"


def _event_message(result: PostFilterResult, victim: Pod) -> str:
    if result.gang is not None:
        return f"Preempted by pod group {'/'.join(result.gang)} on node {victim.spec.node_name}"
    by = f"Preempted by pod {result.pod.metadata.uid}"
    if result.nominated_node:
        return f"{by} on node {result.nominated_node}"
    return f"{by}: the quota that it used was lent by namespace {result.pod.metadata.namespace}"


class PendingReports:
    """Pods whose message changed too soon after the last report: tried again when it is due, they report what holds then."""

    def __init__(self) -> None:
        self._due_at: dict[Key, datetime] = {}

    def add(self, results: Iterable[PostFilterResult], now: datetime) -> None:
        for result in results:
            due_at = _next_report_at(result.pod, result.message, now)
            if due_at is not None:
                meta = result.pod.metadata
                self._due_at[Key(PODS.resource, meta.namespace, meta.name)] = due_at

    def pop_due(self, now: datetime) -> list[Key]:
        found = [key for key, due_at in self._due_at.items() if due_at <= now]
        for key in found:
            del self._due_at[key]
        return found

    def next_due_at(self) -> datetime | None:
        return earliest(self._due_at.values())
