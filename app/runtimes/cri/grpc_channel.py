"""gRPC channel to a container engine: HTTP/2 on its socket. `engine` makes all calls on one connection.

gRPC's own library would be a quarter of an agent's memory, and when a connection breaks it throws away what it has received
and not handed over yet. With that, an end would be lost that containerd reported in its last moment and has not noted down. Here
all that was sent arrives, though the engine is killed.
"""

import asyncio
import socket
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import unquote

import h2.connection
import h2.events
from h2.config import H2Configuration
from h2.errors import ErrorCodes
from h2.exceptions import NoAvailableStreamIDError, ProtocolError
from h2.settings import SettingCodes, Settings

_BLOCK = 65536
_WINDOW = 2**24  # bytes that an engine may send before they are taken: what it holds back is lost when it is killed
_WORDS = 2**19  # bytes of an engine's words: longer ones would break the connection, so they break off their call alone
_SETTINGS = {
    SettingCodes.INITIAL_WINDOW_SIZE: _WINDOW,
    SettingCodes.MAX_HEADER_LIST_SIZE: _WORDS,
    SettingCodes.ENABLE_PUSH: 0,
}
_HEAD, _GOAWAY = 9, 7  # bytes before each frame, the first three its length; a kind of frame
_PREFIX = 5  # bytes before each message: whether it is compressed, which it never is, and its length
_FIRST = [(":method", "POST"), (":scheme", "http"), (":authority", "localhost")]
_THEN = [("te", "trailers"), ("content-type", "application/grpc")]
_UNKNOWN = 2  # gRPC's status for what it has no other for
_MOST = 99_999_999  # as much as eight digits, which is all that a deadline may have


class CallEnd(NamedTuple):
    """What a method came to: a gRPC status, 0 if all is well, and words."""

    status: int
    details: str


class _Connection(h2.connection.H2Connection):
    MAX_CLOSED_STREAMS = 1000  # calls whose late frames are known as such; the library's 65,536 would be megabytes
    DEFAULT_MAX_HEADER_LIST_SIZE = _WORDS


class _Stream:
    """What is still to be sent of it, and what was received."""

    def __init__(self, request: bytes) -> None:
        self.unsent = memoryview(b"\0" + len(request).to_bytes(_PREFIX - 1) + request)
        self.answers_queue: asyncio.Queue[bytes | CallEnd | ConnectionError] = asyncio.Queue()
        self._data = bytearray()

    def take(self, data: bytes) -> None:
        self._data += data
        while len(self._data) >= _PREFIX:
            length = int.from_bytes(self._data[1:_PREFIX])
            if len(self._data) < _PREFIX + length:
                break
            self.answers_queue.put_nowait(bytes(self._data[_PREFIX : _PREFIX + length]))
            del self._data[: _PREFIX + length]

    def read(self, headers: Sequence[tuple[bytes | str, bytes | str]]) -> None:
        found = {str(name): str(value) for name, value in headers}
        if "grpc-status" in found:
            status = found["grpc-status"]
            code = int(status) if status.isdecimal() else _UNKNOWN
            self.answers_queue.put_nowait(CallEnd(code, unquote(found.get("grpc-message", ""))))


async def open_connection(path: str) -> "GrpcConnection":
    """A connection to the socket at `path`. Raises OSError."""
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.setblocking(False)
        await asyncio.get_running_loop().sock_connect(connection, path)
    except BaseException:
        connection.close()
        raise
    return GrpcConnection(connection)


