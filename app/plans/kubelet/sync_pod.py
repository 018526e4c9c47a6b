"""Pod sync: what a node does next about one of its pods: start, stop, wait, report. Pure; called by the agent.

The same pod, runs and time give the same plan, so an agent that starts without state continues where the last one was.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import NamedTuple

from app.kinds.pod.container import ContainerStatus
from app.kinds.pod.pod import Pod, PodStatus, is_terminal
from app.kinds.pod.pod_annotations import main_container, start_timeout
from app.machinery.durations import after, human_duration, span
from app.plans.kubelet import pod_events, pod_status, probes
from app.plans.kubelet.container_history import Member, Run, build_members
from app.plans.kubelet.pod_events import Note
from app.plans.kubelet.pod_status import PodContext, SetupDelay

DEFAULT_GRACE = timedelta(seconds=30)
LEAST_GRACE = timedelta(seconds=2)  # of a container that is stopped when the pod's grace is over
LEFTOVER_GRACE = timedelta(seconds=2)  # of a container that still runs although its pod has ended

START_TIMEOUT_REASON = "StartTimeout"
OVERDUE = "Pod was active on the node longer than the specified deadline"


class Key(NamedTuple):
    """One run of one container."""

    name: str
    attempt: int


class Stop(NamedTuple):
    """SIGTERM to one container now, SIGKILL after the grace. `why`: the message of its event, if not the usual one."""

    key: Key
    grace: timedelta
    why: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PodPlan:
    """What to do about a pod.

    remove: it has ended and nothing of it runs: once `status` is reported, its sandbox and volumes may be removed.
    again_at: when to plan again if nothing changes before.
    notes: events, each to be sent once.
    """

    status: PodStatus
    start: tuple[Key, ...] = ()
    stop: tuple[Stop, ...] = ()
    remove: bool = False
    again_at: datetime | None = None
    notes: tuple[Note, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ending:
    """Why a pod ends, since when, and in which phase."""

    phase: str
    grace: timedelta
    since: datetime | None
    reason: str = ""
    message: str = ""


def plan(pod: Pod, observed: Iterable[Run], now: datetime, place: PodContext = pod_status.NO_CONTEXT) -> PodPlan:
    """`observed`: every run that the runtime lists for this pod, ended ones included."""
    members = _add_health(place, pod, build_members(pod, observed, now, place.past))
    if is_terminal(pod):
        stop = _stop_running(members, LEFTOVER_GRACE)
        return PodPlan(status=pod.status, stop=stop, remove=not stop)
    started_at = pod.status.start_time or now
    ending = _find_ending(pod, members, started_at, now, place)
    if ending:
        return _end_pod(pod, members, ending, now, place)
    if place.cut_off is not None:
        status = pod_status.build_status(pod, members, _phase(members), now, place)
        return PodPlan(status=status, stop=_stop_running(members, min(_grace(pod), place.cut_off)))
    return _continue_pod(pod, members, started_at, now, place)


def _continue_pod(
    pod: Pod, members: Sequence[Member], started_at: datetime, now: datetime, place: PodContext
) -> PodPlan:
    due = list(_find_due(members, now, place))
    later = [at for _, at in due if at > now]
    if pod.spec.active_deadline_seconds is not None:
        later.append(after(started_at, pod.spec.active_deadline_seconds))
    if (timeout := start_timeout(pod.metadata)) is not None and _find_unstarted(members):
        later.append(after(started_at, timeout))
    return PodPlan(
        status=pod_status.build_status(pod, members, _phase(members), now, place),
        start=() if place.sandbox_lost else tuple(key for key, at in due if at <= now),
        stop=_stop_running(members, LEFTOVER_GRACE) if place.sandbox_lost else tuple(_stop_unhealthy(pod, members)),
        again_at=min(later, default=None),
        notes=tuple(_back_off_events(pod, members, now)),
    )


def _add_health(place: PodContext, pod: Pod, members: Sequence[Member]) -> Sequence[Member]:
    """The members with the health of their running containers, by probes and hooks."""
    if not place.post_start_pending and not any(probes.has_probes(member.container) for member in members):
        return members
    reported = {each.name: each for each in (*pod.status.init_container_statuses, *pod.status.container_statuses)}
    return [_add_member_health(member, reported.get(member.container.name), place) for member in members]


def _add_member_health(member: Member, reported: ContainerStatus | None, place: PodContext) -> Member:
    last = member.last
    if last is None or last.state != "running":
        return member
    key = (last.name, last.attempt)
    health = place.health.get(key) or probes.initial_health(member.container, reported, last.attempt)
    return member._replace(health=health, post_start_pending=key in place.post_start_pending)


def _stop_unhealthy(pod: Pod, members: Iterable[Member]) -> Iterator[Stop]:
    for member in members:
        unwell, last = member.health.unwell, member.last
        if unwell is not None and last is not None and last.state == "running":
            yield Stop(Key(last.name, last.attempt), _grace(pod) if unwell.grace is None else unwell.grace, unwell.why)


def _back_off_events(pod: Pod, members: Iterable[Member], now: datetime) -> Iterator[Note]:
    for member in members:
        if member.next_at is not None and member.next_at > now and member.runs[-1].state == "exited":
            yield pod_events.backing_off(pod, member.container.name, member.runs[-1].attempt)


def _end_pod(pod: Pod, members: Sequence[Member], ending: _Ending, now: datetime, place: PodContext) -> PodPlan:
    live = [member for member in members if member.is_live]
    # Sidecars stop after all others, in the reverse order of their start.
    first = [member for member in live if member.role != "sidecar"] or live[-1:]
    status = pod_status.build_status(pod, members, _phase(members) if live else ending.phase, now, place)
    if not live:
        status = pod_status.finish_status(status, ending.reason, ending.message, now, place)
    grace = ending.grace
    if place.cut_off is not None:
        first, grace = live, min(grace, place.cut_off)  # no time to stop one after the other
    elif first and first[0].role == "sidecar" and ending.since is not None:
        # All containers share the grace; the last one still gets a little.
        grace = min(grace, max(grace - (now - ending.since), LEAST_GRACE))
    overdue = ending.reason in ("DeadlineExceeded", START_TIMEOUT_REASON)
    notes = (pod_events.overdue(ending.reason, ending.message),) if overdue else ()
    return PodPlan(status=status, stop=_stop_running(first, grace), remove=not live, notes=notes)


def _find_ending(
    pod: Pod, members: Sequence[Member], started_at: datetime, now: datetime, place: PodContext
) -> _Ending | None:
    grace = _grace(pod)
    if place.evicted:
        reason, message, longest, _ = place.evicted
        return _Ending(phase="Failed", grace=min(grace, longest), since=None, reason=reason, message=message)
    apps = _find_deciding(pod, members)
    if _is_overdue(pod, apps, started_at, now):
        since = after(started_at, pod.spec.active_deadline_seconds or 0)
        return _Ending(phase="Failed", grace=grace, since=since, reason="DeadlineExceeded", message=OVERDUE)
    if pod.metadata.deletion_timestamp is not None:
        asked = after(pod.metadata.deletion_timestamp, -(pod.metadata.deletion_grace_period_seconds or 0))
        return _Ending(phase=_outcome(apps), grace=grace, since=asked)
    if any(member.role == "init" and member.has_ended and not member.has_succeeded for member in members):
        return _Ending(phase="Failed", grace=grace, since=_last_end_at(members))
    if all(member.has_ended for member in apps):
        return _Ending(phase=_outcome(apps), grace=grace, since=_last_end_at(apps))
    return _find_start_timeout(pod, members, started_at, now, place)


def _find_deciding(pod: Pod, members: Iterable[Member]) -> list[Member]:
    """The containers whose end is the pod's: all but init containers and sidecars, or the main one, if one is named."""
    apps = [member for member in members if member.role == "app"]
    name = main_container(pod.metadata)
    return [member for member in apps if member.container.name == name] or apps


