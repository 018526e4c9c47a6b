"""Container status, from a Docker Engine's word to ours."""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from app.runtimes.base import ContainerKey, ContainerStatus
from app.runtimes.engine.status import LOST, UNKNOWN, start_code

LOST_CODE = 255  # also what the engine says of what ended while it was away, and could not be asked how
MARGIN = timedelta(seconds=2)  # what an engine notes down last may be a moment old when it dies
RESTORED_WITHIN = timedelta(seconds=60)  # of its start, an engine has found out what became of its containers
_NEVER = "0001-01-01"
_RUNS = ("running", "paused", "restarting", "stopping")


class Loss(NamedTuple):
    """The engine went away, or began, at this moment; what it lost by that ended for it until then, if that is known."""

    at: datetime
    until: datetime | None = None


class Told(NamedTuple):
    """The engine told at this moment that a container had ended, perhaps with which code."""

    at: datetime
    code: int | None = None


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
    status = ContainerStatus(
        key=key,
        state="exited",
        id=id_,
        started_at=began,
        finished_at=max(began, ended) if ended else None,
        exit_code=int(state["ExitCode"]),
        reason=_reason(int(state["ExitCode"]), is_oom=bool(state.get("OOMKilled"))),
        termination_message=last_words,
    )
    return status if ended else unknown(status)  # it was gone when the engine came back


def may_be_lost(state: Mapping[str, Any], loss: Loss) -> bool:
    """Whether a container that ended with LOST_CODE ran when the engine was lost."""
    began, ended = _exact(state.get("StartedAt", "")), _exact(state.get("FinishedAt", ""))
    if began is None or ended is None:
        return False
    return began <= loss.at and loss.at - MARGIN <= ended and (loss.until is None or ended <= loss.until)


def is_lost(status: ContainerStatus, state: Mapping[str, Any], end: Told | None, losses: Iterable[Loss]) -> bool:
    """Whether nobody may know how it ended, for the engine was lost. What it told before it was, it knew."""
    if status.exit_code != LOST_CODE or status.reason != "Error":
        return False
    if end and end.code not in (None, LOST_CODE):
        return False
    return any(may_be_lost(state, loss) for loss in losses if end is None or loss.at <= end.at)


def told(event: Mapping[str, Any]) -> Told:
    """What an event says of the end of a container. Podman has another name for the code."""
    attributes = event["Actor"].get("Attributes") or {}
    codes = [str(attributes.get(name, "")) for name in ("exitCode", "containerExitCode")]
    code = next((int(each) for each in codes if each.isdecimal()), None)
    nanoseconds = event.get("timeNano") or event["time"] * 1_000_000_000
    return Told(datetime.fromtimestamp(nanoseconds / 1_000_000_000, UTC), code)


def as_told(status: ContainerStatus, state: Mapping[str, Any], end: Told) -> ContainerStatus:
    """How a container ended that is over, as the engine told it before it may have been killed.

    It tells of an end, and notes it down a moment later. Killed in between, it says when it is back that the container has
    ended just now, with LOST_CODE or with 0. LOST_CODE is also what it tells, at times, and then notes down a better one.
    """
    ended = _exact(state.get("FinishedAt", ""))
    was_noted = ended is not None and ended <= end.at
    if end.code is None or status.reason == "StartError" or (end.code == LOST_CODE and was_noted):
        return status
    finished_at = end.at.replace(microsecond=0)
    if was_noted and status.finished_at:
        finished_at = status.finished_at
    return replace(
        status,
        finished_at=max(finished_at, status.started_at or finished_at),
        exit_code=end.code,
        reason=_reason(end.code, is_oom=bool(state.get("OOMKilled"))),
        message="",
    )


def unknown(status: ContainerStatus) -> ContainerStatus:
    """The same, but that nobody knows how it ended."""
    return replace(status, exit_code=None, reason=UNKNOWN, message=LOST)


def _reason(code: int, *, is_oom: bool) -> str:
    if is_oom:
        return "OOMKilled"
    return "Error" if code else "Completed"


def moment(text: str) -> datetime | None:
    """In whole seconds; None for never."""
    found = _exact(text)
    return found.replace(microsecond=0) if found else None


def _exact(text: str) -> datetime | None:
    if not text or text.startswith(_NEVER):
        return None
    return datetime.fromisoformat(text).astimezone(UTC)  # nanoseconds are cut off
