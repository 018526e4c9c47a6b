"""Copies of containers' logs, for agents that may use Docker's socket but cannot see its folder.

Each is taken from the engine while its container runs, and appended to a file of the agent's, a record a message. Messages
come in the same order each time they are asked for: a later agent passes over as many as there are records.
"""

import asyncio
import os
import re
import struct
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

from app.runtimes.docker import config
from app.runtimes.docker.engine import DockerEngine
from app.runtimes.engine.errors import EngineError
from app.runtimes.engine.files import Files
from app.structured_logging import Logger

COMPLETE_WITHIN = 10.0  # seconds after the container's end
_HEAD = struct.Struct(">BxxxI")
_NAMES = {1: b"stdout", 2: b"stderr"}
_PIECE = 16 * 1024  # Docker's own limit of a message
_STAMP = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+Z ")
_CHUNK = 64 * 1024

logger = Logger(__name__)


class Copies:
    """By the engine's ids."""

    def __init__(self, engine: DockerEngine, files: Files) -> None:
        self._engine, self._files = engine, files
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._complete: set[str] = set()

    async def take(self, found: Mapping[str, Any]) -> Path:
        """Begins, unless it has; returns at the end if the container has ended. `found`: what the engine tells of it."""
        id_ = str(found["Id"])
        path = self._files.log(config.key(found["Config"]["Labels"]))
        over = found["State"]["Status"] in ("exited", "dead", "stopped")
        task = self._tasks.get(id_)
        if id_ not in self._complete and (task is None or task.done()):
            task = asyncio.get_running_loop().create_task(self._copy(id_, path, tty=found["Config"]["Tty"]))
            self._tasks[id_] = task
        if over and task:
            await asyncio.wait([task], timeout=COMPLETE_WITHIN)
            if task.done() and not task.cancelled() and not task.exception():
                self._complete.add(id_)
        return path

    def forget(self, id_: str) -> None:
        task = self._tasks.pop(id_, None)
        if task:
            task.cancel()
        self._complete.discard(id_)

    def close(self) -> None:
        for id_ in [*self._tasks]:
            self.forget(id_)

    async def _copy(self, id_: str, path: Path, *, tty: bool) -> None:
        with path.open("r+b" if path.exists() else "w+b", buffering=0) as file:
            try:
                # Docker before 23.0, if followed, may end without what was written just before the container's end. At
                # its end all is in the engine's own file: it is asked once more, and what the copy has is passed over.
                for follow in (True, False):
                    there = _whole(file.fileno())
                    async for records in _records(self._messages(id_, tty=tty, follow=follow)):
                        new = records[there:]
                        there = max(0, there - len(records))
                        file.write(b"".join(new))
            except (ConnectionError, EngineError) as error:  # asked for again when the container is looked at next
                logger.warning("cannot copy the log of a container; retrying", container=id_, error=error)
                raise

    def _messages(self, id_: str, *, tty: bool, follow: bool) -> AsyncIterator[list[tuple[bytes, bytes]]]:
        chunks = self._engine.bytes_of(f"containers/{id_}/logs", follow=int(follow), stdout=1, stderr=1, timestamps=1)
        return _lines(chunks) if tty else _frames(chunks)


def _whole(fd: int) -> int:
    """Return how many records there are; the rest of one that was being written is cut off."""
    size = end = count = 0
    while data := os.pread(fd, _CHUNK, size):
        count += data.count(b"\n")
        if b"\n" in data:
            end = size + data.rindex(b"\n") + 1
        size += len(data)
    os.ftruncate(fd, end)
    os.lseek(fd, end, os.SEEK_SET)
    return count


async def _records(messages: AsyncIterator[list[tuple[bytes, bytes]]]) -> AsyncIterator[list[bytes]]:
    """The engine tells the end of a line by a newline, but leaves that out after the last of several pieces."""
    goes_on: dict[bytes, bool] = {}
    async for batch in messages:
        found = []
        for name, message in batch:
            when, _, text = message.partition(b" ")
            is_full = _is_full(text)
            kind = b"F" if text.endswith(b"\n") or (goes_on.get(name) and not is_full) else b"P"
            goes_on[name] = is_full
            found.append(b"%b %b %b %b\n" % (when, name, kind, text.removesuffix(b"\n")))
        yield found


def _is_full(text: bytes) -> bool:
    return len(text) >= _PIECE and not text.endswith(b"\n")


async def _frames(chunks: AsyncIterator[bytes]) -> AsyncIterator[list[tuple[bytes, bytes]]]:
    """Each frame is a message: when, and a line or a piece of one."""
    held = bytearray()
    async for data in chunks:
        held += data
        found, at = [], 0
        while at + _HEAD.size <= len(held):
            stream, length = _HEAD.unpack_from(held, at)
            end = at + _HEAD.size + length
            if end > len(held):
                break
            found.append((_NAMES.get(stream, b"stdout"), bytes(held[at + _HEAD.size : end])))
            at = end
        del held[:at]
        yield found


async def _lines(chunks: AsyncIterator[bytes]) -> AsyncIterator[list[tuple[bytes, bytes]]]:
    """A terminal's messages come without frames, each with the time in front."""
    held, goes_on = b"", False
    async for data in chunks:
        held += data
        found = []
        while message := _first(held, goes_on=goes_on):
            found.append((b"stdout", message))
            held, goes_on = held[len(message) :], _is_full(message.partition(b" ")[2])
        yield found
    if held:
        yield [(b"stdout", held)]


def _first(held: bytes, *, goes_on: bool) -> bytes:
    """The first whole message; nothing while there is none. `goes_on`: its line began in the one before."""
    stamp = _STAMP.match(held)
    start = stamp.end() if stamp else 0
    line = held.find(b"\n", start, start + _PIECE + 1) + 1
    follows = _STAMP.search(held, start, line or start + _PIECE) if goes_on else None
    if follows:
        return held[: follows.start()]
    if line:
        return held[:line]
    return held[: start + _PIECE] if _STAMP.match(held, start + _PIECE) else b""
