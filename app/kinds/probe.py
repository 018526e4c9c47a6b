"""Probes, hooks and the actions that they take."""

from typing import Annotated

from app.kinds.base import (
    Int32,
    Int64,
    IntOrString,
    Struct,
    at,
)


class ExecAction(Struct):
    """TODO-DOC"""

    command: Annotated[tuple[str, ...], at(1)] = ()


class HTTPHeader(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1)] = ""
    value: Annotated[str, at(2)] = ""


class HTTPGetAction(Struct):
    """TODO-DOC"""

    path: Annotated[str, at(1)] = ""
    port: Annotated[IntOrString | None, at(2)] = None
    host: Annotated[str, at(3)] = ""
    scheme: Annotated[str, at(4)] = ""
    http_headers: Annotated[tuple[HTTPHeader, ...], at(5)] = ()
    protocol: Annotated[str, at(6)] = ""


class TCPSocketAction(Struct):
    """TODO-DOC"""

    port: Annotated[IntOrString | None, at(1)] = None
    host: Annotated[str, at(2)] = ""


class GRPCAction(Struct):
    """TODO-DOC"""

    port: Annotated[Int32, at(1)] = 0
    service: Annotated[str, at(2)] = ""
    mode: Annotated[str, at(3)] = ""


class SleepAction(Struct):
    """TODO-DOC"""

    seconds: Annotated[Int64, at(1)] = 0


class Probe(Struct):
    """TODO-DOC"""

    exec: Annotated[ExecAction | None, at(1, via=(1,))] = None
    http_get: Annotated[HTTPGetAction | None, at(2, via=(1,))] = None
    tcp_socket: Annotated[TCPSocketAction | None, at(3, via=(1,))] = None
    grpc: Annotated[GRPCAction | None, at(4, via=(1,))] = None
    initial_delay_seconds: Annotated[Int32, at(2)] = 0
    timeout_seconds: Annotated[Int32, at(3)] = 0
    period_seconds: Annotated[Int32, at(4)] = 0
    success_threshold: Annotated[Int32, at(5)] = 0
    failure_threshold: Annotated[Int32, at(6)] = 0
    termination_grace_period_seconds: Annotated[Int64 | None, at(7)] = None


class LifecycleHandler(Struct):
    """TODO-DOC"""

    exec: Annotated[ExecAction | None, at(1)] = None
    http_get: Annotated[HTTPGetAction | None, at(2)] = None
    tcp_socket: Annotated[TCPSocketAction | None, at(3)] = None
    sleep: Annotated[SleepAction | None, at(4)] = None


class Lifecycle(Struct):
    """TODO-DOC"""

    post_start: Annotated[LifecycleHandler | None, at(1)] = None
    pre_stop: Annotated[LifecycleHandler | None, at(2)] = None
    stop_signal: Annotated[str, at(3)] = ""
