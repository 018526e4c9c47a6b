"""Attempts of a Job: what its pods, or the record of a Job that is gone, tell of each run. Read by `job_words` and commands.

Pure. An attempt is that of `app.plans.jobs.job_record`, so that pods and records are told in the same words; of a pod that has
not ended, `reason` and `message` say here why it waits.
"""

from collections.abc import Iterable

from msgspec.structs import replace

from app.kinds.pod.container import ContainerStatus
from app.kinds.pod.pod import Pod, is_terminal
from app.kinds.pod.pod_annotations import MAIN_CONTAINER
from app.machinery.meta.conditions import condition
from app.plans.jobs import job_record
from app.plans.jobs.indexes import index_of
from app.plans.jobs.job_record import Attempt

__all__ = ["Attempt", "attempt_of", "has_log", "in_order", "index_of", "last_failure", "main_container"]

DEFAULT_CONTAINER = "kubectl.kubernetes.io/default-container"
FAILED, SUCCEEDED, PENDING, RUNNING = "Failed", "Succeeded", "Pending", "Running"


def attempt_of(pod: Pod) -> Attempt:
    """Return what a pod tells of its attempt."""
    found = job_record.attempt_of(pod)
    if is_terminal(pod):
        return replace(found, output=job_record.parse_output(found.message))
    status = main_status(pod)
    running = status.state.running if status and status.state else None
    reason, message = _explain_wait(pod, status)
    return replace(
        found,
        phase=pod.status.phase or PENDING,
        started_at=running.started_at if running else None,
        reason=reason,
        message=message,
    )


def main_container(pod: Pod) -> str:
    """Return the container that speaks for the pod: the one that an annotation names, else the first."""
    names = [each.name for each in pod.spec.containers]
    asked = [pod.metadata.annotations.get(key, "") for key in (MAIN_CONTAINER, DEFAULT_CONTAINER)]
    return next((each for each in (*asked, *names) if each in names), "")


def main_status(pod: Pod) -> ContainerStatus | None:
    """Return the status of the container that speaks for the pod."""
    name = main_container(pod)
    return next((each for each in pod.status.container_statuses if each.name == name), None)


def has_log(pod: Pod) -> bool:
    """Return whether the container that speaks for the pod runs or has run."""
    status = main_status(pod)
    return bool(status and status.state and (status.state.running or status.state.terminated))


def _explain_wait(pod: Pod, status: ContainerStatus | None) -> tuple[str, str]:
    """Return reason and message of the container's wait, or of the placement."""
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
