"""Container logs as Docker's `local` driver writes them to disk, read in place and turned into records of CRI's format.

Of Docker's drivers this one keeps bytes as they were written. Its file is a row of entries, each between its length and
its length again, big-endian; an entry is protobuf: 1 the stream, 2 the time in nanoseconds, 3 the line without its end,
4 whether it is a piece of a longer one, 5 about that piece: 1 whether it is the last. It only grows, and so what is at an
offset of ours is the same for ever. Nothing but the file is needed, the engine may be away. Of an engine whose folder cannot
be seen from here, copies of the logs are made.
"""

import os
import struct
from bisect import bisect_right
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.runtimes.docker.engine import DockerEngine
from app.runtimes.docker.log_copies import Copies
from app.runtimes.engine.files import Files
from app.runtimes.logs import log_files
from app.runtimes.logs.log_format import moment

_LENGTH = struct.Struct(">I")
_AROUND = 2 * _LENGTH.size
_PIECE = 256 * 1024  # bytes of a file read at once; more than any entry has
_STEP = 1024 * 1024  # bytes between places that are remembered


class LocalLog:
    """One container's log. `read` goes on fast where it stopped, and nearly as fast from anywhere."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._marks = [(0, 0)]  # of records and of the file, at the same place
        self._last = (0, 0)

    def read(self, offset: int, limit: int) -> bytes:
        """Nothing if there is no such file. Raises OSError, ValueError."""
        at, place = max(self._last if self._last[0] <= offset else (0, 0), self._mark(offset))
        found: list[bytes] = []
        start, end = at, offset + max(0, limit)
        while at < end and (piece := log_files.read(self.path, place, _PIECE)):
            used = 0
            for record, size in _records(piece):
                if at >= end:
                    break
                if at + len(record) <= offset:
                    start = at + len(record)
                else:
                    found.append(record)
                at, used = at + len(record), used + size
                self._remember(at, place + used)
            if not used:
                break
            place += used
        return b"".join(found)[offset - start :][:limit]

    def _mark(self, offset: int) -> tuple[int, int]:
        return self._marks[bisect_right(self._marks, (offset, 1 << 63)) - 1]

    def _remember(self, at: int, place: int) -> None:
        self._last = at, place
        if at >= self._marks[-1][0] + _STEP:
            self._marks.append((at, place))


def _records(piece: bytes) -> Iterator[tuple[bytes, int]]:
    """Each whole entry's record, and how long the entry is in the file."""
    at = 0
    while at + _AROUND <= len(piece):
        (length,) = _LENGTH.unpack_from(piece, at)
        if at + length + _AROUND > len(piece):
            return
        if _LENGTH.unpack_from(piece, at + length + _LENGTH.size) != (length,):
            raise ValueError("this is not a log of Docker's `local` driver")
        yield _record(piece[at + _LENGTH.size : at + _LENGTH.size + length]), length + _AROUND
        at += length + _AROUND


def _record(entry: bytes) -> bytes:
    found = dict(_fields(entry))
    about = dict(_fields(_bytes(found.get(5))))
    kind = b"P" if found.get(4) and not about.get(1) else b"F"
    when = found.get(2, 0)
    head = b"%b %b %b " % (moment(when if isinstance(when, int) else 0), _bytes(found.get(1)), kind)
    return head + _bytes(found.get(3)) + b"\n"


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and contents of a message that has but numbers and bytes in it."""
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        value, at = _number(message, at)
        if tag & 7 == 2:
            yield tag >> 3, message[at : at + value]
            at += value
        elif tag & 7 == 0:
            yield tag >> 3, value
        else:
            raise ValueError("an entry of Docker's `local` driver that is not understood")


def _number(message: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = message[at]
        found |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return found, at


def _bytes(value: int | bytes | None) -> bytes:
    return value if isinstance(value, bytes) else b""


class PlainLog:
    """One that is in Kubernetes' format already, as Podman writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self, offset: int, limit: int) -> bytes:
        return log_files.read(self.path, offset, limit)


class EngineLogs:
    """Those of an engine's containers, by its ids."""

    def __init__(self, engine: DockerEngine, files: Files) -> None:
        self._engine, self._copies = engine, Copies(engine, files)
        self._root: Path | None = None
        self._found: dict[str, LocalLog | PlainLog] = {}
        self._copied: set[str] = set()

    async def root(self) -> Path:
        """The engine's folder."""
        if self._root is None:
            self._root = Path((await self._engine.ask("info"))["DockerRootDir"])
        return self._root

    async def find(self, found: Mapping[str, Any]) -> None:
        """`found`: what the engine tells of a container. Of one that has ended, all is there afterwards."""
        id_ = str(found["Id"])
        if id_ in self._copied:
            await self._copies.take(found)
        elif id_ not in self._found:
            folder = await self.root() / "containers" / id_
            path = Path(found.get("LogPath") or folder / "local-logs" / "container.log")
            if is_seen(path.parent if found.get("LogPath") else folder.parent):
                self._found[id_] = PlainLog(path) if found.get("LogPath") else LocalLog(path)
            elif found["State"]["Status"] != "created":
                self._copied.add(id_)
                self._found[id_] = PlainLog(await self._copies.take(found))

    def path(self, id_: str) -> Path | None:
        found = self._found.get(id_)
        return found.path if found else None

    def size(self, id_: str) -> int:
        """Bytes on disk."""
        path = self.path(id_)
        with suppress(OSError):
            return path.stat().st_size if path else 0
        return 0

    def read(self, id_: str, offset: int, limit: int) -> bytes:
        found = self._found.get(id_)
        return found.read(offset, limit) if found else b""

    def forget(self, id_: str) -> None:
        self._found.pop(id_, None)
        self._copied.discard(id_)
        self._copies.forget(id_)

    def close(self) -> None:
        self._copies.close()


def is_seen(folder: Path) -> bool:
    """Return whether the engine's folder is on this machine, and open to this user."""
    return os.access(folder, os.R_OK | os.X_OK)
