"""Container history: which runs of a pod's containers there were, and whether and when another follows. Pure; for `sync_pod`.

A run's attempt number is the container's restart count, so nothing else has to be remembered: what the runtime has
forgotten is read back from the pod's own status.
"""

from collections import defaultdict
from collections.abc import Container as Having
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from app.kinds.pod.container import Container, ContainerStateTerminated, ContainerStatus
from app.kinds.pod.pod import Pod, PodStatus
from app.plans.kubelet.probes import Health

FIRST_BACKOFF = timedelta(seconds=10)
LONGEST_BACKOFF = timedelta(minutes=5)
HEALTHY = timedelta(minutes=10)  # having run that long, a container starts again with a clean slate
UNKNOWN_EXIT = 137  # what a container is taken to have ended with when nobody knows
NOT_LOCATED = "The container could not be located when the pod was terminated"

WELL = Health()

Role = Literal["init", "sidecar", "app"]


class Run(NamedTuple):
    """One run of one container. `exit_code` is None while it runs, and if it ended and nobody knows how."""

    name: str
    attempt: int
    state: Literal["created", "running", "exited"]
    id: str = ""
    started_at: datetime | None = None
    finished_at: datetime | None = None
    exit_code: int | None = None
    reason: str = ""
    message: str = ""


class Member(NamedTuple):
    """A container of the pod with its runs, oldest first.

    next_at: when it runs again, None if it does not (yet).
    policy:  Always, OnFailure or Never, as it holds for this container.
    health:  of its last run, as far as that goes on.
    post_start_pending: its last run goes on, but its postStart hook is not through: so it has not really started.
    stale:   its last run was in a sandbox that the pod has lost since.
    """

    container: Container
    role: Role
    runs: tuple[Run, ...]
    next_at: datetime | None
    policy: str = "Always"
    health: Health = WELL
    post_start_pending: bool = False
    stale: bool = False

    @property
    def last(self) -> Run | None:
        return self.runs[-1] if self.runs else None

    @property
    def is_live(self) -> bool:
        return any(run.state == "running" for run in self.runs)

    @property
    def has_started(self) -> bool:
        runs = self.runs[:-1] if self.post_start_pending else self.runs
        return any(run.state != "created" for run in runs)

    @property
    def is_running(self) -> bool:
        """For everybody to see."""
        return bool(self.runs) and self.runs[-1].state == "running" and not self.post_start_pending

    @property
    def is_started(self) -> bool:
        return self.is_running and self.health.started

    @property
    def is_ready(self) -> bool:
        return self.is_started and self.health.ready

    @property
    def has_ended(self) -> bool:
        """Its last run is over and no other follows."""
        return bool(self.runs) and self.runs[-1].state == "exited" and self.next_at is None

    @property
    def has_succeeded(self) -> bool:
        return self.has_ended and not failed(self.runs[-1])


def failed(run: Run) -> bool:
    return run.state == "exited" and run.exit_code != 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Past:
    """What runs do not tell of themselves.

    probe_failed: those that their probes gave up on, which another follows whatever they ended with.
    lost:      by container, the last attempt that was in a sandbox that is gone.
    """

    probe_failed: Having[tuple[str, int]] = ()
    lost: Mapping[str, int] = field(default_factory=dict)


NO_PAST = Past()


def roster(pod: Pod, observed: Iterable[Run], now: datetime, past: Past = NO_PAST) -> tuple[Member, ...]:
    """Every container of the pod with all that is known of its runs: init containers first, in order."""
    runs = _recalled(pod.status, observed, now)
    members = []
    begun_again: datetime | None = None  # when the last init container did that was begun again
    for container, role in _roles(pod):
        known, policy = runs.get(container.name, ()), _policy(pod, container, role)
        stale = bool(known) and _is_stale(known[-1], past, begun_again)
        members.append(Member(container, role, known, _next_at(role, policy, known, past, stale), policy, stale=stale))
        if role == "init" and known and known[-1].attempt and not stale:
            begun_again = max(filter(None, (begun_again, known[-1].started_at)), default=None)
    return tuple(members)


def _is_stale(last: Run, past: Past, begun_again: datetime | None) -> bool:
    """Also if nobody remembers the loss: then what comes before it has begun after it."""
    if last.attempt <= past.lost.get(last.name, -1):
        return True
    return begun_again is not None and last.started_at is not None and _second(last.started_at) < _second(begun_again)


