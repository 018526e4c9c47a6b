"""Probes, hooks and the actions that they take."""

from typing import Annotated

import msgspec

from app.machinery.base import (
    TOLD,
    Int32,
    Int64,
    IntOrString,
    Struct,
    at,
)

_PLAIN_SIGNALS = (
    "ABRT ALRM BUS CHLD CLD CONT FPE HUP ILL INT IO IOT KILL PIPE POLL PROF PWR QUIT RTMAX RTMIN SEGV STKFLT STOP SYS TERM "
    "TRAP TSTP TTIN TTOU URG USR1 USR2 VTALRM WINCH XCPU XFSZ"
)
_REAL_TIME = (*(f"RTMAX-{each}" for each in range(1, 15)), *(f"RTMIN+{each}" for each in range(1, 16)))
SIGNALS = tuple(sorted(f"SIG{each}" for each in (*_PLAIN_SIGNALS.split(), *_REAL_TIME)))
"""What may stop a container."""


class ExecAction(Struct):
    """Runs a command in the container; it succeeds with exit code 0."""

    command: Annotated[tuple[str, ...], at(1, "argv. No shell takes part unless it is named.")] = ()


class HTTPHeader(Struct):
    """One header of an HTTP request."""

    name: Annotated[str, at(1, "Name of the header.", required=True)] = ""
    value: Annotated[str, at(2, "Value of the header.", required=True)] = TOLD


class HTTPGetAction(Struct):
    """Sends an HTTP GET; it succeeds with a status from 200 to 399."""

    path: Annotated[str, at(1, "Path to ask for.")] = ""
    port: Annotated[IntOrString | None, at(2, "Number, or name of a container port.", required=True)] = None
    host: Annotated[str, at(3, "Host to ask; the pod's IP if empty.")] = ""
    scheme: Annotated[str, at(4, "HTTP or HTTPS.", enum=("HTTP", "HTTPS"))] = ""
    http_headers: Annotated[tuple[HTTPHeader, ...], at(5, "Headers to send along.")] = ()
    protocol: Annotated[str, at(6, "Protocol version to speak.")] = ""


class TCPSocketAction(Struct):
    """Opens a TCP connection; it succeeds if that is accepted."""

    port: Annotated[IntOrString | None, at(1, "Number, or name of a container port.", required=True)] = None
    host: Annotated[str, at(2, "Host to connect to; the pod's IP if empty.")] = ""


class GRPCAction(Struct):
    """Calls the gRPC health service of the container."""

    port: Annotated[Int32, at(1, "Port that gRPC listens on.", required=True)] = 0
    service: Annotated[str, at(2, "Service whose health is asked for.", default="")] = ""
    mode: Annotated[str, at(3, "How the connection is made.")] = ""


class SleepAction(Struct):
    """Waits, and succeeds."""

    seconds: Annotated[Int64, at(1, "How long to wait.", required=True)] = msgspec.field(default_factory=lambda: 0)


class Probe(Struct):
    """How often and how to ask a container how it is; exactly one of the four actions is set."""

    exec: Annotated[ExecAction | None, at(1, "Run a command.", via=(1,))] = None
    http_get: Annotated[HTTPGetAction | None, at(2, "Send an HTTP GET.", via=(1,))] = None
    tcp_socket: Annotated[TCPSocketAction | None, at(3, "Open a TCP connection.", via=(1,))] = None
    grpc: Annotated[GRPCAction | None, at(4, "Call the gRPC health service.", via=(1,))] = None
    initial_delay_seconds: Annotated[Int32, at(2, "Wait this long after the start.")] = 0
    timeout_seconds: Annotated[Int32, at(3, "An answer later than this counts as a failure; 1 by default.")] = 0
    period_seconds: Annotated[Int32, at(4, "Time from one probe to the next; 10 by default.")] = 0
    success_threshold: Annotated[Int32, at(5, "Successes in a row that mend a failure; 1 by default.")] = 0
    failure_threshold: Annotated[Int32, at(6, "Failures in a row that count; 3 by default.")] = 0
    termination_grace_period_seconds: Annotated[
        Int64 | None, at(7, "Grace for the stop that a failure causes, in place of the pod's.")
    ] = None


class LifecycleHandler(Struct):
    """What a hook does; exactly one of these is set."""

    exec: Annotated[ExecAction | None, at(1, "Run a command.")] = None
    http_get: Annotated[HTTPGetAction | None, at(2, "Send an HTTP GET.")] = None
    tcp_socket: Annotated[TCPSocketAction | None, at(3, "Kept for old manifests; always fails.")] = None
    sleep: Annotated[SleepAction | None, at(4, "Wait.")] = None


class Lifecycle(Struct):
    """What happens around a container's life."""

    post_start: Annotated[
        LifecycleHandler | None, at(1, "Right after the start; if it fails, the container is killed.")
    ] = None
    pre_stop: Annotated[
        LifecycleHandler | None, at(2, "Before the stop signal; its time counts towards the grace period.")
    ] = None
    stop_signal: Annotated[str, at(3, "Signal that stops the container, such as SIGTERM.", enum=SIGNALS)] = ""
