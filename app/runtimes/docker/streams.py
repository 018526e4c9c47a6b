"""Commands in containers, and containers' own streams, over a connection that a Docker Engine gave away for them.

Input goes in as it is. Output comes as it is from a terminal, and else in frames: the stream's number, three zeros, four
bytes of length, big-endian.
"""

import asyncio
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Literal

Named = Literal["stdout", "stderr"]

_HEAD = struct.Struct(">BxxxI")
_CHUNK = 64 * 1024
# How Docker, and Podman with either runtime, begin what they say in place of a command that they cannot run.
FAILED = (b"OCI runtime exec failed: ", b"Error: runc: ", b"Error: crun: ")


class DockerStreamSession:
    """A `base.Session`.

    resized:    tells the engine of a terminal's size.
    ended_with: the exit code, given what the engine said in place of the command's output.
    hang_up:    what `close` does first if the command has not ended.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, tty: bool) -> None:
        self._reader, self._writer, self._tty = reader, writer, tty
        self._is_open = True
        self._input_ended = False
        self._failure = b""
        self.resized: Callable[[int, int], Awaitable[None]] | None = None
        self.ended_with: Callable[[bytes], Awaitable[int]] | None = None
        self.hang_up: Callable[[], Awaitable[None]] | None = None

    async def write(self, data: bytes) -> None:
        if data and not self._input_ended:
            with suppress(OSError):  # it has ended, and nothing is read any more
                self._writer.write(data)
                await self._writer.drain()

    async def end_input(self) -> None:
        if not self._input_ended:
            self._input_ended = True
            with suppress(OSError):
                self._writer.write_eof()

    async def resize(self, width: int, height: int) -> None:
        if self._tty and self._is_open and self.resized:
            await self.resized(width, height)

    async def output(self) -> AsyncIterator[tuple[Named, bytes]]:
        pieces = self._read_raw() if self._tty else self._read_frames()
        first = True
        async for name, data in pieces:
            if first and data.startswith(FAILED):
                self._failure = data  # whether the command itself said so is clear only when it has ended
            elif data:
                yield name, data
            first = False
        self._is_open = False

    async def exit_code(self) -> int:
        return await self.ended_with(self._failure) if self.ended_with else 0

    async def close(self) -> None:
        if self._is_open and self.hang_up:
            await self.hang_up()
        self._is_open = False
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _read_raw(self) -> AsyncIterator[tuple[Named, bytes]]:
        with suppress(OSError):
            while data := await self._reader.read(_CHUNK):
                yield "stdout", data

    async def _read_frames(self) -> AsyncIterator[tuple[Named, bytes]]:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                stream, length = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
                yield ("stderr" if stream == 2 else "stdout"), await self._reader.readexactly(length)
