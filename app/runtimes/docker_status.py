"""How a container fares, from a Docker Engine's word to ours."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from app.runtimes.base import ContainerKey, ContainerStatus
from app.runtimes.engine_status import LOST, UNKNOWN, start_code

LOST_CODE = 255  # also what the engine says of what ended while it was away, and could not be asked how
MARGIN = timedelta(seconds=2)  # what an engine notes down last may be a moment old when it dies
RESTORED_WITHIN = timedelta(seconds=60)  # of its start, an engine has found out what became of its containers
_NEVER = "0001-01-01"
_RUNS = ("running", "paused", "restarting", "stopping")


class Loss(NamedTuple):
    """The engine went away, or began, at this moment; what it lost by that ended for it until then, if that is known."""

    at: datetime
    until: datetime | None = None


def begun(at: datetime) -> Loss:
    """What an engine may have lost before it began."""
    return Loss(at, at + RESTORED_WITHIN)


def status_of(key: ContainerKey, found: Mapping[str, Any], failure: str, last_words: str) -> ContainerStatus:
    """`failure`: what was said when it was started in vain; `last_words`: its termination message."""
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
    if began is None:  # neither is what the engine itself failed to start, and no agent has heard of
        return ContainerStatus(key=key, state="created", id=id_)
    reason = _reason(state)
    return ContainerStatus(
        key=key,
        state="exited",
        id=id_,
        started_at=began,
        finished_at=max(began, ended) if ended else None,
        exit_code=None if reason == UNKNOWN else int(state["ExitCode"]),
        reason=reason,
        message=LOST if reason == UNKNOWN else "",
        termination_message=last_words,
    )


def may_be_lost(state: Mapping[str, Any], loss: Loss) -> bool:
    """Whether a container that ended with LOST_CODE ran when the engine was lost."""
    began, ended = _exact(state.get("StartedAt", "")), _exact(state.get("FinishedAt", ""))
    if began is None or ended is None:
        return False
    return began <= loss.at and loss.at - MARGIN <= ended and (loss.until is None or ended <= loss.until)


def unknown(status: ContainerStatus) -> ContainerStatus:
    """The same, but that nobody knows how it ended."""
    return replace(status, exit_code=None, reason=UNKNOWN, message=LOST)


def _reason(state: Mapping[str, Any]) -> str:
    if moment(state.get("FinishedAt", "")) is None:
        return UNKNOWN  # it was gone when the engine came back
    if state.get("OOMKilled"):
        return "OOMKilled"
    return "Error" if state["ExitCode"] else "Completed"


def moment(text: str) -> datetime | None:
    """In whole seconds; None for never."""
    found = _exact(text)
    return found.replace(microsecond=0) if found else None


def _exact(text: str) -> datetime | None:
    if not text or text.startswith(_NEVER):
        return None
    return datetime.fromisoformat(text).astimezone(UTC)  # nanoseconds are cut off
