"""Exec, attach and port-forward of pods: validates the request, calls the agent of the pod's node, and connects the two.

`kubernetes` dispatches to `SPECIAL`. The agent is called before the client's connection is upgraded. An SPDY client gets the
agent's refusal as the response, as in Kubernetes; a WebSocket is accepted first and gets the refusal on its error channel,
because kubectl takes any other answer for a server without WebSockets.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, cast

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.http import errors, websocket
from app.api.http.query import first_value, query_of
from app.api.resources.routes import RequestInfo
from app.api.streams.agent_calls import Calls, DialError, Line, RefusedError
from app.api.streams.channels import Channel, Upgrade
from app.api.streams.exec_attach import (
    CommandStreams,
    Status,
    exit_code_status,
    parse_requested_streams,
    success_status,
    upgrade_to_command,
)
from app.api.streams.port_forward import Forward, upgrade_to_port_forward
from app.api.streams.stream_options import resolve_container
from app.client.protocol import RESIZE, STDERR, STDIN, STDOUT, CallRequest
from app.kinds.pod.pod import Pod
from app.machinery.errors import ApiError, bad_request
from app.registry.codec import decode
from app.registry.verbs.objects import Registry, find

ALONE_SECONDS = 1.0  # for a command to end by itself, once its client is gone


async def execute(registry: Registry, request: Request, found: RequestInfo) -> ASGIApp:
    pod = await _find_scheduled_pod(registry, found)
    command = request.query_params.getlist("command")
    if not command:
        raise bad_request("you must specify at least one command for the container")
    return await _run_command(request, pod, "exec", command)


async def attach(registry: Registry, request: Request, found: RequestInfo) -> ASGIApp:
    return await _run_command(request, await _find_scheduled_pod(registry, found), "attach", ())


async def forward(registry: Registry, request: Request, found: RequestInfo) -> ASGIApp:
    """Port-forward. Every connection is its own call, so that a slow one blocks no other; a first call checks the pod."""
    pod = await _find_scheduled_pod(registry, found)
    calls, whole = _calls(request), make_request(pod, "forward")

    async def connect(forward: Forward) -> None:
        await _connect(calls, pod.spec.node_name, msgspec.structs.replace(whole, port=forward.port), forward)

    upgrade = upgrade_to_port_forward(request, connect)
    try:
        line = await calls.dial(pod.spec.node_name, whole)
    except (DialError, RefusedError) as error:
        return _error_response(error)
    line.hang_up()
    return upgrade


async def _find_scheduled_pod(registry: Registry, found: RequestInfo) -> Pod:
    """Return the pod; 400 if it is not scheduled yet."""
    pod = cast("Pod", decode(found.kind, await find(registry, found.kind, found.namespace or "", found.name)))
    if not pod.spec.node_name:
        raise bad_request(f"pod {found.name} does not have a host assigned")
    return pod


def make_request(pod: Pod, kind: str, container: str = "", command: Sequence[str] = (), port: int = 0) -> CallRequest:
    """Return the call to the agent of a pod's node."""
    meta = pod.metadata
    return CallRequest(
        kind=kind,
        uid=meta.uid,
        namespace=meta.namespace,
        name=meta.name,
        container=container,
        command=tuple(command),
        port=port,
    )


def _calls(request: Request) -> Calls:
    calls: Calls = request.scope["app"].state.calls
    return calls


async def _run_command(request: Request, pod: Pod, kind: str, argv: Sequence[str]) -> ASGIApp:
    pairs = query_of(request)
    asked = parse_requested_streams(pairs)
    whole = msgspec.structs.replace(
        make_request(pod, kind, resolve_container(pod, first_value(pairs, "container") or ""), argv),
        stdin=asked.stdin,
        stdout=asked.stdout,
        stderr=asked.stderr,
        tty=asked.tty,
    )
    conversation = _Conversation(_calls(request), pod.spec.node_name, whole)
    upgrade = replace(upgrade_to_command(request, asked, conversation.run), drain_seconds=ALONE_SECONDS)
    try:
        conversation.line = await conversation.calls.dial(conversation.node, whole)
    except (DialError, RefusedError) as error:
        if not websocket.is_requested(request):
            return _error_response(error)
        conversation.failure = error
    return _HangUpAfter(upgrade, conversation)


