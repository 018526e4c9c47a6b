"""Container status, from a Docker Engine's answer. Called by `containers`."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

from app.runtimes.base import ContainerKey, ContainerStatus
from app.runtimes.engine.errors import LOST, UNKNOWN, start_code

_NEVER = "0001-01-01"
_RUNS = ("running", "paused", "restarting", "stopping")


def status_of(key: ContainerKey, found: Mapping[str, Any], failure: str, termination_message: str) -> ContainerStatus:
    """`failure`: message of a start that failed."""
    state, id_ = found["State"], str(found["Id"])
    began, ended = moment(state.get("StartedAt", "")), moment(state.get("FinishedAt", ""))
    if state["Status"] in _RUNS:
        return ContainerStatus(key=key, state="running", id=id_, started_at=began)
    if failure:
        made = moment(found.get("Created", ""))
        return ContainerStatus(
            key=key,
            state="exited",
            id=id_,
            finished_at=made,
            exit_code=start_code(failure),
            reason="StartError",
            message=failure,
        )
    if began is None:  # also one that the engine itself failed to start, unknown to an agent
        return ContainerStatus(key=key, state="created", id=id_)
    status = ContainerStatus(
        key=key,
        state="exited",
        id=id_,
        started_at=began,
        finished_at=max(began, ended) if ended else None,
        exit_code=int(state["ExitCode"]),
        reason=reason_of(int(state["ExitCode"]), is_oom=bool(state.get("OOMKilled"))),
        termination_message=termination_message,
    )
    return status if ended else unknown(status)  # it was gone when the engine came back


def unknown(status: ContainerStatus) -> ContainerStatus:
    """The same, but that its exit code is unknown."""
    return replace(status, exit_code=None, reason=UNKNOWN, message=LOST)


def reason_of(code: int, *, is_oom: bool) -> str:
    if is_oom:
        return "OOMKilled"
    return "Error" if code else "Completed"


def moment(text: str) -> datetime | None:
    """In whole seconds; None for never."""
    found = exact_time(text)
    return found.replace(microsecond=0) if found else None


def exact_time(text: str) -> datetime | None:
    if not text or text.startswith(_NEVER):
        return None
    return datetime.fromisoformat(text).astimezone(UTC)  # nanoseconds are cut off
