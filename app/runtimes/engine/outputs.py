"""Container output past an engine that may die: shims append it to files of the agent. Called by the runtimes with engines.

By itself an engine reads what containers write from FIFOs, and notes it down in log files. When it is killed, what it has
read and not noted down is lost, and with a container that ends before the engine is back all that waits in its FIFO. The
shims, which write to the FIFOs, survive it; and where an ordinary file stands in a FIFO's place, a shim appends to that.
`cri.recovery` and `docker.recovery` put links to such files there. From the files a log is made as in the process runtime.

With terminals, and where the engine's folders are not seen from here, the engine's own log file is the log.
"""

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Literal

from app.runtimes.base import ContainerKey, Session
from app.runtimes.logs.log_files import LogFiles
from app.runtimes.process.attach import Attached
from app.runtimes.process.files import Folder, open_ordinary
from app.runtimes.process.logs import FILES, SHARE, Follower, Log

_BLOCK = 512  # bytes, as stat counts


class Outputs(LogFiles):
    """Calls `grown` when a log has grown, be it the engine's file or made of diverted output. `root`: as in `engine.files`."""

    def __init__(self, root: Path, grown: Callable[[ContainerKey], None]) -> None:
        super().__init__(grown)
        self._root = root
        self._follower = Follower(grown)
        self._made: dict[ContainerKey, Log] = {}
        self._watched_over: set[ContainerKey] = set()

    def follow(self, key: ContainerKey, path: Path) -> None:
        log = self._log(key)
        if log is None:
            super().follow(key, path)
        elif key not in self._watched_over:
            self._watched_over.add(key)
            self._follower.follow(self.folder(key), log)

    def forget(self, key: ContainerKey) -> None:
        super().forget(key)
        if key in self._watched_over:
            self._watched_over.discard(key)
            self._follower.forget(key)
        self._made.pop(key, None)

    def close(self) -> None:
        super().close()
        self._follower.close()

    def make(self, key: ContainerKey) -> None:
        """The files that it is diverted to."""
        folder = self.folder(key)
        folder.create()
        with folder.open_folder() as opened:
            for name in FILES.values():
                os.close(open_ordinary(name, os.O_WRONLY | os.O_CREAT, opened))

    def unmake(self, key: ContainerKey) -> None:
        """It is not diverted: of a start that came to nothing."""
        shutil.rmtree(self.folder(key).path, ignore_errors=True)
        self._made.pop(key, None)

    def folder(self, key: ContainerKey) -> Folder:
        return Folder(self._root, key)

    def is_diverted(self, key: ContainerKey) -> bool:
        return os.path.isdir(self.folder(key).path)

    def has_some(self, key: ContainerKey) -> bool:
        """Return whether anything was written."""
        return bool(self.beginning(key, 1))

    def beginning(self, key: ContainerKey, limit: int) -> bytes:
        """Of what was written, to either stream."""
        folder, found = self.folder(key).path, b""
        for name in FILES.values():
            with suppress(FileNotFoundError), (folder / name).open("rb") as file:
                found += file.read(limit)
        return found

    def size(self, key: ContainerKey) -> int:
        """Bytes on disk; 0 if it was not diverted."""
        with suppress(FileNotFoundError), os.scandir(self.folder(key).path) as entries:
            return sum(each.stat().st_blocks * _BLOCK for each in entries)
        return 0

    def read(self, key: ContainerKey, offset: int, limit: int, *, over: bool) -> bytes | None:
        """None if it was not diverted. Raises OSError."""
        log = self._log(key)
        if log is None:
            return None
        data = log.read(offset, limit)
        if not data and log.drain(SHARE, last=over):
            data = log.read(offset, limit)
        return data

    def release(self, key: ContainerKey, offset: int) -> bool:
        """False if it was not diverted."""
        log = self._log(key)
        with suppress(OSError):
            log.release(offset) if log else None
        return log is not None

    def _log(self, key: ContainerKey) -> Log | None:
        if key not in self._made and self.is_diverted(key):
            self._made[key] = Log(self.folder(key))
        return self._made.get(key)


class DivertedSession:
    """Session with a container whose output is diverted: input by the engine, output from the files. See `base.Session`.

    It ends when the engine says so: by then all output is in the files.
    """

    def __init__(self, session: Session, folder: Folder) -> None:
        self._session, self._ended = session, asyncio.Event()
        self._files = Attached(folder, self._ended)
        self._waiting = asyncio.get_running_loop().create_task(self._end())
        self.write, self.end_input, self.resize = session.write, session.end_input, session.resize

    def output(self) -> AsyncIterator[tuple[Literal["stdout", "stderr"], bytes]]:
        return self._files.output()

    async def exit_code(self) -> int:
        await self._ended.wait()
        return await self._session.exit_code()

    async def close(self) -> None:
        self._waiting.cancel()
        await asyncio.gather(self._waiting, return_exceptions=True)
        await self._files.close()
        await self._session.close()

    async def _end(self) -> None:
        try:
            async for _ in self._session.output():
                pass  # nothing comes that way
            with suppress(ConnectionError):
                await self._session.exit_code()
        finally:
            self._ended.set()
