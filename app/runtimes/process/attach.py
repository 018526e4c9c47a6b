"""Attach to a container of the process runtime: its standard streams.

Output is read from the files that the container writes, as it comes, unfinished lines too. Input and a terminal's size go
to the container's keeper (keeper.py), if it has one.
"""

import asyncio
import os
import struct
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Literal

from app.runtimes.logs.log_files import Inotify
from app.runtimes.process.files import Folder, open_ordinary
from app.runtimes.process.keeper import HEAD
from app.runtimes.process.logs import FILES

PIECE = 64 * 1024
POLL = 0.1  # seconds between looks at files that the kernel will not watch
KEEPER_SECONDS = 5.0  # for the keeper of a container that has just started to listen
AGAIN = 0.01

Stream = Literal["stdout", "stderr"]


class Attached:
    """See `base.Session`. Output from before it was made is not read."""

    def __init__(self, folder: Folder, ended: asyncio.Event) -> None:
        self._folder, self._ended = Folder(folder.root, folder.key), ended  # its own: it is open across awaits
        self._loop = asyncio.get_running_loop()
        self._changed = asyncio.Event()
        self._keeps = str(folder.read_record().get("keeps", ""))
        self._keeper: asyncio.StreamWriter | None = None
        self._files: dict[Stream, int] = {}
        self._offsets: dict[Stream, int] = {}
        with folder.open_folder() as opened:
            for stream, name in FILES.items():
                self._files[stream] = open_ordinary(name, os.O_RDONLY, opened)
                self._offsets[stream] = os.fstat(self._files[stream]).st_size
        self._inotify = self._watch()

    async def write(self, data: bytes) -> None:
        await self._send(b"d", data)

    async def end_input(self) -> None:
        await self._send(b"e")

    async def resize(self, width: int, height: int) -> None:
        with suppress(struct.error):
            await self._send(b"r", struct.pack("HHHH", height, width, 0, 0))

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        while True:
            self._changed.clear()
            ended, found = self._ended.is_set(), False
            for stream in FILES:
                if data := self._read(stream):
                    found = True
                    yield stream, data
            if not found and ended:
                return
            if not found:
                await self._wait_for_change()

    async def exit_code(self) -> int:
        """The agent asks the runtime for the container's own."""
        await self._ended.wait()
        return 0

    async def close(self) -> None:
        if self._inotify:
            self._loop.remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None
        for fd in self._files.values():
            os.close(fd)
        self._files = {}
        if self._keeper:
            self._keeper.close()

    def _read(self, stream: Stream) -> bytes:
        fd = self._files[stream]
        if os.fstat(fd).st_size < self._offsets[stream]:
            self._offsets[stream] = 0  # it was cut off
        data = os.pread(fd, PIECE, self._offsets[stream])
        self._offsets[stream] += len(data)
        return data

    async def _wait_for_change(self) -> None:
        waiting = [asyncio.create_task(each.wait()) for each in (self._changed, self._ended)]
        try:
            await asyncio.wait(waiting, timeout=None if self._inotify else POLL, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()

    def _watch(self) -> Inotify | None:
        try:
            inotify = Inotify()
        except OSError:
            return None
        try:
            for name in FILES.values():
                inotify.add(self._folder.path / name)
        except OSError:
            inotify.close()
            return None
        self._loop.add_reader(inotify.fileno(), self._on_change, inotify)
        return inotify

    def _on_change(self, inotify: Inotify) -> None:
        inotify.read()
        self._changed.set()

    async def _send(self, kind: bytes, data: bytes = b"") -> None:
        """Dropped if the container has no input, or no longer."""
        if self._keeper is None and self._keeps:
            self._keeper = await self._connect_keeper()
        if self._keeper is not None:
            with suppress(ConnectionError):
                self._keeper.write(HEAD.pack(kind, len(data)) + data)
                await self._keeper.drain()

    async def _connect_keeper(self) -> asyncio.StreamWriter | None:
        """By way of the open folder: the path itself may be longer than a socket's may be."""
        with suppress(TimeoutError):
            async with asyncio.timeout(KEEPER_SECONDS):
                while not self._ended.is_set():
                    with suppress(FileNotFoundError, ConnectionRefusedError), self._folder.open_folder() as opened:
                        _, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{opened}/attach")
                        return writer
                    await asyncio.sleep(AGAIN)
        return None