class GrpcConnection:
    """One connection. Once it `is_over`, what is asked by it is a ConnectionError.

    is_leaving: the engine ends what was asked, and should be asked for more by another one.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.connection, self.is_over, self._why = connection, False, "it hung up"
        self.is_leaving = False
        self._frames = bytearray()
        self._calls: dict[int, _Stream] = {}
        self._http = _Connection(H2Configuration(client_side=True, header_encoding="utf-8"))
        self._http.local_settings = Settings(client=True, initial_values=_SETTINGS)
        self._http.initiate_connection()
        self._http.increment_flow_control_window(_WINDOW)
        self._has_news = asyncio.Event()
        loop = asyncio.get_running_loop()
        self._writing, self._reading = loop.create_task(self._write()), loop.create_task(self._read())
        self._reading.add_done_callback(self._end)

    async def answers(
        self, method: str, request: bytes, seconds: float | None = None
    ) -> AsyncGenerator[bytes | CallEnd, None]:
        """Undecoded messages, and last of all the end. Raises ConnectionError, if the engine goes, after what it had sent.

        `seconds`: after which the engine may give it up, which is for the caller to wait for.
        """
        number, call = self._begin(method, request, seconds)
        try:
            while True:
                found = await call.answers_queue.get()
                if isinstance(found, ConnectionError):
                    raise found
                yield found
                if isinstance(found, CallEnd):
                    return
        finally:
            self._finish(number)

    async def close(self) -> None:
        self._reading.cancel()
        await asyncio.wait([self._reading, self._writing])

    def _begin(self, method: str, request: bytes, seconds: float | None) -> tuple[int, _Stream]:
        if self.is_over:
            raise ConnectionError(self._why)
        call = _Stream(request)
        headers = [*_FIRST, (":path", method), *_THEN, *([("grpc-timeout", _deadline(seconds))] if seconds else [])]
        try:
            number = self._http.get_next_available_stream_id()
            self._http.send_headers(number, headers)
        except ProtocolError as error:
            self.is_leaving |= isinstance(error, NoAvailableStreamIDError)  # else there are too many calls at a time
            raise ConnectionError(str(error)) from error
        self._calls[number] = call
        self._send(number, call)
        self._has_news.set()
        return number, call

    def _send(self, number: int, call: _Stream) -> None:
        """As much of a request as the engine takes for now."""
        with suppress(ProtocolError):  # it has ended: the engine did not want to hear all of it
            while call.unsent and (room := self._http.local_flow_control_window(number)) > 0:
                size = min(room, self._http.max_outbound_frame_size)
                data, call.unsent = call.unsent[:size], call.unsent[size:]
                self._http.send_data(number, bytes(data), end_stream=not call.unsent)

    def _finish(self, number: int) -> None:
        """Its answer is not awaited any more."""
        if self._calls.pop(number, None) and not self.is_over:
            with suppress(ProtocolError):  # it has ended
                self._http.reset_stream(number, ErrorCodes.CANCEL)
                self._has_news.set()

    async def _write(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while True:
                await self._has_news.wait()
                self._has_news.clear()
                if data := self._http.data_to_send():
                    await loop.sock_sendall(self.connection, data)
        except OSError:  # who is gone may have left something to read; who is not gets to know
            with suppress(OSError):
                self.connection.shutdown(socket.SHUT_WR)

    async def _read(self) -> None:
        loop = asyncio.get_running_loop()
        try:
            while data := await loop.sock_recv(self.connection, _BLOCK):
                self._frames += data
                for frame in self._whole_frames():
                    for event in self._http.receive_data(frame):
                        self._take(event)
                self._has_news.set()
        except (OSError, ProtocolError) as error:
            self._why = str(error)

    def _whole_frames(self) -> Iterator[bytes]:
        """One by one, for of what the library takes together it tells nothing if the last is bad.

        Nor does it go on after GOAWAY, though the calls that were begun do.
        """
        while len(self._frames) >= _HEAD and len(self._frames) >= (size := _HEAD + int.from_bytes(self._frames[:3])):
            frame = bytes(self._frames[:size])
            del self._frames[:size]
            if frame[3] == _GOAWAY:
                self.is_leaving = True
            else:
                yield frame

    def _end(self, _reading: asyncio.Task[None]) -> None:
        self.is_over = True
        for call in self._calls.values():
            call.answers_queue.put_nowait(ConnectionError(self._why))
        self._writing.add_done_callback(lambda _: self.connection.close())  # before, the loop may still look at it
        self._writing.cancel()

    def _take(self, event: h2.events.Event) -> None:
        call = self._calls.get(getattr(event, "stream_id", None) or 0)
        match event:
            case h2.events.DataReceived():
                self._http.acknowledge_received_data(event.flow_controlled_length or 0, event.stream_id or 0)
                if call:
                    call.take(event.data or b"")
            case h2.events.ResponseReceived() | h2.events.TrailersReceived() if call:
                call.read(event.headers or ())
            case h2.events.StreamReset() | h2.events.StreamEnded() if call:
                call.answers_queue.put_nowait(ConnectionError("it broke off"))  # unless it had come to its end
            case h2.events.WindowUpdated() | h2.events.RemoteSettingsChanged():
                for number, each in self._calls.items():
                    self._send(number, each)


def _deadline(seconds: float) -> str:
    """As gRPC writes it."""
    milliseconds = max(1, round(seconds * 1000))
    return f"{milliseconds}m" if milliseconds <= _MOST else f"{min(round(seconds), _MOST)}S"
