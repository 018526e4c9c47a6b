"""Log files: watched with inotify, read by offset, and freed on disk behind their reader. Used by the runtimes but the simulated.

`LogFiles` is for files that an engine writes in Kubernetes' format: an offset in the file is the log's offset. Idle containers
cost nothing; a container that floods its log causes at most 50 calls a second.
"""

import asyncio
import ctypes
import errno
import os
import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from app.runtimes.base import ContainerKey
from app.structured_logging import Logger

QUIET = 0.02  # seconds without a look after a look
KEPT = 1024 * 1024  # bytes that always stay
POLL = 0.1  # seconds between looks at files that the kernel will not watch
OVERFLOWN = -1  # a watch that stands for all: notices were lost
_MODIFY = 0x2
_IGNORED = 0x8000  # the kernel took the watch away
_EVENT = struct.Struct("iIII")
_KEEP_SIZE, _PUNCH_HOLE = 0x1, 0x2
_libc = ctypes.CDLL(None, use_errno=True)

logger = Logger(__name__)


def read(path: Path, offset: int, limit: int) -> bytes:
    """Nothing if there is no such file."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except FileNotFoundError:
        return b""
    try:
        return os.pread(fd, max(0, limit), offset)
    finally:
        os.close(fd)


def punch_hole(fd: int, end: int) -> bool:
    """Free a file's blocks before `end`, which read as zeros from now on. False where the file system has no holes."""
    try:
        if end <= 0:
            return True
        code: int = _libc.fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(end))
    except AttributeError:  # no such call on this system
        return False
    return code == 0


def give_back(path: Path, end: int) -> None:
    """Frees what is before `end` on the disk; the engine goes on at the end of the file."""
    if end < KEPT:
        return
    with suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            punch_hole(fd, (end // KEPT - 1) * KEPT)
        finally:
            os.close(fd)


def size_on_disk(path: Path) -> int:
    """Bytes that a file takes, without its holes; 0 if there is no such file."""
    try:
        return path.stat().st_blocks * 512
    except OSError:
        return 0


class Inotify:
    """The kernel's notices of changed files. `fileno()` is readable when one was written to. OSError where the kernel refuses."""

    def __init__(self) -> None:
        self._fd = self._done(_libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def fileno(self) -> int:
        return self._fd

    def add(self, path: Path) -> int:
        """The number of the watch, which `read` gives."""
        return self._done(_libc.inotify_add_watch(self._fd, os.fsencode(path), _MODIFY))

    def remove(self, watch: int) -> None:
        """Fine if the file, and so the watch, is gone."""
        _libc.inotify_rm_watch(self._fd, watch)

    def read(self) -> set[int]:
        """Watches whose files were written to since the last call, perhaps OVERFLOWN among them."""
        watches = set()
        with suppress(BlockingIOError):
            while data := os.read(self._fd, 64 * 1024):
                at = 0
                while at < len(data):
                    watch, mask, _, size = _EVENT.unpack_from(data, at)
                    at += _EVENT.size + size
                    if not mask & _IGNORED:
                        watches.add(watch)
        return watches

    def close(self) -> None:
        os.close(self._fd)

    def _done(self, result: int) -> int:
        if result < 0:
            number = ctypes.get_errno() or errno.ENOSYS
            raise OSError(number, os.strerror(number))
        return result


class LogFiles:
    """Calls `grown` with the key of each container whose log has grown."""

    def __init__(self, grown: Callable[[ContainerKey], None]) -> None:
        self._grown = grown
        self._loop = asyncio.get_running_loop()
        self._followed: dict[ContainerKey, int] = {}  # the watch, -1: polled
        self._watched: dict[int, ContainerKey] = {}
        self._polled: dict[ContainerKey, tuple[Path, int]] = {}  # and the size at the last look
        self._timers: dict[str, asyncio.Handle] = {}
        self._inotify: Inotify | None = None
        try:
            self._inotify = Inotify()
        except OSError as error:
            logger.warning("inotify is not usable; polling logs of containers", error=error)
        self._listen()

    def follow(self, key: ContainerKey, path: Path) -> None:
        if key in self._followed:
            return
        watch = self._watch(path)
        self._followed[key] = watch
        if watch >= 0:
            self._watched[watch] = key
        else:
            self._polled[key] = path, 0
            self._timers.setdefault("poll", self._loop.call_later(POLL, self._poll))
        if _size(path):  # output from before the watch causes no notice
            self._grown(key)

    def forget(self, key: ContainerKey) -> None:
        watch = self._followed.pop(key, -1)
        self._polled.pop(key, None)
        if self._inotify and self._watched.pop(watch, None):
            self._inotify.remove(watch)

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        if self._inotify:
            self._loop.remove_reader(self._inotify.fileno())
            self._inotify.close()
            self._inotify = None

    def _watch(self, path: Path) -> int:
        try:
            return self._inotify.add(path) if self._inotify else -1
        except OSError:  # no more watches, or no such file yet
            return -1

    def _listen(self) -> None:
        if self._inotify:
            self._loop.add_reader(self._inotify.fileno(), self._on_change, self._inotify)

    def _on_change(self, inotify: Inotify) -> None:
        watches = inotify.read()
        for watch in self._watched if OVERFLOWN in watches else watches & self._watched.keys():
            self._grown(self._watched[watch])
        self._loop.remove_reader(inotify.fileno())
        self._timers["quiet"] = self._loop.call_later(QUIET, self._listen)

    def _poll(self) -> None:
        del self._timers["poll"]
        for key, (path, before) in self._polled.items():
            size = _size(path)
            if size != before:
                self._polled[key] = path, size
                self._grown(key)
        if self._polled:
            self._timers["poll"] = self._loop.call_later(POLL, self._poll)


def _size(path: Path) -> int:
    try:
        return path.stat().st_size
    except OSError:
        return 0
