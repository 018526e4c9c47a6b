"""Agent calls: how an API process reaches an agent, which only dials out, whichever process each is connected to.

`Calls.dial` tells every process of the API, by a NOTIFY, that it waits for an agent of a node. Whoever holds a stream of
that agent's rings it there; the agent dials back with the call's id. The process that it lands on is the one that waits, or
relays to it (`app.api.streams.relay`). What is lost on the way is said again every second, so nothing of this must be kept.
"""

import asyncio
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.types import ASGIApp, Receive, Scope, Send

from app.api.http import websocket
from app.api.http.connection import UpgradedConnection
from app.api.http.response_streams import Sender, send_stream
from app.api.http.websocket import WebSocket
from app.api.streams.channels import Upgrade
from app.api.streams.relay import RELAYED, Relay
from app.api.streams.revocation import watch_revocation
from app.api.streams.websocket_channels import CODECS, ChannelSocket
from app.client.protocol import CONTROL, RESIZE, STDERR, STDOUT, CallNotice, CallReply, CallRequest
from app.machinery.errors import ApiError
from app.registry import AgentCalls as Notices

DIAL_SECONDS = (
    6.0  # for an agent to dial back: more than it takes one to find another process after the loss of its own
)
AGAIN_SECONDS = 1.0
KNOWN_SECONDS = 30.0  # that a call elsewhere is remembered
CLOSE_SECONDS = 1.0  # for an agent to take what is written to it, after a goodbye
STILL_SECONDS = 20.0  # after which an agent's stream shows that it lives
LONGEST_WORD = 64 * 1024
_CODEC = CODECS["v5.channel.k8s.io"]


class DialError(Exception):
    """No agent has answered."""


class RefusedError(Exception):
    """The agent refuses the call; the text is its reason, in a kubelet's words."""


@dataclass(frozen=True)
class Origin:
    """Where other processes of the API reach this one: nowhere, if it has no url. `certificate` is its SHA-256."""

    url: str = ""
    certificate: str = ""


class Notice(msgspec.Struct, frozen=True):
    """NOTIFY to all processes of the API about a call: its node, and the process that waits for it."""

    id: str
    node: str
    url: str = ""
    certificate: str = ""


class Line:
    """A call that an agent has answered. Its channels are numbered as in `app.client.protocol`."""

    def __init__(self, link: ChannelSocket, hang_up: Callable[[], None]) -> None:
        self._link = link
        self._words = bytearray()
        self.hang_up = hang_up

    async def read(self, channel: int) -> bytes:
        """Nothing once the agent has ended it, or is gone."""
        return await self._link.channels[channel].read()

    async def write(self, channel: int, data: bytes) -> None:
        await self._link.channels[channel].write(data)

    async def end(self, channel: int) -> None:
        await self._link.end(channel)

    async def word(self) -> CallReply | None:
        """The agent's next reply; None if it is gone."""
        while b"\n" not in self._words:
            more = await self.read(CONTROL)
            if not more or len(self._words) > LONGEST_WORD:
                return None
            self._words += more
        line, _, rest = bytes(self._words).partition(b"\n")
        self._words = bytearray(rest)
        return msgspec.json.decode(line, type=CallReply)


@dataclass(eq=False)
class _Call:
    """One that this process waits for. `over` ends the agent's connection."""

    node: str
    wanted: CallRequest
    answered: asyncio.Future[Line] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    over: asyncio.Event = field(default_factory=asyncio.Event)

    def start(self, wire: UpgradedConnection) -> tuple[ChannelSocket, Any]:
        link = ChannelSocket(WebSocket(wire), _CODEC, RESIZE + 1, {STDOUT, STDERR, CONTROL})
        return link, self._work(link)

    async def _work(self, link: ChannelSocket) -> None:
        await link.channels[CONTROL].write(msgspec.json.encode(self.wanted) + b"\n")
        if self.answered.done():  # it waits no longer, or another one was faster
            return
        self.answered.set_result(Line(link, self.over.set))
        await self.over.wait()


