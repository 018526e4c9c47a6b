"""Exec and attach as clients open them: the streams of one command, over WebSocket channels or SPDY.

A route authorizes, finds its container, and returns `streaming(request, wanted, application)`. The application gets a
`Command`, reads and writes its channels, and returns the Status (or raises the ApiError) that the client ends with.
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
from app.api.http.connection import Wire
from app.api.http.query import flag
from app.api.http.websocket import WebSocket
from app.api.streams import spdy_connection, websocket_channels
from app.api.streams.channels import Channel, Gone, Link, Upgrade
from app.api.streams.spdy_connection import Refused, SpdyConnection, Stream
from app.api.streams.websocket_channels import CODECS, ChannelSocket, Codec
from app.machinery.errors import bad_request
from app.structured_logging import Logger

STREAMS_SECONDS = 30.0  # for a client to open all the streams that it asked for
ANSWER_SECONDS = 1.0  # for a WebSocket's client to answer a ping
SETTLE_SECONDS = 0.02  # for it to have made its streams, once it has
_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE = "stdin", "stdout", "stderr", "error", "resize"
_NUMBERS = (_STDIN, _STDOUT, _STDERR, _ERROR, _RESIZE)  # of WebSocket channels
# By which version of the protocol an SPDY connection resizes, and ends with a Status.
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
class Wanted:
    """Which streams a client asks for. A terminal has one stream of output only."""

    stdin: bool = False
    stdout: bool = False
    stderr: bool = False
    tty: bool = False

    def names(self) -> set[str]:
        return {name for name in (_STDIN, _STDOUT, _STDERR) if getattr(self, name)}


def wanted(pairs: Sequence[tuple[str, str]]) -> Wanted:
    """From the query of a request. 400 if it asks for none."""
    tty = flag(pairs, "tty")
    found = Wanted(flag(pairs, _STDIN), flag(pairs, _STDOUT), flag(pairs, _STDERR) and not tty, tty)
    if not found.names():
        raise bad_request("you must specify at least 1 of stdin, stdout, stderr")
    return found


@dataclass
class Command:
    """The streams of one command; None where the client asked for none. `resize` has a JSON object for every new size."""

    stdin: Channel | None = None
    stdout: Channel | None = None
    stderr: Channel | None = None
    resize: Channel | None = None


Application = Callable[[Command], Awaitable[Status]]


def succeeded() -> Status:
    return {"metadata": {}, "status": "Success"}


def exited(command: Sequence[str], code: int) -> Status:
    """What a command ends with whose exit code is not 0."""
    said = f"error executing command [{' '.join(command)}], exit code {code}"
    return {
        "metadata": {},
        "status": "Failure",
        "message": f"command terminated with non-zero exit code: {said}",
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": str(code)}]},
    }


def streaming(
    request: Request, asked: Wanted, application: Application, answer_seconds: float = ANSWER_SECONDS
) -> Upgrade:
    """The answer that runs `application` with the streams that were asked for; 400 or 403 if they cannot be had."""
    if websocket.is_asked(request):
        protocol = websocket_channels.chosen(request, CODECS)
        start = partial(_over_websocket, asked, application, CODECS[protocol], answer_seconds)
        return Upgrade(websocket.accepting(request, protocol), start)
    if spdy_connection.is_asked(request):
        protocol = spdy_connection.chosen(request, [each for each in _SPDY if each])
        return Upgrade(spdy_connection.accepting(protocol), _OverSpdy(asked, application, protocol).start)
    raise bad_request("Upgrade request required")


Started = tuple[Link, Coroutine[Any, Any, None]]


def _over_websocket(
    asked: Wanted, application: Application, codec: Codec, answer_seconds: float, wire: Wire
) -> Started:
    names = asked.names() | ({_RESIZE} if asked.tty else set())
    reads = {number for number, name in enumerate(_NUMBERS) if name in names & {_STDIN, _RESIZE}}
    link = ChannelSocket(WebSocket(wire), codec, len(_NUMBERS), reads)
    channels = dict(zip(_NUMBERS, link.channels, strict=True))
    command = Command(**{name: channels[name] for name in names})

    async def work() -> None:
        # client-go before 0.34 begins to read just before it makes its streams, and throws away what comes for one that is
        # not made yet, output too. An answer shows that it reads; nothing that every client sends shows that it is ready.
        await link.answered(answer_seconds)
        await asyncio.sleep(SETTLE_SECONDS)
        # An empty message, on what the client is sure to read, tells it that the connection stands.
        first = next((name for name in (_STDOUT, _STDERR) if name in names), _ERROR)
        with suppress(ConnectionError):  # what a client has sent before it left is for the command all the same
            await link.send(_NUMBERS.index(first), b"")
        await _run(application, command, channels[_ERROR], codec)

    return link, work()


@dataclass
class _OverSpdy:
    """Waits until the client has opened all its streams, then runs."""

    asked: Wanted
    application: Application
    protocol: str
    streams: dict[str, Stream] = field(default_factory=dict)
    complete: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self, wire: Wire) -> Started:
        return SpdyConnection(wire, self._opened), self._work()

    def _expected(self) -> set[str]:
        resizes = self.asked.tty and self.protocol in _RESIZING
        return self.asked.names() | {_ERROR} | ({_RESIZE} if resizes else set())

    def _opened(self, stream: Stream) -> None:
        if stream.kind in self.streams or stream.kind not in self._expected():
            raise Refused
        self.streams[stream.kind] = stream
        if self.streams.keys() == self._expected():
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
        await _run(self.application, Command(**named), error, _SPDY[self.protocol])


async def _run(application: Application, command: Command, error: Channel, codec: Codec) -> None:
    """The command, then its outcome, then the end of all that it could write to."""
    try:
        status = await application(command)
    except Gone:
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
