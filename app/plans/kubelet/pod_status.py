"""Pod status: phase, conditions and container statuses as a kubelet reports them. Pure; used by `sync_pod`."""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from app.kinds.pod.container import Container as ContainerSpec
from app.kinds.pod.container import (
    ContainerState,
    ContainerStateRunning,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
)
from app.kinds.pod.pod import HostIP, Pod, PodIP, PodStatus
from app.kinds.pod.pod_state import TERMINAL, has_ended
from app.machinery.base import Condition
from app.machinery.meta.conditions import with_condition
from app.plans.kubelet.container_history import NO_PAST, UNKNOWN_EXIT, Member, Past, Run, has_failed
from app.plans.kubelet.probes import Health

LOST_CONTACT = "The node lost contact with the API server and stopped its pods"
OURS = ("PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady")


class SetupDelay(NamedTuple):
    """Why a container cannot be set up now, and when to try again. Without a reason it is only about to start."""

    reason: str
    message: str
    until: datetime


class Evicted(NamedTuple):
    """Why its node evicts a pod, and within which grace. `mark`: message of its condition DisruptionTarget, if it gets one."""

    reason: str
    message: str
    grace: timedelta
    mark: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class PodContext:
    """The node of a pod, and the agent's state of the pod.

    ip:       the node's.
    pod_ip:   the pod's own, if it has one.
    cut_off:  the node's lease expired and the pod must not run: the time within which it has to be stopped.
    sandbox_lost: its sandbox no longer exists: its containers are stopped for a new one.
    evicted:  why the node evicts it, such as a volume that is too large.
    held, images: by container name; images are ids.
    busy:     names of containers for which an operation, such as a pull, is in progress.
    health:   of runs with probes, by name and attempt.
    post_start_pending: runs whose postStart hook has not ended.
    past:     of its runs, what the runtime does not list.
    """

    runtime: str = ""
    ip: str = ""
    pod_ip: str = ""
    cut_off: timedelta | None = None
    sandbox_lost: bool = False
    evicted: Evicted | None = None
    held: Mapping[str, SetupDelay] = field(default_factory=dict)
    images: Mapping[str, str] = field(default_factory=dict)
    busy: Container[str] = ()
    health: Mapping[tuple[str, int], Health] = field(default_factory=dict)
    post_start_pending: Container[tuple[str, int]] = ()
    past: Past = NO_PAST


NO_CONTEXT = PodContext()


def is_only_starting(status: PodStatus) -> bool:
    """Not worth a report yet: every container is about to start for the first time."""
    return status.phase == "Pending" and all(
        each.state is not None and each.state.waiting is not None and each.state.waiting.reason in STARTING
        for each in (*status.init_container_statuses, *status.container_statuses)
    )


STARTING = ("ContainerCreating", "PodInitializing")


def build_status(pod: Pod, members: Sequence[Member], phase: str, now: datetime, place: PodContext) -> PodStatus:
    """The whole status; fields of other writers stay."""
    inits = tuple(_build_container_status(pod, member, phase, now, place) for member in members if member.role != "app")
    apps = tuple(_build_container_status(pod, member, phase, now, place) for member in members if member.role == "app")
    old = pod.status
    has_started = any(member.runs for member in members)
    ip = place.pod_ip or old.pod_ip or (place.ip if has_started else "")
    return replace(
        old,
        phase=phase,
        conditions=_build_conditions(pod, members, phase, now),
        host_ip=old.host_ip or place.ip,
        host_ips=old.host_ips or _host_ips(place.ip),
        pod_ip=ip,
        pod_ips=old.pod_ips if ip == old.pod_ip and old.pod_ips else _pod_ips(ip),
        start_time=old.start_time or now.replace(microsecond=0),
        init_container_statuses=inits,
        container_statuses=apps,
    )


def finish_status(status: PodStatus, reason: str, message: str, now: datetime, place: PodContext) -> PodStatus:
    """The status of a pod that has just ended, with the reason, and with DisruptionTarget if the node stopped it."""
    mark = place.evicted.mark if place.evicted else LOST_CONTACT if place.cut_off is not None else ""
    if mark and status.phase == "Failed":
        status = replace(status, conditions=with_condition(status.conditions, _disruption_target(mark, now)))
    return replace(status, reason=reason or status.reason, message=message or status.message)


