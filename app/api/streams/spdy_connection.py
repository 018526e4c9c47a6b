"""An SPDY connection at work: reads frames, answers what the protocol wants answered, and keeps a channel for each stream.

It runs on a bare wire, or inside a WebSocket (`Tunnel`), as newer kubectl's port-forward has it.
"""

from collections.abc import AsyncIterator, Callable, Mapping
from functools import partial
from typing import Protocol

from starlette.requests import Request

from app.api.http import websocket
from app.api.http.connection import Headers, wanted_protocol
from app.api.http.websocket import WebSocket
from app.api.streams.channels import Channel
from app.machinery.errors import ApiError
from app.runtimes import spdy

MOST_STREAMS = 1000  # open at a time on one connection
_HEADER = "X-Stream-Protocol-Version"


def is_asked(request: Request) -> bool:
    """Whether `request` wants to become an SPDY connection."""
    return "spdy/3.1" in wanted_protocol(request)


def chosen(request: Request, known: list[str]) -> str:
    """The first stream protocol that the client offers and we know, none if it offers none. 403 if we know none of them."""
    offered = [each.strip() for value in request.headers.getlist(_HEADER) for each in value.split(",")]
    for each in offered:
        if each in known:
            return each
    if not offered:
        return ""
    lists = f"client supports [{' '.join(offered)}], server accepts [{' '.join(known)}]"
    raise ApiError(403, "Forbidden", f"unable to upgrade: unable to negotiate protocol: {lists}")


def accepting(protocol: str) -> Headers:
    """The headers of a 101 that agrees on `protocol`, if any."""
    return [("Upgrade", "SPDY/3.1"), *([(_HEADER, protocol)] if protocol else [])]


class Pipe(Protocol):
    """What SPDY runs on."""

    async def read(self) -> bytes:
        """What has come; nothing when nothing more will."""
        ...

    async def write(self, data: bytes) -> None: ...


class Tunnel:
    """A WebSocket whose messages, joined, are the bytes of an SPDY connection."""

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


class Refused(Exception):
    """Raised by `opened` for a stream that it does not want."""


class Stream(Channel):
    """The channel of one SPDY stream."""

    def __init__(self, connection: "SpdyConnection", number: int, headers: Mapping[str, str]) -> None:
        super().__init__(partial(connection.send, number), partial(connection.send, number, b"", end=True))
        self.number = number
        self.headers = headers
        self.kind = headers.get("streamtype", "")


class SpdyConnection:
    """A `Link`: `opened` is called with each stream that the client opens."""

    def __init__(self, pipe: Pipe, opened: Callable[[Stream], None]) -> None:
        self._pipe = pipe
        self._opened = opened
        self._encoder = spdy.Encoder()
        self._streams: dict[int, Stream] = {}
        self._last = 0
        self._pings = 0
        self._closing = False

    async def receive(self) -> None:
        decoder = spdy.Decoder()
        try:
            while data := await self._pipe.read():
                for frame in decoder.feed(data):
                    await self._take(frame)
        except spdy.Malformed:
            await self._pipe.write(self._encoder.go_away(self._last, spdy.PROTOCOL_ERROR))
        finally:
            for stream in list(self._streams.values()):
                await stream.end(both_ways=True)

    async def ping(self) -> None:
        self._pings += 2  # even numbers are the server's
        await self._pipe.write(self._encoder.ping(self._pings & 0xFFFFFFFF))

    async def goodbye(self, *, stopping: bool) -> None:
        self._closing = True
        for stream in list(self._streams.values()):
            await stream.ignore()
        await self._pipe.write(self._encoder.go_away(self._last))
        if isinstance(self._pipe, Tunnel):
            await self._pipe.close(stopping=stopping)

    async def send(self, number: int, data: bytes, *, end: bool = False) -> None:
        await self._pipe.write(self._encoder.data(number, data, end=end))

    def forget(self, stream: Stream) -> None:
        """Discard what else comes on `stream`."""
        self._streams.pop(stream.number, None)

    async def _take(self, frame: spdy.Frame) -> None:
        match frame:
            case spdy.Open():
                await self._open(frame)
            case spdy.Data(number, data, end):
                if stream := self._streams.get(number):  # else it was for one that is over
                    await stream.deliver(data)
                    if end:
                        await stream.end()
            case spdy.Reset(number):
                if stream := self._streams.pop(number, None):
                    await stream.end(both_ways=True)
            case spdy.Ping(number) if number % 2:
                await self._pipe.write(self._encoder.ping(number))

    async def _open(self, frame: spdy.Open) -> None:
        if not frame.stream % 2 or frame.stream <= self._last:
            raise spdy.Malformed("streams of clients have odd numbers that rise")
        self._last = frame.stream
        stream = Stream(self, frame.stream, frame.headers)
        try:
            if self._closing or len(self._streams) >= MOST_STREAMS:
                raise Refused
            self._opened(stream)  # whatever it starts writes after our reply: nothing here lets it run before
        except Refused:
            await self._pipe.write(self._encoder.reset(frame.stream, spdy.REFUSED_STREAM))
            return
        self._streams[frame.stream] = stream
        if frame.end:
            await stream.end()
        await self._pipe.write(self._encoder.reply(frame.stream))
