"""Container history: the runs of a pod's containers, and when a container restarts (back-off, restartPolicy). Pure.

Used by `sync_pod`. A run's attempt number is the container's restart count, so no other state is kept: runs that the runtime
no longer lists are read from the pod's status.
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
HEALTHY = timedelta(minutes=10)  # after running that long, a container restarts without back-off
UNKNOWN_EXIT = 137  # exit code of a container whose exit code is unknown
NOT_LOCATED = "The container could not be located when the pod was terminated"

WELL = Health()

Role = Literal["init", "sidecar", "app"]


class Run(NamedTuple):
    """One run of one container. `exit_code` is None while it runs, and if it is unknown."""

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

    next_at: when it restarts, None if it does not (yet).
    policy:  Always, OnFailure or Never, as it applies to this container.
    health:  of its last run, while that runs.
    post_start_pending: its last run runs, but its postStart hook has not ended: so it does not count as started.
    stale:   its last run was in a sandbox that no longer exists.
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
        """As its status shows it."""
        return bool(self.runs) and self.runs[-1].state == "running" and not self.post_start_pending

    @property
    def is_started(self) -> bool:
        return self.is_running and self.health.started

    @property
    def is_ready(self) -> bool:
        return self.is_started and self.health.ready

    @property
    def has_ended(self) -> bool:
        """Its last run has ended and it does not restart."""
        return bool(self.runs) and self.runs[-1].state == "exited" and self.next_at is None

    @property
    def has_succeeded(self) -> bool:
        return self.has_ended and not has_failed(self.runs[-1])


def has_failed(run: Run) -> bool:
    return run.state == "exited" and run.exit_code != 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Past:
    """What a runtime's list of runs does not contain.

    probe_failed: runs that failed a probe: the container restarts whatever its exit code.
    lost:      by container, the last attempt that was in a sandbox that no longer exists.
    """

    probe_failed: Having[tuple[str, int]] = ()
    lost: Mapping[str, int] = field(default_factory=dict)


NO_PAST = Past()


def build_members(pod: Pod, observed: Iterable[Run], now: datetime, past: Past = NO_PAST) -> tuple[Member, ...]:
    """Every container of the pod with its known runs: init containers first, in order."""
    runs = _merge_runs(pod.status, observed, now)
    members = []
    init_restarted_at: datetime | None = None  # start of the last init container that was restarted
    for container, role in _containers_by_role(pod):
        known, policy = runs.get(container.name, ()), _policy(pod, container, role)
        stale = bool(known) and _is_stale(known[-1], past, init_restarted_at)
        members.append(Member(container, role, known, _next_at(role, policy, known, past, stale), policy, stale=stale))
        if role == "init" and known and known[-1].attempt and not stale:
            init_restarted_at = max(filter(None, (init_restarted_at, known[-1].started_at)), default=None)
    return tuple(members)


def _is_stale(last: Run, past: Past, init_restarted_at: datetime | None) -> bool:
    """Also without a record of the loss: an init container before this one was restarted after its last run."""
    if last.attempt <= past.lost.get(last.name, -1):
        return True
    return (
        init_restarted_at is not None
        and last.started_at is not None
        and _truncate(last.started_at) < _truncate(init_restarted_at)
    )


def _truncate(at: datetime) -> datetime:
    """To seconds, the precision of a pod's status."""
    return at.replace(microsecond=0)


def _containers_by_role(pod: Pod) -> Iterator[tuple[Container, Role]]:
    for container in pod.spec.init_containers:
        yield container, "sidecar" if container.restart_policy == "Always" else "init"
    for container in pod.spec.containers:
        yield container, "app"


def _policy(pod: Pod, container: Container, role: Role) -> str:
    policy = container.restart_policy or pod.spec.restart_policy or "Always"
    # An init container of a pod that always restarts has to succeed once.
    return "OnFailure" if role == "init" and policy == "Always" else policy


def _next_at(role: Role, policy: str, runs: Sequence[Run], past: Past, stale: bool) -> datetime | None:
    if not runs or runs[-1].state != "exited" or policy == "Never":
        return None
    last = runs[-1]
    if role == "init" and stale:  # a new sandbox runs all init containers again, at once
        return last.finished_at or last.started_at
    if policy == "OnFailure" and not has_failed(last) and (last.name, last.attempt) not in past.probe_failed:
        return None
    ended_at = last.finished_at or last.started_at
    return ended_at + backoff(runs) if ended_at else None


def was_healthy(run: Run) -> bool:
    return bool(run.started_at and run.finished_at and run.finished_at - run.started_at >= HEALTHY)


def backoff(runs: Sequence[Run]) -> timedelta:
    """Return how long to wait after the last run: nothing after the first crash, then 10 s, doubling up to 5 minutes."""
    crashes = runs[-1].attempt
    for run in runs:
        if was_healthy(run):
            crashes = runs[-1].attempt - run.attempt
    if crashes == 0:
        return timedelta()
    # The shift is capped first: a restart count may be any int32.
    return min(FIRST_BACKOFF * (1 << min(crashes - 1, 10)), LONGEST_BACKOFF)


def _merge_runs(status: PodStatus, observed: Iterable[Run], now: datetime) -> dict[str, tuple[Run, ...]]:
    """The observed runs, and those that only the pod's status still lists."""
    runs: dict[str, dict[int, Run]] = defaultdict(dict)
    for run in observed:
        runs[run.name][run.attempt] = run
    for each in (*status.init_container_statuses, *status.container_statuses):
        known = runs[each.name]
        for run in _runs_in_status(each, now):
            known[run.attempt] = _prefer_observed(known.get(run.attempt), run)
    return {name: tuple(_set_end(by[attempt], now) for attempt in sorted(by)) for name, by in runs.items()}


def _prefer_observed(observed: Run | None, recorded: Run) -> Run:
    if observed is None or observed.state == "created":
        return recorded  # a run that could not be started may be listed as created for ever
    if observed.state == "exited" and observed.finished_at is None:
        return observed._replace(finished_at=recorded.finished_at)
    return observed


def _set_end(run: Run, now: datetime) -> Run:
    """A run that ended at an unknown time ends now, and the status then keeps this time."""
    return run._replace(finished_at=now) if run.state == "exited" and run.finished_at is None else run


def _runs_in_status(status: ContainerStatus, now: datetime) -> Iterator[Run]:
    state, before = status.state, status.last_state
    attempt = status.restart_count
    if before and before.terminated:
        waits = state is not None and state.waiting is not None
        # While it waits to be restarted, the count still is that of the run that ended.
        yield _ended_run(status.name, attempt if waits else attempt - 1, before.terminated)
    if state and state.terminated:
        yield _ended_run(status.name, attempt, state.terminated)
    elif state and state.running:
        # If the runtime lists it too, that counts; else the container is lost.
        began_at = state.running.started_at
        yield Run(
            status.name, attempt, "exited", _strip_scheme(status.container_id), began_at, now, None, "", NOT_LOCATED
        )


def _ended_run(name: str, attempt: int, ended: ContainerStateTerminated) -> Run:
    return Run(
        name,
        attempt,
        "exited",
        _strip_scheme(ended.container_id),
        ended.started_at,
        ended.finished_at,
        ended.exit_code,
        ended.reason,
        ended.message,
    )


def _strip_scheme(container_id: str) -> str:
    """`process://abc` -> `abc`"""
    return container_id.rpartition("://")[2]