def _find_start_timeout(
    pod: Pod, members: Sequence[Member], started_at: datetime, now: datetime, place: PodContext
) -> _Ending | None:
    """Once all containers have started, time no longer matters, though one may have to start again."""
    timeout = start_timeout(pod.metadata)
    if timeout is None or now < after(started_at, timeout) or not (names := _find_unstarted(members)):
        return None
    unstarted = ", ".join(_describe_unstarted(name, place.held.get(name)) for name in names)
    message = f"Containers did not start within {human_duration(span(timeout))}: {unstarted}"
    since = after(started_at, timeout)
    return _Ending(phase="Failed", grace=_grace(pod), since=since, reason=START_TIMEOUT_REASON, message=message)


def _describe_unstarted(name: str, delay: SetupDelay | None) -> str:
    return f"{name} ({delay.reason}: {delay.message})" if delay and delay.reason else name


def _find_unstarted(members: Iterable[Member]) -> list[str]:
    return [member.container.name for member in members if member.role == "app" and not member.has_started]


def _last_end_at(members: Iterable[Member]) -> datetime | None:
    runs = [member.last for member in members if member.role != "sidecar"]
    return max((run.finished_at for run in runs if run and run.finished_at), default=None)


def _outcome(apps: Iterable[Member]) -> str:
    last = [member.last for member in apps]
    return "Succeeded" if all(run and run.state == "exited" and run.exit_code == 0 for run in last) else "Failed"


