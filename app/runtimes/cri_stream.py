"""Answers of a container engine that go on, by HTTP/2: all that it has sent arrive, though it is killed. `cri_engine` asks.

gRPC's own client throws away what it has received and not handed over yet when a connection breaks. An end that containerd
told in its last moment, and has not noted down, would be lost with it.
"""

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import unquote

import h2.connection
import h2.events
from h2.config import H2Configuration
from h2.exceptions import ProtocolError

_BLOCK = 65536
_PREFIX = 5  # bytes before each message: whether it is compressed, which nobody asked for, and its length
_HEADERS = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost")]
_GRPC = [("te", "trailers"), ("content-type", "application/grpc")]


class End(NamedTuple):
    """What a method came to: a gRPC status, 0 if all is well, and words."""

    status: int
    details: str


async def answers(path: str, method: str, request: bytes) -> AsyncIterator[bytes | End]:
    """Undecoded messages, and last of all the end. `path`: of a Unix socket. Raises ConnectionError if the engine goes."""
    with socket.socket(socket.AF_UNIX) as wire:
        wire.setblocking(False)
        call, loop = Call(method, request), asyncio.get_running_loop()
        try:
            await loop.sock_connect(wire, path)
            while call.end is None:
                with suppress(OSError):  # who is gone cannot be written to, but may have left something to read
                    await loop.sock_sendall(wire, call.to_send())
                data = await loop.sock_recv(wire, _BLOCK)
                for message in call.received(data):
                    yield message
                if not data or call.is_broken:
                    raise ConnectionError("it hung up")
        except (OSError, ProtocolError) as error:
            raise ConnectionError(str(error)) from error
        yield call.end


class Call:
    """One call on a connection of its own, without the connection."""

    def __init__(self, method: str, request: bytes) -> None:
        self.end: End | None = None
        self.is_broken = False
        self._data = bytearray()
        self._wire = h2.connection.H2Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._wire.initiate_connection()
        stream = self._wire.get_next_available_stream_id()
        self._wire.send_headers(stream, [*_HEADERS, (":path", method), *_GRPC])
        self._wire.send_data(stream, b"\0" + len(request).to_bytes(_PREFIX - 1) + request, end_stream=True)

    def to_send(self) -> bytes:
        return self._wire.data_to_send()

    def received(self, data: bytes) -> Iterator[bytes]:
        """The messages that are whole by now. Raises ProtocolError."""
        for event in self._wire.receive_data(data):
            self._take(event)
        while len(self._data) >= _PREFIX:
            length = int.from_bytes(self._data[1:_PREFIX])
            if len(self._data) < _PREFIX + length:
                break
            yield bytes(self._data[_PREFIX : _PREFIX + length])
            del self._data[: _PREFIX + length]

    def _take(self, event: h2.events.Event) -> None:
        match event:
            case h2.events.DataReceived():
                self._data += event.data or b""
                self._wire.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
            case h2.events.ResponseReceived() | h2.events.TrailersReceived():
                self._read(event.headers or ())
            case h2.events.StreamReset():
                self.is_broken = True

    def _read(self, headers: Sequence[tuple[bytes | str, bytes | str]]) -> None:
        found = {str(name): str(value) for name, value in headers}
        if "grpc-status" in found:
            self.end = End(int(found["grpc-status"]), unquote(found.get("grpc-message", "")))
