"""Columns of `kubectl get pods`, and a pod's row as kubectl's users know it."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from app.kinds.pod.container import ContainerState, ContainerStateTerminated, ContainerStatus
from app.kinds.pod.pod_schema import Pod
from app.kinds.pod.pod_state import is_terminal
from app.machinery.base import Column
from app.machinery.durations import age
from app.machinery.meta.conditions import condition, is_true

COLUMNS = (
    Column(name="Name", format="name", description="Name of the pod."),
    Column(name="Ready", description="Containers that are ready, of all."),
    Column(name="Status", description="How the pod fares, in one word."),
    Column(name="Restarts", description="How often its containers were restarted, and how long ago last."),
    Column(name="Age", description="Time since it was created."),
    Column(name="IP", priority=1, description="Its address."),
    Column(name="Node", priority=1, description="The node that it runs on."),
    Column(name="Nominated Node", priority=1, description="The node that is being cleared for it."),
    Column(name="Readiness Gates", priority=1, description="Readiness gates that are open, of all."),
)

NONE = "<none>"


def row(pod: Pod, now: datetime) -> list[Any]:
    status = pod.status
    sidecars = {each.name for each in pod.spec.init_containers if each.restart_policy == "Always"}
    initialising = _initialising(pod, sidecars)
    started = not initialising or is_true(status.conditions, "Initialized")
    ready = sum(
        _is_ready_sidecar(each, sidecars) for each in _ended_init_containers(status.init_container_statuses, sidecars)
    )
    if started:
        counted = [
            each for each in _reached_init_containers(status.init_container_statuses, sidecars) if each.name in sidecars
        ]
        counted += status.container_statuses
        ready += sum(_is_up(each) for each in status.container_statuses)
    else:
        counted = [*_reached_init_containers(status.init_container_statuses, sidecars)]
    ip = status.pod_ips[0].ip if status.pod_ips else ""
    return [
        pod.metadata.name,
        f"{ready}/{len(pod.spec.containers) + len(sidecars)}",
        _word(pod, initialising, started),
        _restarts(counted, now),
        age(pod.metadata.creation_timestamp, now),
        ip or NONE,
        pod.spec.node_name or NONE,
        status.nominated_node_name or NONE,
        _gates(pod),
    ]


def _word(pod: Pod, initialising: str, started: bool) -> str:
    if pod.metadata.deletion_timestamp and pod.status.reason == "NodeLost":
        return "Unknown"
    if pod.metadata.deletion_timestamp and not is_terminal(pod):
        return "Terminating"
    word = initialising or _gated_reason(pod) or pod.status.reason or pod.status.phase
    if not started:
        return word
    for status in reversed(pod.status.container_statuses):
        word = _state_word(status.state or ContainerState()) or word
    if word == "Completed" and any(map(_is_up, pod.status.container_statuses)):
        return "Running" if is_true(pod.status.conditions, "Ready") else "NotReady"
    return word


def _gated_reason(pod: Pod) -> str:
    found = condition(pod.status.conditions, "PodScheduled")
    return "SchedulingGated" if found and found.reason == "SchedulingGated" else ""


def _state_word(state: ContainerState) -> str:
    if state.waiting and state.waiting.reason:
        return state.waiting.reason
    return _end_word(state.terminated) if state.terminated else ""


def _end_word(ended: ContainerStateTerminated) -> str:
    return ended.reason or (f"Signal:{ended.signal}" if ended.signal else f"ExitCode:{ended.exit_code}")


def _initialising(pod: Pod, sidecars: set[str]) -> str:
    """The word for a pod whose init containers are not through; empty if they are."""
    statuses = pod.status.init_container_statuses
    for index, status in enumerate(statuses):
        if _is_through(status, sidecars):
            continue
        state = status.state or ContainerState()
        if state.terminated:
            return f"Init:{_end_word(state.terminated)}"
        if state.waiting and state.waiting.reason not in ("", "PodInitializing"):
            return f"Init:{state.waiting.reason}"
        return f"Init:{index}/{len(pod.spec.init_containers)}"
    return ""


def _is_through(status: ContainerStatus, sidecars: set[str]) -> bool:
    """The next init container may start: this one succeeded, or is a sidecar that has started."""
    ended = status.state.terminated if status.state else None
    if ended and ended.exit_code == 0:
        return True
    return status.name in sidecars and bool(status.started)


def _ended_init_containers(statuses: tuple[ContainerStatus, ...], sidecars: set[str]) -> Iterable[ContainerStatus]:
    for status in statuses:
        if not _is_through(status, sidecars):
            return
        yield status


def _reached_init_containers(statuses: tuple[ContainerStatus, ...], sidecars: set[str]) -> Iterable[ContainerStatus]:
    """Those that had their turn: all that are through, and the one that is not."""
    for status in statuses:
        yield status
        if not _is_through(status, sidecars):
            return


def _is_ready_sidecar(status: ContainerStatus, sidecars: set[str]) -> bool:
    ended = status.state.terminated if status.state else None
    return status.name in sidecars and status.ready and not (ended and ended.exit_code == 0)


def _is_up(status: ContainerStatus) -> bool:
    return status.ready and status.state is not None and status.state.running is not None


def _restarts(statuses: Iterable[ContainerStatus], now: datetime) -> str:
    """The count, and how long ago the last run ended that a restart followed."""
    total, last = 0, None
    for status in statuses:
        total += status.restart_count
        ended = status.last_state.terminated if status.last_state else None
        if ended and ended.finished_at and (last is None or ended.finished_at > last):
            last = ended.finished_at
    return f"{total} ({age(last, now)} ago)" if total and last else str(total)


def _gates(pod: Pod) -> str:
    gates = pod.spec.readiness_gates
    if not gates:
        return NONE
    opened = sum(is_true(pod.status.conditions, gate.condition_type) for gate in gates)
    return f"{opened}/{len(gates)}"