def _is_overdue(pod: Pod, apps: Iterable[Member], started_at: datetime, now: datetime) -> bool:
    if pod.spec.active_deadline_seconds is None:
        return False
    deadline = after(started_at, pod.spec.active_deadline_seconds)
    return now >= deadline and not all(_ended_by(member, deadline) for member in apps)


def _ended_by(member: Member, deadline: datetime) -> bool:
    """A pod that ended in time is not late if it is only synced now."""
    last = member.last
    return bool(member.has_ended and last and last.finished_at and last.finished_at <= deadline)


def _grace(pod: Pod) -> timedelta:
    asked = pod.metadata.deletion_grace_period_seconds if pod.metadata.deletion_timestamp else None
    seconds = pod.spec.termination_grace_period_seconds if asked is None else asked
    return DEFAULT_GRACE if seconds is None else span(max(seconds, 0))


def _stop_running(members: Iterable[Member], grace: timedelta) -> tuple[Stop, ...]:
    return tuple(
        Stop(Key(run.name, run.attempt), grace) for member in members for run in member.runs if run.state == "running"
    )


def _find_due(members: Sequence[Member], now: datetime, place: PodContext) -> Iterator[tuple[Key, datetime]]:
    """The next run of every container that nothing but time keeps from running, and when that is."""
    begun = _has_started(members)
    for member in members:
        name = member.container.name
        for attempt, at in _next_attempts(member, now):
            if name not in place.busy:
                yield Key(name, attempt), max(at, place.held[name].until) if name in place.held else at
        if member.post_start_pending or _blocks_next(member, begun=begun):
            return


def _next_attempts(member: Member, now: datetime) -> Iterator[tuple[int, datetime]]:
    last = member.last
    if last is None:
        yield 0, now
    elif last.state == "created":
        yield last.attempt, now
    elif last.state == "exited" and member.next_at is not None:
        yield last.attempt + 1, member.next_at


def _blocks_next(member: Member, *, begun: bool) -> bool:
    """Return whether the containers after this one wait for it. `begun`: app containers have run already."""
    if member.role == "init":
        return not member.has_succeeded
    if member.role != "sidecar" or (begun and member.has_started):
        return False
    return not (member.has_started if member.container.startup_probe is None else member.is_started) or member.stale


def _has_started(members: Iterable[Member]) -> bool:
    return any(member.role == "app" and member.runs and not member.stale for member in members)


def _phase(members: Sequence[Member]) -> str:
    """The phase of a pod that has not ended."""
    begun = _has_started(members)
    for member in members:
        if _blocks_next(member, begun=begun) or (member.role == "app" and not member.has_started):
            return "Pending"
    return "Running"
