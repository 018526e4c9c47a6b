"""What a node does next about one of its pods: start, stop, wait, and what to say of it. Pure; called by the agent.

The same pod, runs and time give the same plan, so an agent that forgot everything continues where the last one was.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from app.kinds.durations import after, span
from app.kinds.pod import Pod, PodStatus, is_terminal
from app.plans import pod_status
from app.plans.pod_status import Held, Place
from app.plans.restarts import Member, Run, roster

DEFAULT_GRACE = timedelta(seconds=30)
CUT_OFF_GRACE = timedelta(seconds=10)  # a pod is over before a replacement may start elsewhere
LEFTOVER_GRACE = timedelta(seconds=2)  # of what runs although its pod has ended

OVERDUE = "Pod was active on the node longer than the specified deadline"


class Key(NamedTuple):
    """Which run of which container."""

    name: str
    attempt: int


class Stop(NamedTuple):
    """SIGTERM to one container now, SIGKILL after the grace."""

    key: Key
    grace: timedelta


@dataclass(frozen=True, kw_only=True, slots=True)
class PodPlan:
    """What to do about a pod.

    remove: it has ended and nothing of it runs: once `status` is reported, its sandbox and volumes may go.
    again_at: when to plan again although nothing happened.
    """

    status: PodStatus
    start: tuple[Key, ...] = ()
    stop: tuple[Stop, ...] = ()
    remove: bool = False
    again_at: datetime | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ending:
    """Why a pod comes to its end, and as what."""

    phase: str
    grace: timedelta
    reason: str = ""
    message: str = ""


def plan(pod: Pod, observed: Iterable[Run], now: datetime, place: Place = pod_status.NOWHERE) -> PodPlan:
    """`observed`: every run that the runtime lists for this pod, ended ones included."""
    members = roster(pod, observed, now)
    if is_terminal(pod):
        stop = _stops(members, LEFTOVER_GRACE)
        return PodPlan(status=pod.status, stop=stop, remove=not stop)
    started_at = pod.status.start_time or now
    ending = _ending(pod, members, started_at, now)
    if ending:
        return _end(pod, members, ending, now, place)
    if place.cut_off:
        status = pod_status.written(pod, members, _phase(members), now, place)
        return PodPlan(status=status, stop=_stops(members, min(_grace(pod), CUT_OFF_GRACE)))
    return _continue(pod, members, started_at, now, place)


def _continue(pod: Pod, members: Sequence[Member], started_at: datetime, now: datetime, place: Place) -> PodPlan:
    due = list(_due(members, now, place.held))
    later = [at for _, at in due if at > now]
    if pod.spec.active_deadline_seconds is not None:
        later.append(after(started_at, pod.spec.active_deadline_seconds))
    return PodPlan(
        status=pod_status.written(pod, members, _phase(members), now, place),
        start=tuple(key for key, at in due if at <= now),
        again_at=min(later, default=None),
    )


def _end(pod: Pod, members: Sequence[Member], ending: _Ending, now: datetime, place: Place) -> PodPlan:
    live = [member for member in members if member.is_live]
    # Sidecars serve the others to the end.
    first = [member for member in live if member.role != "sidecar"] or live
    status = pod_status.written(pod, members, _phase(members) if live else ending.phase, now, place)
    if not live:
        status = pod_status.closed(status, ending.reason, ending.message, now, place)
    grace = min(ending.grace, CUT_OFF_GRACE) if place.cut_off else ending.grace
    return PodPlan(status=status, stop=_stops(first, grace), remove=not live)


def _ending(pod: Pod, members: Sequence[Member], started_at: datetime, now: datetime) -> _Ending | None:
    grace = _grace(pod)
    if _is_overdue(pod, members, started_at, now):
        return _Ending(phase="Failed", grace=grace, reason="DeadlineExceeded", message=OVERDUE)
    apps = [member for member in members if member.role == "app"]
    if pod.metadata.deletion_timestamp is not None:
        return _Ending(phase=_outcome(apps), grace=grace)
    if any(member.role == "init" and member.has_ended and not member.has_succeeded for member in members):
        return _Ending(phase="Failed", grace=grace)
    if all(member.has_ended for member in apps):
        return _Ending(phase=_outcome(apps), grace=grace)
    return None


def _outcome(apps: Iterable[Member]) -> str:
    last = [member.last for member in apps]
    return "Succeeded" if all(run and run.state == "exited" and run.exit_code == 0 for run in last) else "Failed"


def _is_overdue(pod: Pod, members: Iterable[Member], started_at: datetime, now: datetime) -> bool:
    if pod.spec.active_deadline_seconds is None:
        return False
    deadline = after(started_at, pod.spec.active_deadline_seconds)
    return now >= deadline and not all(_ended_by(member, deadline) for member in members if member.role == "app")


def _ended_by(member: Member, deadline: datetime) -> bool:
    """A pod that was done in time is not late because nobody looked."""
    last = member.last
    return bool(member.has_ended and last and last.finished_at and last.finished_at <= deadline)


def _grace(pod: Pod) -> timedelta:
    asked = pod.metadata.deletion_grace_period_seconds if pod.metadata.deletion_timestamp else None
    seconds = pod.spec.termination_grace_period_seconds if asked is None else asked
    return DEFAULT_GRACE if seconds is None else span(max(seconds, 0))


def _stops(members: Iterable[Member], grace: timedelta) -> tuple[Stop, ...]:
    return tuple(
        Stop(Key(run.name, run.attempt), grace) for member in members for run in member.runs if run.state == "running"
    )


def _due(members: Sequence[Member], now: datetime, held: Mapping[str, Held]) -> Iterator[tuple[Key, datetime]]:
    """The next run of every container that needs nothing but time to run, and when that is."""
    for member in members:
        name = member.container.name
        for attempt, at in _next(member, now):
            yield Key(name, attempt), max(at, held[name].until) if name in held else at
        if _blocks(member):
            return


def _next(member: Member, now: datetime) -> Iterator[tuple[int, datetime]]:
    last = member.last
    if last is None:
        yield 0, now
    elif last.state == "created":
        yield last.attempt, now
    elif last.state == "exited" and member.next_at is not None:
        yield last.attempt + 1, member.next_at


def _blocks(member: Member) -> bool:
    """Whether what comes after this container in the pod has to wait for it."""
    if member.role == "init":
        return not member.has_succeeded
    return member.role == "sidecar" and not member.has_started


def _phase(members: Iterable[Member]) -> str:
    """Of a pod that has not come to its end."""
    for member in members:
        if _blocks(member) or (member.role == "app" and not member.has_started):
            return "Pending"
    return "Running"
