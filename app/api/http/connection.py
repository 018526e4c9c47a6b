"""HTTP connections that can be upgraded on the same port: uvicorn's protocol, with hand-over to WebSocket and SPDY.

uvicorn is started with `Connection`. A request with an Upgrade header runs through the application like any other, and may
be answered like any other; its scope offers `upgrade`, which answers 101 and gives the bare bytes away as a `Wire`.
"""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import cast

import httptools
from starlette.requests import Request
from starlette.types import Scope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.api.http.connection_limits import BoundedConnection
from app.api.http.write_coalescing import CoalescingTransport

CLOSE_SECONDS = 10.0  # for what is written to leave, once a connection is to close

Headers = list[tuple[str, str]]


class Connection(BoundedConnection):
    """Requests without an Upgrade header take the same path as in uvicorn."""

    # A request with an Upgrade header ends for the parser with its head, wherever what follows belongs. Meanwhile:
    _diverted: Callable[[bytes], None] | None = None
    _body_left = 0
    _held = b""  # what came before the request had its answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._coalescing = CoalescingTransport(cast("asyncio.Transport", transport))
        super().connection_made(cast("asyncio.BaseTransport", self._coalescing))

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            self._read_over(len(data))
            return
        if self._diverted is not None:
            self._diverted(data)
            return
        try:
            self._feed(data)
        except httptools.HttpParserUpgrade as end:
            self._offer(data[end.args[0] :])

    def _offer(self, rest: bytes) -> None:
        if self.scope["method"] == "CONNECT":
            return  # nothing that follows is HTTP
        headers = dict(self.headers)
        self._body_left = int(headers.get(b"content-length", 0))
        if b"transfer-encoding" in headers:
            self.cycle.disconnected = True
            self.send_400_response("A request for an upgrade cannot have a body in chunks.")
            self._close()
        elif self._body_left:
            self.cycle.more_body = True
            self._expect_body()
            self._diverted = self._take_body
            self._take_body(rest)
        else:
            if self.scope["http_version"] == "1.1":
                self.scope["extensions"] = {"upgrade": {"take_over": partial(self._take_over, self.cycle)}}
            self._diverted = self._hold
            self._hold(rest)

    def _take_body(self, data: bytes) -> None:
        body, rest = data[: self._body_left], data[self._body_left :]
        self._body_left -= len(body)
        self.on_body(body)
        if self._body_left:
            return
        self.on_message_complete()
        self._diverted = self._hold
        self._hold(rest)
        if self.cycle.response_complete:
            self._go_on()

    def _hold(self, data: bytes) -> None:
        self._held += data
        if len(self._held) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._diverted is not None and not self._body_left and self.cycle.response_complete:
            self._go_on()

    def _go_on(self) -> None:
        """The answer was an ordinary one: what was held is the next request."""
        held, self._held, self._diverted = self._held, b"", None
        if held and not self.transport.is_closing():
            self.data_received(held)

    def _take_over(self, cycle: RequestResponseCycle, headers: Headers) -> "Wire":
        if cycle.disconnected or self.transport.is_closing():
            raise ConnectionResetError("the client went away before its upgrade")
        cycle.response_started = cycle.response_complete = True
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self.transport.write(
            f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{lines}\r\n".encode("latin-1")
        )
        transport = self._coalescing.open()
        self._end_limits()
        wire = Wire(transport, self.flow, self._held)
        self.connections.discard(self)
        self.connections.add(wire)  # type: ignore[arg-type] # all that uvicorn wants of one is `shutdown`
        wire.when_lost = partial(self.connections.discard, wire)
        transport.set_protocol(wire)
        return wire


class Wire(asyncio.Protocol):
    """A connection that is no longer HTTP. One task reads from it; several may write, each call whole."""

    def __init__(self, transport: asyncio.Transport, flow: FlowControl, first: bytes) -> None:
        self.when_lost: Callable[[], None] = lambda: None
        self._transport = transport
        self._flow = flow
        self._arrived = asyncio.Event()
        self._buffer = bytearray()
        self._ended = False
        self._abort: asyncio.TimerHandle | None = None
        self.patience: float | None = None  # seconds that a write may wait for the client; None: as long as it takes
        flow.resume_reading()
        if first:
            self.data_received(first)

    async def read(self) -> bytes:
        """What has come; nothing once the client has ended the connection and all is read."""
        while not self._buffer and not self._ended:
            self._arrived.clear()
            await self._arrived.wait()
        data = bytes(self._buffer[:HIGH_WATER_LIMIT])
        del self._buffer[:HIGH_WATER_LIMIT]
        if len(self._buffer) <= HIGH_WATER_LIMIT and not self._ended:
            self._flow.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        """Returns when there is room for more. ConnectionResetError once the connection is gone."""
        if self._ended or self._transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self._transport.write(data)
        if self._flow.write_paused:
            try:
                async with asyncio.timeout(self.patience):
                    await self._flow.drain()
            except TimeoutError:
                self._transport.abort()
                raise ConnectionResetError("the client does not read") from None

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Let what is written leave, for a while, then end the connection."""
        if self._abort is None and not self._ended:
            self._transport.close()
            self._abort = asyncio.get_running_loop().call_later(seconds, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if len(self._buffer) > HIGH_WATER_LIMIT:
            self._flow.pause_reading()
        self._arrived.set()

    def eof_received(self) -> None:
        """A client that stops sending is gone: none of ours closes one half only, and TLS cannot."""

    def connection_lost(self, _: Exception | None) -> None:
        self._ended = True
        self._arrived.set()
        self._flow.resume_writing()
        if self._abort is not None:
            self._abort.cancel()
        self.when_lost()

    def pause_writing(self) -> None:
        self._flow.pause_writing()

    def resume_writing(self) -> None:
        self._flow.resume_writing()

    def shutdown(self) -> None:
        """Called by a stopping server, which has cancelled the streams before: each closes its own wire."""


def take_over(scope: Scope, headers: Headers) -> Wire:
    """Answer a request 101 with these headers, and have its wire; once. ConnectionResetError if the client has left."""
    wire: Wire = scope["extensions"]["upgrade"]["take_over"](headers)
    return wire


def wanted_protocol(request: Request) -> str:
    """What a request that may have its connection asks for, in small letters; nothing if it may not, or does not ask."""
    if "upgrade" not in request.scope.get("extensions", ()):
        return ""
    connection = (
        token.strip().lower() for value in request.headers.getlist("connection") for token in value.split(",")
    )
    return request.headers.get("upgrade", "").strip().lower() if "upgrade" in connection else ""