def _error_response(error: DialError | RefusedError) -> ASGIApp:
    """A failed dial is a Status of the API's; an agent's refusal is passed on as text, as a kubelet's is."""
    if isinstance(error, RefusedError):
        return PlainTextResponse(f"{error}\n", 500)
    return errors.response(ApiError(500, "", f"error dialing backend: {error}"))


@dataclass
class _Conversation:
    """One client's call to one container."""

    calls: Calls
    node: str
    wanted: CallRequest
    line: Line | None = None
    failure: Exception | None = None

    async def run(self, command: CommandStreams) -> Status:
        """Copy bytes both ways until the command has ended, and return its Status. Cancels all copying at the end."""
        if self.line is None:
            raise _internal_error(_failure_text(self.failure))
        sending = _start_tasks(_copy_inputs(self.line, command))
        carrying = _start_tasks(
            _copy_to_client(self.line, number, channel)
            for number, channel in ((STDOUT, command.stdout), (STDERR, command.stderr))
        )
        try:
            await asyncio.gather(*carrying)
            return await self._outcome(self.line)
        finally:
            await _cancel_tasks(*sending, *carrying)

    async def _outcome(self, line: Line) -> Status:
        word = await line.word()
        if word is None:
            raise _internal_error(f'the connection to the agent of node "{self.node}" was lost')
        if word.failed:
            raise _internal_error(word.failed)
        return exit_code_status(self.wanted.command, word.exit_code) if word.exit_code else success_status()

    def hang_up(self) -> None:
        if self.line is not None:
            self.line.hang_up()


@dataclass(frozen=True)
class _HangUpAfter:
    """Hangs up the call when the client's connection has ended, or was never upgraded."""

    upgrade: Upgrade
    conversation: _Conversation

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await self.upgrade(scope, receive, send)
        finally:
            self.conversation.hang_up()


def _failure_text(failure: Exception | None) -> str:
    prefix = "unable to upgrade connection" if isinstance(failure, RefusedError) else "error dialing backend"
    return f"{prefix}: {failure}"


def _internal_error(why: str) -> ApiError:
    return ApiError(500, "InternalError", f"Internal error occurred: {why}", causes=[{"message": why}])


def _start_tasks(works: Iterable[Coroutine[Any, Any, None]]) -> "list[asyncio.Task[None]]":
    return [asyncio.create_task(work) for work in works]


async def _cancel_tasks(*tasks: "asyncio.Task[None]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def _copy_inputs(line: Line, command: CommandStreams) -> Iterable[Coroutine[Any, Any, None]]:
    """Copy the client's input and sizes of its terminal to the agent."""
    for number, channel in ((STDIN, command.stdin), (RESIZE, command.resize)):
        if channel is not None:
            yield _copy_to_agent(line, number, channel)


async def _copy_to_agent(line: Line, number: int, channel: Channel) -> None:
    with suppress(ConnectionError):  # the agent is gone, or the command reads no more: its outcome tells
        while data := await channel.read():
            await line.write(number, data)
        await line.end(number)


async def _copy_to_client(line: Line, number: int, channel: Channel | None) -> None:
    while data := await line.read(number):
        if channel is not None:
            await channel.write(data)


async def _connect(calls: Calls, node: str, whole: CallRequest, forward: Forward) -> None:
    """Serve one forwarded connection. Errors reach the client as text."""
    where = f"error forwarding port {forward.port} to pod {whole.name}, uid {whole.uid}"
    try:
        line = await calls.dial(node, whole)
    except DialError as error:
        raise ConnectionError(f"{where}: error dialing backend: {error}") from error
    except RefusedError as error:
        raise ConnectionError(f"{where}: {error}") from error
    sending, carrying = _start_tasks(
        (_copy_to_agent(line, STDIN, forward.data), _copy_to_client(line, STDOUT, forward.data))
    )
    try:
        await asyncio.wait((sending, carrying), return_when=asyncio.FIRST_COMPLETED)
        if forward.data.is_gone:
            return
        await carrying
        word = await line.word()
        if word is None or word.failed:
            raise ConnectionError(f"{where}: {word.failed if word else 'the connection to the agent was lost'}")
    finally:
        await _cancel_tasks(sending, carrying)
        line.hang_up()


Answering = Callable[[Registry, Request, RequestInfo], Awaitable[ASGIApp]]
SPECIAL: dict[tuple[str, str, str], Answering] = {
    ("pods", name, method): answer
    for name, answer in (("exec", execute), ("attach", attach), ("portforward", forward))
    for method in ("GET", "POST")
}