class Calls:
    """Those of one process of the API."""

    def __init__(self, notices: Notices, origin: Origin) -> None:
        self._notices, self._origin = notices, origin
        self._calls: dict[str, _Call] = {}
        self._elsewhere: dict[str, Notice] = {}
        self._listeners: dict[asyncio.Queue[Notice], Callable[[str], bool]] = {}
        notices.listen(self._on_notice)

    def set_origin(self, origin: Origin) -> None:
        """Announce calls with this origin from now on: the certificate is another."""
        self._origin = origin

    # The client's side

    async def dial(self, node: str, wanted: CallRequest) -> Line:
        """A line to the agent of a node, which is ready. The caller hangs up. Raises DialError, RefusedError."""
        call, id_ = _Call(node, wanted), secrets.token_urlsafe(16)
        self._calls[id_] = call
        try:
            async with asyncio.timeout(DIAL_SECONDS):
                line = await self._wait_for_answer(call, Notice(id_, node, self._origin.url, self._origin.certificate))
                word = await line.word()
        except TimeoutError:
            call.over.set()
            raise DialError(f'the agent of node "{node}" did not answer within {DIAL_SECONDS:.0f} seconds') from None
        except BaseException:
            call.over.set()
            raise
        finally:
            del self._calls[id_]
            call.answered.cancel()
        if word is not None and word.ready:
            return line
        line.hang_up()
        if word is None:
            raise DialError(f'the agent of node "{node}" has hung up')
        raise RefusedError(word.refused)

    async def _wait_for_answer(self, call: _Call, notice: Notice) -> Line:
        """Rings until the agent answers."""
        while not call.answered.done():
            await self._notices.post(msgspec.json.encode(notice).decode())
            await asyncio.wait((call.answered,), timeout=AGAIN_SECONDS)
        return call.answered.result()

    # The agent's side

    def ring_stream(self, speaks_for: Callable[[str], bool]) -> ASGIApp:
        """The stream in which an agent is rung: a line for each call of its nodes, and an empty one now and then."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-cache")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            with watch_revocation(scope) as refused:
                running = scope["app"].state.streams
                await send_stream(lambda sender: self._ring(speaks_for, sender), receive, send, running, refused)

        return answer

    async def _ring(self, speaks_for: Callable[[str], bool], sender: Sender) -> None:
        rings: asyncio.Queue[Notice] = asyncio.Queue()
        self._listeners[rings] = speaks_for
        try:
            await sender(b"\n")
            while True:
                try:
                    notice = await asyncio.wait_for(rings.get(), STILL_SECONDS)
                except TimeoutError:
                    await sender(b"\n")
                else:
                    await sender(msgspec.json.encode(CallNotice(notice.id, notice.node)) + b"\n")
        finally:
            del self._listeners[rings]

    def accept(self, request: Request, node: str, id_: str) -> ASGIApp:
        """The answer to an agent that dials back for `node`. 404 unless there is such a call, and it is for that node."""
        call, notice = self._calls.get(id_), self._elsewhere.get(id_)
        if call is not None and call.node == node and not call.answered.done():
            return Upgrade(_handshake(request), call.start, drain_seconds=0, close_seconds=CLOSE_SECONDS)
        if call is None and notice is not None and notice.node == node and RELAYED not in request.headers:
            _handshake(request)
            return Relay(request, notice.url, notice.certificate)
        raise ApiError(404, "NotFound", f'node "{node}" is not called here, or no longer')

    def _on_notice(self, text: str) -> None:
        """Handle a notice from any process, this one included."""
        try:
            notice = msgspec.json.decode(text, type=Notice)
        except msgspec.MsgspecError:
            return  # of another release
        if notice.id not in self._calls and notice.id not in self._elsewhere:
            self._elsewhere[notice.id] = notice
            asyncio.get_running_loop().call_later(KNOWN_SECONDS, self._elsewhere.pop, notice.id)
        for rings, speaks_for in self._listeners.items():
            if speaks_for(notice.node):
                rings.put_nowait(notice)


def _handshake(request: Request) -> list[tuple[str, str]]:
    if not websocket.is_requested(request):
        raise ApiError(400, "BadRequest", "a call is answered with a WebSocket")
    return websocket.handshake_headers(request, "")