def merge_status(ours: PodStatus, theirs: PodStatus) -> PodStatus:
    """The agent's status of a pod with fields of other writers from the API's copy. A terminal phase is never reverted."""
    if has_ended(theirs) and not has_ended(ours):
        return theirs
    foreign = {each.type: each for each in (*ours.conditions, *theirs.conditions) if each.type not in OURS}
    own = tuple(each for each in ours.conditions if each.type in OURS)
    return replace(ours, conditions=(*own, *foreign.values()), qos_class=theirs.qos_class or ours.qos_class)


def _host_ips(ip: str) -> tuple[HostIP, ...]:
    return (HostIP(ip=ip),) if ip else ()


def _pod_ips(ip: str) -> tuple[PodIP, ...]:
    return (PodIP(ip=ip),) if ip else ()


# Containers


def _build_container_status(pod: Pod, member: Member, phase: str, now: datetime, place: PodContext) -> ContainerStatus:
    container = member.container
    started = [
        run for run in (member.runs[:-1] if member.post_start_pending else member.runs) if run.state != "created"
    ]
    shown = started[-1] if started else None
    state = _build_state(pod, member, phase, now, place)
    before = shown if state.waiting else started[-2] if len(started) > 1 else None
    done = member.role == "init" and member.has_succeeded
    return ContainerStatus(
        name=container.name,
        state=state,
        last_state=ContainerState(terminated=_build_terminated(before, place)) if before else None,
        ready=done or (member.is_ready and member.role != "init"),
        started=member.is_started,
        restart_count=shown.attempt if shown else 0,
        image=container.image,
        image_id=place.images.get(container.name) or _image_id(pod, container) if shown else "",
        container_id=_id(shown, place) if shown else "",
    )


def _build_state(pod: Pod, member: Member, phase: str, now: datetime, place: PodContext) -> ContainerState:
    last = member.last
    hold = place.held.get(member.container.name)
    if last is not None and last.state == "running":
        if member.post_start_pending:
            return _post_start_state(pod, member)
        return ContainerState(running=ContainerStateRunning(started_at=_truncate(last.started_at)))
    if phase not in TERMINAL:
        if hold is not None and hold.reason and not member.has_ended:
            return _waiting(hold.reason, hold.message)
        if last is not None and member.next_at is not None and member.next_at > now:
            return _waiting("CrashLoopBackOff", _back_off_message(pod, member))
    exited = [run for run in member.runs if run.state == "exited"]
    if exited and not (member.role == "init" and member.stale and member.next_at):
        return ContainerState(terminated=_build_terminated(exited[-1], place))
    return _waiting_to_start(pod)


def _post_start_state(pod: Pod, member: Member) -> ContainerState:
    """Kubernetes shows a container as running after its postStart hook has ended."""
    if member.health.unwell is not None:
        return _waiting("PostStartHookError", member.health.unwell.why)
    return _waiting_to_start(pod)


def _waiting_to_start(pod: Pod) -> ContainerState:
    return _waiting("PodInitializing" if pod.spec.init_containers else "ContainerCreating", "")


def _waiting(reason: str, message: str) -> ContainerState:
    return ContainerState(waiting=ContainerStateWaiting(reason=reason, message=message))


def _back_off_message(pod: Pod, member: Member) -> str:
    meta, last = pod.metadata, member.runs[-1]
    ended_at = last.finished_at or last.started_at
    wait = member.next_at - ended_at if member.next_at and ended_at else timedelta()
    who = f"container={member.container.name} pod={meta.name}_{meta.namespace}({meta.uid})"
    return f"back-off {format_duration(wait)} restarting failed {who}"


def format_duration(span: timedelta) -> str:
    """`1m20s`, as Go writes it."""
    minutes, seconds = divmod(int(span.total_seconds()), 60)
    return f"{minutes}m{seconds}s" if minutes else f"{seconds}s"


def _build_terminated(run: Run, place: PodContext) -> ContainerStateTerminated:
    started_at, finished_at = _truncate(run.started_at), _truncate(run.finished_at)
    if started_at and finished_at:
        finished_at = max(started_at, finished_at)  # engines sometimes report an end before the start
    return ContainerStateTerminated(
        exit_code=UNKNOWN_EXIT if run.exit_code is None else run.exit_code,
        reason=run.reason or _reason(run),
        message=run.message,
        started_at=started_at,
        finished_at=finished_at,
        container_id=_id(run, place),
    )


