"""Probe results: whether a container is started, live and ready. Pure; `app.agent.pods.probes` runs probes, `sync_pod` acts."""

from datetime import datetime, timedelta
from typing import Literal, NamedTuple

from app.kinds.pod.container import Container, ContainerStatus
from app.kinds.pod.probe import Probe
from app.machinery.durations import after, span

Sort = Literal["startup", "liveness", "readiness"]
SORTS: tuple[Sort, ...] = ("startup", "liveness", "readiness")


class Unhealthy(NamedTuple):
    """Why a running container has to be stopped, and within which grace if not the pod's."""

    why: str
    grace: timedelta | None = None


class Health(NamedTuple):
    """Health of a run. `started`: its startup probe succeeded."""

    started: bool = True
    ready: bool = True
    unwell: Unhealthy | None = None


class ResultRun(NamedTuple):
    """The last result, and how many times in a row it occurred."""

    answer: bool | None = None
    times: int = 0

    def heard(self, answer: bool) -> "ResultRun":
        return ResultRun(answer, self.times + 1 if answer == self.answer else 1)


def apply_threshold(tally: ResultRun, probe: Probe) -> bool | None:
    """Return whether the probe succeeds or fails by its thresholds; None before one of them is reached."""
    enough = probe.success_threshold if tally.answer else probe.failure_threshold
    return tally.answer if tally.times >= max(enough, 1) else None


def probe_of(container: Container, sort: Sort) -> Probe | None:
    if sort == "startup":
        return container.startup_probe
    return container.liveness_probe if sort == "liveness" else container.readiness_probe


def has_probes(container: Container) -> bool:
    return bool(container.startup_probe or container.liveness_probe or container.readiness_probe)


def initial_health(container: Container, reported: ContainerStatus | None, attempt: int) -> Health:
    """Before the first result: as a previous agent reported this run, else not started and not ready."""
    known = (
        reported
        if reported and reported.state and reported.state.running and reported.restart_count == attempt
        else None
    )
    return Health(
        container.startup_probe is None or bool(known and known.started),
        container.readiness_probe is None or bool(known and known.ready),
    )


def first_at(probe: Probe, started_at: datetime) -> datetime:
    return after(started_at, probe.initial_delay_seconds)


def period(probe: Probe) -> timedelta:
    return span(max(probe.period_seconds, 1))


def timeout(probe: Probe) -> timedelta:
    return span(max(probe.timeout_seconds, 1))


def describe_failure(container: Container, sort: Sort, *, is_init: bool, restarts: bool) -> Unhealthy:
    """A container whose probe has failed, in the kubelet's words."""
    probe = probe_of(container, sort)
    grace = probe.termination_grace_period_seconds if probe else None
    text = f"{'Init container' if is_init else 'Container'} {container.name} failed {sort} probe"
    # The kubelet never announces the restart of an init container.
    return Unhealthy(
        f"{text}, will be restarted" if restarts and not is_init else text, None if grace is None else span(grace)
    )


def failure_message(sort: Sort, output: str) -> str:
    return f"{sort.capitalize()} probe failed: {output}"


def error_message(sort: Sort, output: str) -> str:
    return f"{sort.capitalize()} probe errored and resulted in unknown state: {output}"