def _second(at: datetime) -> datetime:
    """As precise as a pod's status is."""
    return at.replace(microsecond=0)


def _roles(pod: Pod) -> Iterator[tuple[Container, Role]]:
    for container in pod.spec.init_containers:
        yield container, "sidecar" if container.restart_policy == "Always" else "init"
    for container in pod.spec.containers:
        yield container, "app"


def _policy(pod: Pod, container: Container, role: Role) -> str:
    policy = container.restart_policy or pod.spec.restart_policy or "Always"
    # An init container of a pod that restarts always is there to succeed once.
    return "OnFailure" if role == "init" and policy == "Always" else policy


def _next_at(role: Role, policy: str, runs: Sequence[Run], past: Past, stale: bool) -> datetime | None:
    if not runs or runs[-1].state != "exited" or policy == "Never":
        return None
    last = runs[-1]
    if role == "init" and stale:  # a new sandbox begins with all of them, at once
        return last.finished_at or last.started_at
    if policy == "OnFailure" and not failed(last) and (last.name, last.attempt) not in past.probe_failed:
        return None
    ended_at = last.finished_at or last.started_at
    return ended_at + backoff(runs) if ended_at else None


def was_healthy(run: Run) -> bool:
    return bool(run.started_at and run.finished_at and run.finished_at - run.started_at >= HEALTHY)


def backoff(runs: Sequence[Run]) -> timedelta:
    """How long to wait after the last run: nothing after the first crash, then 10 s, doubling up to 5 minutes."""
    crashes = runs[-1].attempt
    for run in runs:
        if was_healthy(run):
            crashes = runs[-1].attempt - run.attempt
    if crashes == 0:
        return timedelta()
    # The shift is capped first: a restart count may be any int32.
    return min(FIRST_BACKOFF * (1 << min(crashes - 1, 10)), LONGEST_BACKOFF)


def _recalled(status: PodStatus, observed: Iterable[Run], now: datetime) -> dict[str, tuple[Run, ...]]:
    """The observed runs, completed by what only the pod's status still tells of."""
    runs: dict[str, dict[int, Run]] = defaultdict(dict)
    for run in observed:
        runs[run.name][run.attempt] = run
    for each in (*status.init_container_statuses, *status.container_statuses):
        known = runs[each.name]
        for run in _remembered(each, now):
            known[run.attempt] = _merged(known.get(run.attempt), run)
    return {name: tuple(_dated(by[attempt], now) for attempt in sorted(by)) for name, by in runs.items()}


def _merged(seen: Run | None, remembered: Run) -> Run:
    if seen is None or seen.state == "created":
        return remembered  # one that could not be started may be listed as created for ever
    if seen.state == "exited" and seen.finished_at is None:
        return seen._replace(finished_at=remembered.finished_at)
    return seen


def _dated(run: Run, now: datetime) -> Run:
    """A run that ended has ended at some time: this fixes it, and the status then remembers it."""
    return run._replace(finished_at=now) if run.state == "exited" and run.finished_at is None else run


def _remembered(status: ContainerStatus, now: datetime) -> Iterator[Run]:
    state, before = status.state, status.last_state
    attempt = status.restart_count
    if before and before.terminated:
        waits = state is not None and state.waiting is not None
        # Waiting to be restarted, the count still is that of the run that ended.
        yield _ended(status.name, attempt if waits else attempt - 1, before.terminated)
    if state and state.terminated:
        yield _ended(status.name, attempt, state.terminated)
    elif state and state.running:
        # Should the runtime know it too, its word counts; else the container is lost.
        began_at = state.running.started_at
        yield Run(status.name, attempt, "exited", _bare(status.container_id), began_at, now, None, "", NOT_LOCATED)


def _ended(name: str, attempt: int, ended: ContainerStateTerminated) -> Run:
    return Run(
        name,
        attempt,
        "exited",
        _bare(ended.container_id),
        ended.started_at,
        ended.finished_at,
        ended.exit_code,
        ended.reason,
        ended.message,
    )


def _bare(container_id: str) -> str:
    """`process://abc` -> `abc`"""
    return container_id.rpartition("://")[2]