def _reason(run: Run) -> str:
    if run.exit_code is None:
        return "ContainerStatusUnknown"
    return "Error" if has_failed(run) else "Completed"


def _id(run: Run, place: PodContext) -> str:
    return f"{place.runtime}://{run.id}" if run.id else ""


def _image_id(pod: Pod, container: ContainerSpec) -> str:
    """As reported before, by an agent that knew it; its name, for a runtime without images."""
    reported = (*pod.status.init_container_statuses, *pod.status.container_statuses)
    return next((each.image_id for each in reported if each.name == container.name and each.image_id), container.image)


def _truncate(at: datetime | None) -> datetime | None:
    return at.replace(microsecond=0) if at else None


# Conditions


def _build_conditions(pod: Pod, members: Sequence[Member], phase: str, now: datetime) -> tuple[Condition, ...]:
    """The kubelet's, then those of other writers; each keeps its transition time unless its status changed."""
    old = pod.status
    before = {each.type: each for each in old.conditions}
    containers = _build_ready("ContainersReady", members, phase)
    ours = (
        Condition(
            type="PodReadyToStartContainers", status=_bool_text(phase not in TERMINAL and any(m.runs for m in members))
        ),
        _build_initialized(members, phase),
        _build_pod_ready(pod, before, replace(containers, type="Ready")),
        containers,
    )
    kept = tuple(each for each in old.conditions if each.type not in OURS)
    return (*(_keep_transition_time(each, before.get(each.type), now) for each in ours), *kept)


def _build_initialized(members: Iterable[Member], phase: str) -> Condition:
    if phase == "Succeeded":
        return Condition(type="Initialized", status="True", reason="PodCompleted")
    open_ = [m.container.name for m in members if m.role != "app" and not _is_initialized(m)]
    return _build_condition("Initialized", open_, "ContainersNotInitialized", "incomplete status")


def _is_initialized(member: Member) -> bool:
    return member.has_started if member.role == "sidecar" else member.has_succeeded


def _build_ready(kind: str, members: Iterable[Member], phase: str) -> Condition:
    if phase in TERMINAL:
        return Condition(type=kind, status="False", reason="PodCompleted" if phase == "Succeeded" else "PodFailed")
    unready = [m.container.name for m in members if m.role != "init" and not m.is_ready]
    return _build_condition(kind, unready, "ContainersNotReady", "unready status")


def _build_pod_ready(pod: Pod, conditions: Mapping[str, Condition], containers: Condition) -> Condition:
    """Ready if its containers are, and if the conditions of all readiness gates are true."""
    missing = list(_unmet_gates(pod, conditions)) if pod.spec.readiness_gates and containers.status == "True" else []
    if not missing:
        return containers
    return Condition(type="Ready", status="False", reason="ReadinessGatesNotReady", message=", ".join(missing))


def _unmet_gates(pod: Pod, conditions: Mapping[str, Condition]) -> Iterator[str]:
    for gate in pod.spec.readiness_gates:
        name = gate.condition_type
        if name not in conditions:
            yield f'corresponding condition of pod readiness gate "{name}" does not exist.'
        elif conditions[name].status != "True":
            yield f'the status of pod readiness gate "{name}" is not "True", but {conditions[name].status}'


def _build_condition(kind: str, names: Sequence[str], reason: str, what: str) -> Condition:
    if not names:
        return Condition(type=kind, status="True")
    return Condition(type=kind, status="False", reason=reason, message=f"containers with {what}: [{' '.join(names)}]")


def _disruption_target(why: str, now: datetime) -> Condition:
    return Condition(
        type="DisruptionTarget",
        status="True",
        reason="TerminationByKubelet",
        message=why,
        last_transition_time=now.replace(microsecond=0),
    )


def _keep_transition_time(new: Condition, old: Condition | None, now: datetime) -> Condition:
    same = old is not None and old.status == new.status
    at = old.last_transition_time if same and old else now.replace(microsecond=0)
    return replace(new, last_transition_time=at)


def _bool_text(value: bool) -> str:
    return "True" if value else "False"
