"""SPDY/3.1 connection, server side: reads frames, answers pings and opens, and keeps a channel for each stream.

`exec_attach` and `port_forward` use it, on an upgraded connection or inside a WebSocket (`WebSocketTransport`), as newer
kubectl's port-forward does. Framing is in `app.runtimes.spdy`.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Protocol

from starlette.requests import Request

from app.api.http import websocket
from app.api.http.connection import Headers, requested_protocol
from app.api.http.websocket import WebSocket
from app.api.streams.channels import Channel
from app.machinery.errors import ApiError
from app.runtimes import spdy

MOST_STREAMS = 1000  # open at a time on one connection
_HEADER = "X-Stream-Protocol-Version"


def is_requested(request: Request) -> bool:
    """Return whether the request asks for SPDY/3.1."""
    return "spdy/3.1" in requested_protocol(request)


def negotiate_protocol(request: Request, known: list[str]) -> str:
    """Return the client's first stream protocol that is in `known`, empty if it offers none. 403 if none of them is known."""
    offered = [each.strip() for value in request.headers.getlist(_HEADER) for each in value.split(",")]
    for each in offered:
        if each in known:
            return each
    if not offered:
        return ""
    lists = f"client supports [{' '.join(offered)}], server accepts [{' '.join(known)}]"
    raise ApiError(403, "Forbidden", f"unable to upgrade: unable to negotiate protocol: {lists}")


def handshake_headers(protocol: str) -> Headers:
    """Return the headers of a 101 with this stream protocol, empty for none."""
    return [("Upgrade", "SPDY/3.1"), *([(_HEADER, protocol)] if protocol else [])]


class SpdyTransport(Protocol):
    """The connection below SPDY."""

    async def read(self) -> bytes:
        """Return received bytes, waiting for some; empty at the end."""
        ...

    async def write(self, data: bytes) -> None: ...


class WebSocketTransport:
    """SPDY tunnelled in a WebSocket: its messages, joined, are the bytes of the SPDY connection."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._messages: AsyncIterator[bytes] = socket.messages()

    async def read(self) -> bytes:
        async for message in self._messages:
            if message:
                return message
        return b""

    async def write(self, data: bytes) -> None:
        await self._socket.send(data)

    async def close(self, *, stopping: bool) -> None:
        await self._socket.close(websocket.GOING_AWAY if stopping else websocket.NORMAL)


class StreamRejectedError(Exception):
    """Raised by `opened` to refuse a stream."""


class SpdyStream(Channel):
    """The channel of one SPDY stream."""

    def __init__(self, connection: "SpdyConnection", number: int, headers: Mapping[str, str]) -> None:
        super().__init__(partial(connection.send, number), partial(connection.send, number, b"", end=True))
        self.number = number
        self.headers = headers
        self.kind = headers.get("streamtype", "")


class SpdyConnection:
    """SPDY as a `Link`: calls `opened` with each stream that the client opens."""

    def __init__(self, pipe: SpdyTransport, opened: Callable[[SpdyStream], None]) -> None:
        self._transport = pipe
        self._on_stream = opened
        self._encoder = spdy.Encoder()
        self._streams: dict[int, SpdyStream] = {}
        self._last = 0
        self._pings = 0
        self._closing = False

    async def receive(self) -> None:
        decoder = spdy.Decoder()
        try:
            while data := await self._transport.read():
                for frame in decoder.feed(data):
                    await self._handle_frame(frame)
        except spdy.Malformed:
            await self._transport.write(self._encoder.go_away(self._last, spdy.PROTOCOL_ERROR))
        finally:
            for stream in list(self._streams.values()):
                await stream.end(both_ways=True)

    async def ping(self) -> None:
        self._pings += 2  # even numbers are the server's
        await self._transport.write(self._encoder.ping(self._pings & 0xFFFFFFFF))

    async def shut_down(self, *, stopping: bool) -> None:
        self._closing = True
        for stream in list(self._streams.values()):
            await stream.ignore()
        await self._transport.write(self._encoder.go_away(self._last))
        if isinstance(self._transport, WebSocketTransport):
            await self._transport.close(stopping=stopping)

    async def send(self, number: int, data: bytes, *, end: bool = False) -> None:
        await self._transport.write(self._encoder.data(number, data, end=end))

    def forget(self, stream: SpdyStream) -> None:
        """Discard what else comes on `stream`."""
        self._streams.pop(stream.number, None)

    async def _handle_frame(self, frame: spdy.Frame) -> None:
        match frame:
            case spdy.Open():
                await self._open_stream(frame)
            case spdy.Data(number, data, end):
                if stream := self._streams.get(number):  # else it was for one that is over
                    await stream.deliver(data)
                    if end:
                        await stream.end()
            case spdy.Reset(number):
                if stream := self._streams.pop(number, None):
                    await stream.end(both_ways=True)
            case spdy.Ping(number) if number % 2:
                await self._transport.write(self._encoder.ping(number))

    async def _open_stream(self, frame: spdy.Open) -> None:
        if not frame.stream % 2 or frame.stream <= self._last:
            raise spdy.Malformed("streams of clients have odd numbers that rise")
        self._last = frame.stream
        stream = SpdyStream(self, frame.stream, frame.headers)
        try:
            if self._closing or len(self._streams) >= MOST_STREAMS:
                raise StreamRejectedError
            self._on_stream(stream)  # its tasks write after our reply: nothing here yields to the event loop before
        except StreamRejectedError:
            await self._transport.write(self._encoder.reset(frame.stream, spdy.REFUSED_STREAM))
            return
        self._streams[frame.stream] = stream
        if frame.end:
            await stream.end()
        await self._transport.write(self._encoder.reply(frame.stream))
