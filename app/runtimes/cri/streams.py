"""Commands in containers, and containers' own streams, over the URLs that an engine gives out for them.

Engines speak SPDY/3.1 and WebSocket there. SPDY it is: with the older ones standard input can be ended by it alone, and
`cat` in a container would wait for ever.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Literal
from urllib.parse import urlsplit

import msgspec

from app.runtimes.base import StartError, Unsupported
from app.runtimes.engine.errors import start_code
from app.runtimes.spdy import Data, Decoder, Encoder, GoAway, Ping, Reset

PROTOCOL = "v4.channel.k8s.io"
RESENT_AFTER = 0.2, 1.0  # seconds; containerd forgets the size of a terminal whose command has not begun yet
_CHUNK = 64 * 1024
_NAMES = ("error", "stdin", "stdout", "stderr", "resize")

Named = Literal["stdout", "stderr"]


class _Details(msgspec.Struct):
    causes: tuple[dict[str, str], ...] = ()


class _RemoteStatus(msgspec.Struct):
    """The last word on the error stream."""

    status: str = ""
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class CriStreamSession:
    """A `base.Session` over one SPDY connection.

    hang_up:    what `close` does first if the command has not ended.
    ended_with: where the exit code comes from if not from the engine's last word.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, streams_of: frozenset[str]) -> None:
        self._reader, self._writer = reader, writer
        self._pack, self._unpack = Encoder(), Decoder()
        self._streams = {name: 2 * number + 1 for number, name in enumerate(_NAMES) if name in streams_of}
        self._names = {stream: name for name, stream in self._streams.items()}
        self._open = set(self._streams) - {"stdin", "resize"}
        self._input_ended = "stdin" not in streams_of
        self._last_status = self._size = b""
        self.hang_up: Callable[[], Awaitable[None]] | None = None
        self.ended_with: Callable[[], Awaitable[int]] | None = None

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    async def begin(self) -> None:
        for name, stream in self._streams.items():
            self._writer.write(self._pack.open(stream, {"streamtype": name}))
        await self._writer.drain()

    async def write(self, data: bytes) -> None:
        if data and not self._input_ended:
            await self._send(self._pack.data(self._streams["stdin"], data))

    async def end_input(self) -> None:
        if not self._input_ended:
            self._input_ended = True
            await self._send(self._pack.data(self._streams["stdin"], b"", end=True))

    async def resize(self, width: int, height: int) -> None:
        if "resize" in self._streams:
            size = msgspec.json.encode({"Width": width, "Height": height})
            self._size = self._pack.data(self._streams["resize"], size)
            await self._send(self._size)
            for seconds in RESENT_AFTER:
                asyncio.get_running_loop().call_later(seconds, self._repeat, self._size)

    async def output(self) -> AsyncIterator[tuple[Named, bytes]]:
        while self._open and (data := await self._read()):
            for frame in self._unpack.feed(data):  # Malformed would be the engine's fault, and is told as it is
                match frame:
                    case Data():
                        name = self._names.get(frame.stream, "")
                        if frame.end:
                            self._open.discard(name)
                        if name == "error":
                            self._last_status += frame.data
                        elif frame.data:
                            yield ("stderr" if name == "stderr" else "stdout"), frame.data
                    case Reset():
                        self._open.discard(self._names.get(frame.stream, ""))
                    case Ping():
                        await self._send(self._pack.ping(frame.number))
                    case GoAway():
                        self._open.clear()
        self._open.clear()

    async def exit_code(self) -> int:
        if not self._last_status and self.ended_with is None:
            raise ConnectionError("the container engine hung up before the command ended")
        status = self._status()
        if status.status == "Success" or not self._last_status:
            return await self.ended_with() if self.ended_with else 0
        if status.reason == "NonZeroExitCode" and status.details:
            codes = [cause.get("message", "") for cause in status.details.causes if cause.get("reason") == "ExitCode"]
            return int(codes[0]) if codes and codes[0].isdecimal() else 1
        raise StartError(status.message, start_code(status.message))

    async def close(self) -> None:
        if self._open and self.hang_up:
            await self.hang_up()
        self._open.clear()
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    def _repeat(self, size: bytes) -> None:
        if size is self._size and self._open and not self._writer.is_closing():
            self._writer.write(size)

    def _status(self) -> _RemoteStatus:
        try:
            return msgspec.json.decode(self._last_status, type=_RemoteStatus)
        except msgspec.MsgspecError:
            return _RemoteStatus(message=self._last_status.decode(errors="replace"))

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(_CHUNK)
        except OSError:
            return b""

    async def _send(self, data: bytes) -> None:
        with suppress(OSError):  # it has ended, and nothing is read any more
            self._writer.write(data)
            await self._writer.drain()


async def connect(url: str, *, stdin: bool, tty: bool) -> CriStreamSession:
    """Raises ConnectionError, Unsupported."""
    where = urlsplit(url)
    if where.scheme != "http" or not where.hostname:
        raise Unsupported(f"streams of the container engine at {url.partition('?')[0]}: only plain http is supported")
    try:
        reader, writer = await asyncio.open_connection(where.hostname, where.port or 80)
    except OSError as error:
        raise ConnectionError(f"the container engine's streams: {error}") from error
    session = CriStreamSession(reader, writer, streams_of(stdin=stdin, tty=tty))
    try:
        writer.write(
            f"POST {where.path}{'?' if where.query else ''}{where.query} HTTP/1.1\r\nHost: {where.netloc}\r\n"
            f"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {PROTOCOL}\r\n"
            "Content-Length: 0\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101"):
            raise ConnectionError(f"the container engine's streams: {head.decode(errors='replace').splitlines()[0]}")
        await session.begin()
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        writer.close()
        raise ConnectionError(f"the container engine's streams: {error}") from error
    return session


def streams_of(*, stdin: bool, tty: bool) -> frozenset[str]:
    """A terminal has no standard error of its own, but a size."""
    return frozenset({"error", "stdout", "resize" if tty else "stderr", *(["stdin"] if stdin else [])})
