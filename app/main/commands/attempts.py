"""Attempts of a Job: what its pods, or the record of a Job that is gone, tell of each run. Read by `job_words` and commands.

Pure. The fields are those of `attempts` in a JobRecord, so that pods and records are told in the same words.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from app.kinds.pod.container import ContainerStateTerminated, ContainerStatus
from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_annotations import MAIN_CONTAINER
from app.machinery.base import Time
from app.machinery.conditions import condition

COMPLETION_INDEX = "batch.kubernetes.io/job-completion-index"
DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
FAILED, SUCCEEDED, PENDING, RUNNING = "Failed", "Succeeded", "Pending", "Running"


class Attempt(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One pod of a Job. `reason` and `message`: why it waits, or how it ended."""

    pod: str
    pod_uid: str = msgspec.field(default="", name="podUID")
    index: int | None = None
    node: str | None = None
    created_at: Time | None = None
    started_at: Time | None = None
    ended_at: Time | None = None
    phase: str = PENDING
    exit_code: int | None = None
    reason: str | None = None
    message: str | None = None
    peak_memory_bytes: int | None = None
    output: Any = None


def attempt_of(pod: Pod) -> Attempt:
    """Return what a pod tells of its attempt."""
    status = main_status(pod)
    ended = status.state.terminated if status and status.state else None
    reason, message = _explain(pod, status, ended)
    running = status.state.running if status and status.state else None
    return Attempt(
        pod=pod.metadata.name,
        pod_uid=pod.metadata.uid,
        index=index_of(pod),
        node=pod.spec.node_name or None,
        created_at=pod.metadata.creation_timestamp,
        started_at=ended.started_at if ended else running.started_at if running else None,
        ended_at=ended.finished_at if ended and pod.status.phase in (FAILED, SUCCEEDED) else None,
        phase=pod.status.phase or PENDING,
        exit_code=ended.exit_code if ended else None,
        reason=reason or None,
        message=message or None,
    )


def main_container(pod: Pod) -> str:
    """Return the container that speaks for the pod: the one that an annotation names, else the first."""
    names = [each.name for each in pod.spec.containers]
    asked = [pod.metadata.annotations.get(key, "") for key in (MAIN_CONTAINER, DEFAULT_CONTAINER)]
    return next((each for each in (*asked, *names) if each in names), "")


def main_status(pod: Pod) -> ContainerStatus | None:
    """Return the status of the container that failed first, else of the main one."""
    statuses = pod.status.container_statuses
    failed = [each for each in statuses if each.state and each.state.terminated and each.state.terminated.exit_code]
    return next(
        iter(
            sorted(
                failed, key=lambda each: str(each.state and each.state.terminated and each.state.terminated.finished_at)
            )
        ),
        next((each for each in statuses if each.name == main_container(pod)), None),
    )


def index_of(pod: Pod) -> int | None:
    """Return the completion index of a pod of an Indexed Job."""
    text = pod.metadata.annotations.get(COMPLETION_INDEX, "")
    return int(text) if text.isdecimal() else None


def _explain(pod: Pod, status: ContainerStatus | None, ended: ContainerStateTerminated | None) -> tuple[str, str]:
    """Return reason and message: of the pod, else of its end, of its container's wait, or of its placement."""
    if pod.status.reason:
        return pod.status.reason, pod.status.message
    if ended:
        return ended.reason, ended.message
    waiting = status.state.waiting if status and status.state else None
    if waiting and waiting.reason:
        return waiting.reason, waiting.message
    placed = condition(pod.status.conditions, "PodScheduled")
    if placed and placed.status == "False":
        return placed.reason, placed.message
    return "", ""


def in_order(attempts: Iterable[Attempt]) -> list[Attempt]:
    """Sort by creation, then by index."""
    return sorted(attempts, key=lambda each: (str(each.created_at), each.index or 0, each.pod))


def last_failure(attempts: Iterable[Attempt]) -> Attempt | None:
    """Return the failed attempt that ended last."""
    failed = [each for each in attempts if each.phase == FAILED]
    return max(failed, key=lambda each: (str(each.ended_at or each.created_at), each.pod), default=None)
