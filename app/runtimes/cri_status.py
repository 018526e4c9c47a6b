"""How a container fares, from an engine's word to ours."""

from datetime import UTC, datetime
from typing import Literal

from cri_api.v1 import api_pb2 as pb

from app.runtimes.base import ContainerKey, ContainerStatus

UNKNOWN = "ContainerStatusUnknown"
LOST = "the container engine does not know how the container ended"
MISSING, NOT_EXECUTABLE, NOT_STARTED = 127, 126, 128
_MISSING = ("executable file not found", "no such file or directory")
_NOT_EXECUTABLE = ("permission denied", "exec format error", "is a directory")


def start_code(message: str) -> int:
    """The exit code of what could not be started, by what the engine says about it."""
    if any(text in message for text in _MISSING):
        return MISSING
    if any(text in message for text in _NOT_EXECUTABLE):
        return NOT_EXECUTABLE
    return NOT_STARTED


def status_of(key: ContainerKey, found: pb.ContainerStatus, last_words: str) -> ContainerStatus:
    """`last_words`: its termination message."""
    state: Literal["created", "running", "exited"] = "exited"
    if found.state in (pb.CONTAINER_CREATED, pb.CONTAINER_RUNNING):
        state = "created" if found.state == pb.CONTAINER_CREATED else "running"
        return ContainerStatus(key=key, state=state, id=found.id, started_at=moment(found.started_at))
    reason, message = _reason(found), found.message
    if reason == UNKNOWN:
        code, message = None, message or LOST
    else:
        code = start_code(message) if reason == "StartError" else found.exit_code
    return ContainerStatus(
        key=key,
        state=state,
        id=found.id,
        started_at=moment(found.started_at),
        finished_at=moment(max(found.started_at, found.finished_at)),
        exit_code=code,
        reason=reason,
        message=message,
        termination_message=last_words,
    )


def _reason(found: pb.ContainerStatus) -> str:
    if found.state == pb.CONTAINER_UNKNOWN or found.reason == "Unknown":
        return UNKNOWN  # containerd was told to end before it had noted down the exit: it says 255
    return found.reason or ("Error" if found.exit_code else "Completed")


def moment(nanoseconds: int) -> datetime | None:
    """In whole seconds; None for 0."""
    return datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC) if nanoseconds > 0 else None
