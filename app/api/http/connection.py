"""HTTP connections with upgrades on the same port: uvicorn's protocol, with hand-over to WebSocket and SPDY.

uvicorn is started with `Connection`. A request with an Upgrade header reaches the application like any other, and may be
answered like any other; its scope offers `upgrade`, which answers 101 and returns the bare bytes as an `UpgradedConnection`.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

import httptools
from starlette.requests import Request
from starlette.types import Scope
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from app.api.http.connection_limits import WRITE_AHEAD, BoundedConnection
from app.api.http.goaway import Goaway
from app.api.http.write_coalescing import CoalescingTransport

CLOSE_SECONDS = 10.0  # to flush written bytes before a connection is aborted

Headers = list[tuple[str, str]]
PEER = "peer"  # of the state of a request


@dataclass(slots=True)
class Peer:
    """The certificate, DER, that the client of a connection has shown, and whom it stands for, once somebody has found out."""

    certificate: bytes
    user: Any = None


class Connection(BoundedConnection):
    """uvicorn's protocol with upgrades. Requests without an Upgrade header take the same path as in uvicorn."""

    goaway = Goaway()
    """Decides which answers are the last of their connection; by default none."""

    # After a head with an Upgrade header the parser stops; `_receiver` takes the bytes that follow until the answer.
    _receiver: Callable[[bytes], None] | None = None
    _body_left = 0
    _held = b""  # bytes that came before the request was answered

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._coalescing = CoalescingTransport(cast("asyncio.Transport", transport))
        super().connection_made(cast("asyncio.BaseTransport", self._coalescing))
        tls = transport.get_extra_info("ssl_object")
        if tls is None:
            return
        self._coalescing.set_write_buffer_limits(WRITE_AHEAD)
        if certificate := tls.getpeercert(binary_form=True):
            # uvicorn gives each request a copy of this state: those of other connections pay nothing for it.
            self.app_state = {**self.app_state, PEER: Peer(certificate)}

    def on_headers_complete(self) -> None:
        super().on_headers_complete()
        self._coalescing.is_read = self.scope["method"] == "GET"
        if self.goaway.ends_connection(self.scope["query_string"]):
            self.cycle.keep_alive = False

    def data_received(self, data: bytes) -> None:
        if self._is_refused:
            self._discard(len(data))
            return
        if self._receiver is not None:
            self._receiver(data)
            return
        try:
            self._feed(data)
        except httptools.HttpParserUpgrade as end:
            self._offer_upgrade(data[end.args[0] :])

    def _offer_upgrade(self, rest: bytes) -> None:
        if self.scope["method"] == "CONNECT":
            return  # the bytes that follow are not HTTP
        headers = dict(self.headers)
        self._body_left = int(headers.get(b"content-length", 0))
        if b"transfer-encoding" in headers:
            self.cycle.disconnected = True
            self.send_400_response("A request for an upgrade cannot have a body in chunks.")
            self._close()
        elif self._body_left:
            self.cycle.more_body = True
            self._expect_body()
            self._receiver = self._take_body
            self._take_body(rest)
        else:
            if self.scope["http_version"] == "1.1":
                self.scope["extensions"] = {"upgrade": {"take_over": partial(self._take_over, self.cycle)}}
            self._receiver = self._hold_back
            self._hold_back(rest)

    def _take_body(self, data: bytes) -> None:
        body, rest = data[: self._body_left], data[self._body_left :]
        self._body_left -= len(body)
        self.on_body(body)
        if self._body_left:
            return
        self.on_message_complete()
        self._receiver = self._hold_back
        self._hold_back(rest)
        if self.cycle.response_complete:
            self._resume_http()

    def _hold_back(self, data: bytes) -> None:
        self._held += data
        if len(self._held) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self._receiver is not None and not self._body_left and self.cycle.response_complete:
            self._resume_http()

    def _resume_http(self) -> None:
        """Continue after an ordinary answer: the held bytes are the next request."""
        held, self._held, self._receiver = self._held, b"", None
        if held and not self.transport.is_closing():
            self.data_received(held)

    def _take_over(self, cycle: RequestResponseCycle, headers: Headers) -> "UpgradedConnection":
        if cycle.disconnected or self.transport.is_closing():
            raise ConnectionResetError("the client went away before its upgrade")
        cycle.response_started = cycle.response_complete = True
        lines = "".join(f"{name}: {value}\r\n" for name, value in headers)
        self.transport.write(
            f"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\n{lines}\r\n".encode("latin-1")
        )
        transport = self._coalescing.open()
        self._end_limits()
        wire = UpgradedConnection(transport, self.flow, self._held)
        self.connections.discard(self)
        self.connections.add(wire)  # type: ignore[arg-type] # uvicorn calls only `shutdown` of it
        wire.on_lost = partial(self.connections.discard, wire)
        transport.set_protocol(wire)
        return wire


class UpgradedConnection(asyncio.Protocol):
    """The raw bytes of a connection after a 101. One task reads; several may write, each call is atomic."""

    def __init__(self, transport: asyncio.Transport, flow: FlowControl, first: bytes) -> None:
        self.on_lost: Callable[[], None] = lambda: None
        self._transport = transport
        self._flow = flow
        self._arrived = asyncio.Event()
        self._buffer = bytearray()
        self._ended = False
        self._abort: asyncio.TimerHandle | None = None
        self.write_timeout: float | None = None  # seconds that a write may wait for the client; None: without limit
        flow.resume_reading()
        if first:
            self.data_received(first)

    async def read(self) -> bytes:
        """Return received bytes, waiting for some; empty at the end of the connection."""
        while not self._buffer and not self._ended:
            self._arrived.clear()
            await self._arrived.wait()
        data = bytes(self._buffer[:HIGH_WATER_LIMIT])
        del self._buffer[:HIGH_WATER_LIMIT]
        if len(self._buffer) <= HIGH_WATER_LIMIT and not self._ended:
            self._flow.resume_reading()
        return data

    async def write(self, data: bytes) -> None:
        """Write, and wait until there is room for more. ConnectionResetError once the connection is gone."""
        if self._ended or self._transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self._transport.write(data)
        if self._flow.write_paused:
            try:
                async with asyncio.timeout(self.write_timeout):
                    await self._flow.drain()
            except TimeoutError:
                self._transport.abort()
                raise ConnectionResetError("the client does not read") from None

    def close(self, seconds: float = CLOSE_SECONDS) -> None:
        """Flush written bytes for at most `seconds`, then close the connection."""
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
        self.on_lost()

    def pause_writing(self) -> None:
        self._flow.pause_writing()

    def resume_writing(self) -> None:
        self._flow.resume_writing()

    def shutdown(self) -> None:
        """uvicorn calls this when it stops. Does nothing: streams are cancelled before, and each closes its connection."""


def take_over(scope: Scope, headers: Headers) -> UpgradedConnection:
    """Answer a request 101 with these headers, once, and return its connection. ConnectionResetError if the client is gone."""
    wire: UpgradedConnection = scope["extensions"]["upgrade"]["take_over"](headers)
    return wire


def requested_protocol(request: Request) -> str:
    """Return the protocol of the Upgrade header in lower case; empty if the request asks for none or cannot be upgraded."""
    if "upgrade" not in request.scope.get("extensions", ()):
        return ""
    connection = (
        token.strip().lower() for value in request.headers.getlist("connection") for token in value.split(",")
    )
    return request.headers.get("upgrade", "").strip().lower() if "upgrade" in connection else ""
