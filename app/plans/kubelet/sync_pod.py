"""Pod sync: what a node does next about one of its pods: start, stop, wait, report. Pure; called by the agent.

The same pod, runs and time give the same plan, so an agent that forgot everything continues where the last one was.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from app.kinds.pod.container import ContainerStatus
from app.kinds.pod.pod import Pod, PodStatus, is_terminal
from app.machinery.durations import after, span
from app.plans.kubelet import pod_events, pod_status, probes
from app.plans.kubelet.container_history import Member, Run, roster
from app.plans.kubelet.pod_events import Note
from app.plans.kubelet.pod_status import Place

DEFAULT_GRACE = timedelta(seconds=30)
LEAST_GRACE = timedelta(seconds=2)  # of a container that comes to its turn when the pod's grace is over
LEFTOVER_GRACE = timedelta(seconds=2)  # of what runs although its pod has ended

OVERDUE = "Pod was active on the node longer than the specified deadline"


class Key(NamedTuple):
    """Which run of which container."""

    name: str
    attempt: int


class Stop(NamedTuple):
    """SIGTERM to one container now, SIGKILL after the grace. `why` is what its event says, if not just that."""

    key: Key
    grace: timedelta
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PodPlan:
    """What to do about a pod.

    remove: it has ended and nothing of it runs: once `status` is reported, its sandbox and volumes may go.
    again_at: when to plan again although nothing happened.
    notes: events, each to be told once.
    """

    status: PodStatus
    start: tuple[Key, ...] = ()
    stop: tuple[Stop, ...] = ()
    remove: bool = False
    again_at: datetime | None = None
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ending:
    """Why a pod comes to its end, since when, and as what."""

    phase: str
    grace: timedelta
    since: datetime | None
    reason: str = ""
    message: str = ""


def plan(pod: Pod, observed: Iterable[Run], now: datetime, place: Place = pod_status.NOWHERE) -> PodPlan:
    """`observed`: every run that the runtime lists for this pod, ended ones included."""
    members = _seen_from(place, pod, roster(pod, observed, now, place.past))
    if is_terminal(pod):
        stop = _stops(members, LEFTOVER_GRACE)
        return PodPlan(status=pod.status, stop=stop, remove=not stop)
    started_at = pod.status.start_time or now
    ending = _ending(pod, members, started_at, now, place)
    if ending:
        return _end(pod, members, ending, now, place)
    if place.cut_off is not None:
        status = pod_status.written(pod, members, _phase(members), now, place)
        return PodPlan(status=status, stop=_stops(members, min(_grace(pod), place.cut_off)))
    return _continue(pod, members, started_at, now, place)


def _continue(pod: Pod, members: Sequence[Member], started_at: datetime, now: datetime, place: Place) -> PodPlan:
    due = list(_due(members, now, place))
    later = [at for _, at in due if at > now]
    if pod.spec.active_deadline_seconds is not None:
        later.append(after(started_at, pod.spec.active_deadline_seconds))
    return PodPlan(
        status=pod_status.written(pod, members, _phase(members), now, place),
        start=() if place.sandbox_lost else tuple(key for key, at in due if at <= now),
        stop=_stops(members, LEFTOVER_GRACE) if place.sandbox_lost else tuple(_unwell(pod, members)),
        again_at=min(later, default=None),
        notes=tuple(_backing_off(pod, members, now)),
    )


def _seen_from(place: Place, pod: Pod, members: Sequence[Member]) -> Sequence[Member]:
    """With what probes and hooks say of the runs that go on."""
    if not place.post_start_pending and not any(probes.has_probes(member.container) for member in members):
        return members
    told = {each.name: each for each in (*pod.status.init_container_statuses, *pod.status.container_statuses)}
    return [_with_health(member, told.get(member.container.name), place) for member in members]


def _with_health(member: Member, told: ContainerStatus | None, place: Place) -> Member:
    last = member.last
    if last is None or last.state != "running":
        return member
    key = (last.name, last.attempt)
    health = place.health.get(key) or probes.at_first(member.container, told, last.attempt)
    return member._replace(health=health, post_start_pending=key in place.post_start_pending)


def _unwell(pod: Pod, members: Iterable[Member]) -> Iterator[Stop]:
    for member in members:
        unwell, last = member.health.unwell, member.last
        if unwell is not None and last is not None and last.state == "running":
            yield Stop(Key(last.name, last.attempt), _grace(pod) if unwell.grace is None else unwell.grace, unwell.why)


def _backing_off(pod: Pod, members: Iterable[Member], now: datetime) -> Iterator[Note]:
    for member in members:
        if member.next_at is not None and member.next_at > now and member.runs[-1].state == "exited":
            yield pod_events.backing_off(pod, member.container.name, member.runs[-1].attempt)


def _end(pod: Pod, members: Sequence[Member], ending: _Ending, now: datetime, place: Place) -> PodPlan:
    live = [member for member in members if member.is_live]
    # Sidecars serve the others to the end, and of them the first to start is the last to go.
    first = [member for member in live if member.role != "sidecar"] or live[-1:]
    status = pod_status.written(pod, members, _phase(members) if live else ending.phase, now, place)
    if not live:
        status = pod_status.closed(status, ending.reason, ending.message, now, place)
    grace = ending.grace
    if place.cut_off is not None:
        first, grace = live, min(grace, place.cut_off)  # there is no time for one after the other
    elif first and first[0].role == "sidecar" and ending.since is not None:
        # All of the pod share the grace; whoever comes last still gets a moment.
        grace = min(grace, max(grace - (now - ending.since), LEAST_GRACE))
    notes = (pod_events.overdue(ending.message),) if ending.reason == "DeadlineExceeded" else ()
    return PodPlan(status=status, stop=_stops(first, grace), remove=not live, notes=notes)


def _ending(pod: Pod, members: Sequence[Member], started_at: datetime, now: datetime, place: Place) -> _Ending | None:
    grace = _grace(pod)
    if place.evicted:
        reason, message, longest, _ = place.evicted
        return _Ending(phase="Failed", grace=min(grace, longest), since=None, reason=reason, message=message)
    if _is_overdue(pod, members, started_at, now):
        since = after(started_at, pod.spec.active_deadline_seconds or 0)
        return _Ending(phase="Failed", grace=grace, since=since, reason="DeadlineExceeded", message=OVERDUE)
    apps = [member for member in members if member.role == "app"]
    if pod.metadata.deletion_timestamp is not None:
        asked = after(pod.metadata.deletion_timestamp, -(pod.metadata.deletion_grace_period_seconds or 0))
        return _Ending(phase=_outcome(apps), grace=grace, since=asked)
    if any(member.role == "init" and member.has_ended and not member.has_succeeded for member in members):
        return _Ending(phase="Failed", grace=grace, since=_last_end(members))
    if all(member.has_ended for member in apps):
        return _Ending(phase=_outcome(apps), grace=grace, since=_last_end(members))
    return None


def _last_end(members: Iterable[Member]) -> datetime | None:
    runs = [member.last for member in members if member.role != "sidecar"]
    return max((run.finished_at for run in runs if run and run.finished_at), default=None)


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


def _due(members: Sequence[Member], now: datetime, place: Place) -> Iterator[tuple[Key, datetime]]:
    """The next run of every container that needs nothing but time to run, and when that is."""
    begun = _has_begun(members)
    for member in members:
        name = member.container.name
        for attempt, at in _next(member, now):
            if name not in place.busy:
                yield Key(name, attempt), max(at, place.held[name].until) if name in place.held else at
        if member.post_start_pending or _blocks(member, begun=begun):
            return


def _next(member: Member, now: datetime) -> Iterator[tuple[int, datetime]]:
    last = member.last
    if last is None:
        yield 0, now
    elif last.state == "created":
        yield last.attempt, now
    elif last.state == "exited" and member.next_at is not None:
        yield last.attempt + 1, member.next_at


def _blocks(member: Member, *, begun: bool) -> bool:
    """Whether what comes after this container in the pod has to wait for it. `begun`: app containers have run already."""
    if member.role == "init":
        return not member.has_succeeded
    if member.role != "sidecar" or (begun and member.has_started):
        return False
    return not (member.has_started if member.container.startup_probe is None else member.is_started) or member.stale


def _has_begun(members: Iterable[Member]) -> bool:
    return any(member.role == "app" and member.runs and not member.stale for member in members)


def _phase(members: Sequence[Member]) -> str:
    """Of a pod that has not come to its end."""
    begun = _has_begun(members)
    for member in members:
        if _blocks(member, begun=begun) or (member.role == "app" and not member.has_started):
            return "Pending"
    return "Running"
