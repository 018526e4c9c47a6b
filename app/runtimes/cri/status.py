"""Container status, from a CRI engine's word to ours."""

import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal

from app.runtimes.base import ContainerKey, ContainerStatus
from app.runtimes.cri.messages import pb
from app.runtimes.engine.status import LOST, UNKNOWN, start_code

_UNMADE = "failed to create containerd task"  # and what was not made was not started
# By an end of containerd or of its client.
_CUT_SHORT = (
    "already exists",
    "context canceled",
    "failed to start io pipe copy",
    "failed to start shim: mkdir",  # which is there
    "signal: killed",
    "ttrpc: closed",
)
# What runc says in the container's place, if whoever was to let it go is killed at the very moment.
_NOT_LET_GO = re.compile(rb"write exec fifo[^\n]*: broken pipe\n")
_SANDBOX_ENDED = re.compile(r'sandbox container "\w+" is not running')
OUTPUT_LIMIT = 1024  # bytes in which that is said


def never_began(message: str) -> bool:
    """Whether a container could not be started for a reason that is the engine's alone, and so may be made anew."""
    is_unmade = _UNMADE in message and any(text in message for text in _CUT_SHORT)
    is_unmade = is_unmade or _SANDBOX_ENDED.fullmatch(message) is not None
    return is_unmade or _NOT_LET_GO.search(message.encode() + b"\n") is not None


def was_not_let_go(output: bytes) -> bool:
    """Whether all that a container has written, up to OUTPUT_LIMIT, are words of the engine."""
    return _NOT_LET_GO.fullmatch(output) is not None


def was_started(message: str) -> bool:
    """Whether a container cannot be started for the reason that it was: somebody who died had asked for it."""
    return "container is in CONTAINER_" in message


def ran(found: pb.ContainerStatus) -> bool:
    """Whether it came to an end of its own, as far as the engine knows."""
    return found.state == pb.CONTAINER_EXITED and found.reason != "StartError" and _reason(found) != UNKNOWN


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


def with_code(status: ContainerStatus, code: int | None) -> ContainerStatus:
    """If the engine does not know how it ended, and we heard it."""
    if status.reason != UNKNOWN or code is None:
        return status
    return replace(status, exit_code=code, reason="Error" if code else "Completed", message="")


def _reason(found: pb.ContainerStatus) -> str:
    if found.state == pb.CONTAINER_UNKNOWN or found.reason == "Unknown":
        return UNKNOWN  # containerd was told to end before it had noted down the exit: it says 255
    if found.exit_code < 0:
        return UNKNOWN  # as CRI-O puts it
    return found.reason or ("Error" if found.exit_code else "Completed")


def moment(nanoseconds: int) -> datetime | None:
    """In whole seconds; None for 0."""
    return datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC) if nanoseconds > 0 else None
