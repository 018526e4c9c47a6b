"""Validation of probes and hooks. Part of `app.kinds.pod.pod_validation`."""

from collections.abc import Iterator
from typing import Any, get_type_hints

from app.kinds.pod.container import Container
from app.kinds.pod.probe import HTTPGetAction, Lifecycle, LifecycleHandler, Probe
from app.machinery import name_validation
from app.machinery.base import IntOrString
from app.machinery.errors import Cause, forbidden, invalid, not_supported, required
from app.machinery.meta.metadata_validation import NEGATIVE

# What may stop a container: what the schema says it may be.
SIGNALS: tuple[str, ...] = get_type_hints(Lifecycle, include_extras=True)["stop_signal"].__metadata__[0].extra["enum"]


def validate_probes(container: Container, grace: int, path: str) -> Iterator[Cause]:
    """A container's hooks and its three probes."""
    if lifecycle := container.lifecycle:
        for wire, hook in (("postStart", lifecycle.post_start), ("preStop", lifecycle.pre_stop)):
            if hook:
                yield from _action(hook, grace, f"{path}.lifecycle.{wire}")
        if lifecycle.stop_signal and lifecycle.stop_signal not in SIGNALS:
            yield not_supported(f"{path}.lifecycle.stopSignal", lifecycle.stop_signal, SIGNALS)
    yield from _live_probe(container.liveness_probe, grace, f"{path}.livenessProbe")
    if probe := container.readiness_probe:
        yield from _probe(probe, grace, f"{path}.readinessProbe")
        if probe.termination_grace_period_seconds is not None:
            wire, text = "terminationGracePeriodSeconds", "must not be set for readinessProbes"
            yield invalid(f"{path}.readinessProbe.{wire}", probe.termination_grace_period_seconds, text)
    yield from _live_probe(container.startup_probe, grace, f"{path}.startupProbe")


def forbid_probes(container: Container, path: str) -> Iterator[Cause]:
    """Plain init containers have none of them."""
    for wire, value in (
        ("lifecycle", container.lifecycle),
        ("livenessProbe", container.liveness_probe),
        ("readinessProbe", container.readiness_probe),
        ("startupProbe", container.startup_probe),
    ):
        if value is not None:
            yield forbidden(f"{path}.{wire}", "may not be set for init containers without restartPolicy=Always")


def _live_probe(probe: Probe | None, grace: int, path: str) -> Iterator[Cause]:
    if probe:
        yield from _probe(probe, grace, path)
        if probe.success_threshold != 1:
            yield invalid(f"{path}.successThreshold", probe.success_threshold, "must be 1")


def _probe(probe: Probe, grace: int, path: str) -> Iterator[Cause]:
    yield from _action(probe, grace, path)
    for wire, value in (
        ("initialDelaySeconds", probe.initial_delay_seconds),
        ("timeoutSeconds", probe.timeout_seconds),
        ("periodSeconds", probe.period_seconds),
        ("successThreshold", probe.success_threshold),
        ("failureThreshold", probe.failure_threshold),
    ):
        if value < 0:
            yield invalid(f"{path}.{wire}", value, NEGATIVE)
    seconds = probe.termination_grace_period_seconds
    if seconds is not None and seconds <= 0:
        yield invalid(f"{path}.terminationGracePeriodSeconds", seconds, "must be greater than 0")


def _action(handler: Probe | LifecycleHandler, grace: int, path: str) -> Iterator[Cause]:
    actions: list[tuple[str, Any]] = [
        ("exec", handler.exec),
        ("httpGet", handler.http_get),
        ("tcpSocket", handler.tcp_socket),
        ("grpc", handler.grpc if isinstance(handler, Probe) else None),
        ("sleep", handler.sleep if isinstance(handler, LifecycleHandler) else None),
    ]
    given = [(wire, action) for wire, action in actions if action is not None]
    if not given:
        yield required(path, "must specify a handler type")
        return
    wire, action = given[0]
    yield from _validate_action(wire, action, grace, f"{path}.{wire}")
    for wire, _ in given[1:]:
        yield forbidden(f"{path}.{wire}", "may not specify more than 1 handler type")


def _validate_action(wire: str, action: Any, grace: int, path: str) -> Iterator[Cause]:
    if wire == "exec":
        if not action.command:
            yield required(f"{path}.command")
    elif wire == "httpGet":
        yield from _http(action, path)
    elif wire == "sleep":
        if not 0 <= action.seconds <= grace:
            text = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
            yield invalid(path, action.seconds, text)
    else:
        yield from _port(action.port, f"{path}.port")


def _http(action: HTTPGetAction, path: str) -> Iterator[Cause]:
    if not action.path:
        yield required(f"{path}.path")
    yield from _port(action.port, f"{path}.port")
    if action.scheme not in ("HTTP", "HTTPS"):
        yield not_supported(f"{path}.scheme", action.scheme, ("HTTP", "HTTPS"))
    for header in action.http_headers:
        for text in name_validation.http_header(header.name):
            yield invalid(f"{path}.httpHeaders", header.name, text)


def _port(port: IntOrString | None, path: str) -> Iterator[Cause]:
    value = 0 if port is None else port
    for text in name_validation.port_name(value) if isinstance(value, str) else name_validation.port_number(value):
        yield invalid(path, value, text)
