"""Pending pods of a Job: why a pod is not placed or does not start, as an event of its Job. Pure.

Called by `app.controllers.batch.job_pending_pods`. Whoever watches only the Job learns there what `describe pod` says, once for
each cause: the first pod that has it stands for all. Quotas of queues have an event of their own, `Pending`.
"""

from collections.abc import Iterator

import msgspec

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod, condition
from app.plans.plan import Emit

OF_QUEUES = "queue "  # with which the scheduler's messages about quotas begin
START_FAILURES = frozenset({
    "ErrImagePull",
    "ImagePullBackOff",
    "ErrImageNeverPull",
    "InvalidImageName",
    "CreateContainerConfigError",
    "CreateContainerError",
    "RunContainerError",
})  # fmt: skip
_MOST_CHARACTERS = 700  # of what the scheduler or the node says


class Cause(msgspec.Struct, frozen=True):
    """Cause of a pending pod. Causes of one key are reported once for a Job."""

    key: str
    reason: str  # of the event
    message: str


def find_causes(pod: Pod) -> Iterator[Cause]:
    """Return why this pod is pending; nothing if it is not, or not for long."""
    if pod.status.phase not in ("", "Pending") or pod.metadata.deletion_timestamp is not None:
        return
    scheduled = condition(pod.status.conditions, "PodScheduled")
    if scheduled is not None and scheduled.reason == "Unschedulable" and not scheduled.message.startswith(OF_QUEUES):
        text = f"Pod {pod.metadata.name} is not placed: {scheduled.message[:_MOST_CHARACTERS]}"
        yield Cause("Unschedulable", "PodUnschedulable", text)
    for status in (*pod.status.init_container_statuses, *pod.status.container_statuses):
        waiting = status.state.waiting if status.state is not None else None
        if waiting is not None and waiting.reason in START_FAILURES:
            text = f"Container {status.name} of pod {pod.metadata.name} does not start: {waiting.reason}"
            message = f"{text}: {waiting.message[:_MOST_CHARACTERS]}" if waiting.message else text
            yield Cause(f"{status.name}/{waiting.reason}", "PodStartFailed", message)


def event_of(cause: Cause, job: Job) -> Emit:
    return Emit("Warning", cause.reason, cause.message, job)
