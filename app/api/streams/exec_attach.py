"""Exec and attach, the client's side: the streams of one command over WebSocket channels or SPDY.

`pod_streams` authorizes, resolves the container, and returns `upgrade_to_command(request, asked, application)`. The
application gets `CommandStreams`, reads and writes its channels, and returns the final Status, or raises ApiError.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from starlette.requests import Request

from app.api.http import errors, websocket
from app.api.http.connection import UpgradedConnection
from app.api.http.query import parse_flag
from app.api.http.websocket import WebSocket
from app.api.streams import spdy_connection, websocket_channels
from app.api.streams.channels import Channel, ClientGoneError, Link, Upgrade
from app.api.streams.spdy_connection import SpdyConnection, SpdyStream, StreamRejectedError
from app.api.streams.websocket_channels import CODECS, ChannelSocket, Codec
from app.machinery.errors import bad_request
from app.structured_logging import Logger

STREAMS_SECONDS = 30.0  # for a client to open all requested streams
ANSWER_SECONDS = 1.0  # for a WebSocket's client to answer a ping
SETTLE_SECONDS = 0.02  # after that, for the client to create its streams
_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE = "stdin", "stdout", "stderr", "error", "resize"
_NUMBERS = (_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE)  # of WebSocket channels
# SPDY protocol versions; v4 ends with a Status.
_SPDY = {
    "v4.channel.k8s.io": Codec(status=True),
    "v3.channel.k8s.io": Codec(),
    "v2.channel.k8s.io": Codec(),
    "channel.k8s.io": Codec(),
    "": Codec(),
}
_RESIZING = {"v3.channel.k8s.io", "v4.channel.k8s.io"}

Status = dict[str, Any]
logger = Logger(__name__)


@dataclass(frozen=True)
class RequestedStreams:
    """The streams that a client requests. A terminal has a single output stream."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False

    def names(self) -> set[str]:
        return {name for name in (_STDIN, _STDOUT, _STDERR) if getattr(self, name)}


def parse_requested_streams(pairs: Sequence[tuple[str, str]]) -> RequestedStreams:
    """Parse the requested streams of a query; 400 if there are none."""
    tty = parse_flag(pairs, "tty")
    found = RequestedStreams(
        parse_flag(pairs, _STDIN), parse_flag(pairs, _STDOUT), parse_flag(pairs, _STDERR) and not tty, tty
    )
    if not found.names():
        raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
    return found


@dataclass
class CommandStreams:
    """The streams of one command; None if not requested. `resize` carries a JSON object for every new terminal size."""

    stdin: Channel | None = None
    stdout: Channel | None = None
    stderr: Channel | None = None
    resize: Channel | None = None


Application = Callable[[CommandStreams], Awaitable[Status]]


def success_status() -> Status:
    return {"metadata": {}, "status": "Success"}


def exit_code_status(command: Sequence[str], code: int) -> Status:
    """Return the Status of a command with a non-zero exit code, as the kubelet's."""
    error = f"error executing command [{' '.join(command)}], exit code {code}"
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: {error}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def upgrade_to_command(
    request: Request, asked: RequestedStreams, application: Application, answer_seconds: float = ANSWER_SECONDS
) -> Upgrade:
    """Return the answer that runs `application` with the requested streams; 400 or 403 if no protocol fits."""
    if websocket.is_requested(request):
        protocol = websocket_channels.negotiate_protocol(request, CODECS)
        start = partial(_start_websocket, asked, application, CODECS[protocol], answer_seconds)
        return Upgrade(websocket.handshake_headers(request, protocol), start)
    if spdy_connection.is_requested(request):
        protocol = spdy_connection.negotiate_protocol(request, [each for each in _SPDY if each])
        return Upgrade(spdy_connection.handshake_headers(protocol), _SpdyCommand(asked, application, protocol).start)
    raise bad_request("Upgrade request required")


Started = tuple[Link, Coroutine[Any, Any, None]]


def _start_websocket(
    asked: RequestedStreams, application: Application, codec: Codec, answer_seconds: float, wire: UpgradedConnection
) -> Started:
    names = asked.names() | ({_RESIZE} if asked.tty else set())
    reads = {number for number, name in enumerate(_NUMBERS) if name in names & {_STDIN, _RESIZE}}
    link = ChannelSocket(WebSocket(wire), codec, len(_NUMBERS), reads)
    channels = dict(zip(_NUMBERS, link.channels, strict=True))
    command = CommandStreams(**{name: channels[name] for name in names})

    async def work() -> None:
        # client-go before 0.34 reads before it creates its streams, and drops messages for a missing stream, output too.
        # A pong shows that it reads; no message that every client sends shows that its streams exist.
        await link.wait_for_pong(answer_seconds)
        await asyncio.sleep(SETTLE_SECONDS)
        # An empty message on a stream that the client reads tells it that the connection is established.
        first = next((name for name in (_STDOUT, _STDERR) if name in names), _ERROR)
        with suppress(ConnectionError):  # a command still gets input from a client that has left
            await link.send(_NUMBERS.index(first), b"")
        await _run(application, command, channels[_ERROR], codec)

    return link, work()


@dataclass
class _SpdyCommand:
    """Exec or attach over SPDY: waits until the client has opened all streams, then runs the application."""

    asked: RequestedStreams
    application: Application
    protocol: str
    streams: dict[str, SpdyStream] = field(default_factory=dict)
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self, wire: UpgradedConnection) -> Started:
        return SpdyConnection(wire, self._on_stream), self._work()

    def _expected_streams(self) -> set[str]:
        resizes = self.asked.tty and self.protocol in _RESIZING
        return self.asked.names() | {_ERROR} | ({_RESIZE} if resizes else set())

    def _on_stream(self, stream: SpdyStream) -> None:
        if stream.kind in self.streams or stream.kind not in self._expected_streams():
            raise StreamRejectedError
        self.streams[stream.kind] = stream
        if self.streams.keys() == self._expected_streams():
            self.complete.set()

    async def _work(self) -> None:
        try:
            async with asyncio.timeout(STREAMS_SECONDS):
                await self.complete.wait()
        except TimeoutError:
            logger.info("timed out waiting for client to create streams")
            return
        error = self.streams[_ERROR]
        named = {name: stream for name, stream in self.streams.items() if name != _ERROR}
        await _run(self.application, CommandStreams(**named), error, _SPDY[self.protocol])


async def _run(application: Application, command: CommandStreams, error: Channel, codec: Codec) -> None:
    """Run the application, send its Status, then close all output channels."""
    try:
        status = await application(command)
    except ClientGoneError:
        raise  # the client is gone
    except Exception as failure:
        status = errors.as_api_error(failure).status()
    if codec.status:
        await error.write(json.dumps(status).encode())
    elif status["status"] != "Success":
        await error.write(status.get("message", "").encode())
    for channel in (command.stdout, command.stderr, error):
        if channel is not None:
            await channel.close()
