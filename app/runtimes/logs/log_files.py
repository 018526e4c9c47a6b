"""Watches and reads log files that an engine writes in Kubernetes' format. An offset in the file is the log's offset.

Idle containers cost nothing; one that floods its log is told at most 50 times a second.
"""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from app.runtimes.base import ContainerKey
from app.runtimes.logs import punch_hole
from app.runtimes.logs.inotify import OVERFLOWN, Inotify
from app.structured_logging import Logger

QUIET = 0.02  # seconds without a look after a look
KEPT = 1024 * 1024  # bytes that stay, whoever has them
POLL = 0.1  # seconds between looks at files that the kernel will not watch

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


def give_back(path: Path, end: int) -> None:
    """Frees what is before `end` on the disk; the engine goes on at the end of the file."""
    if end < KEPT:
        return
    with suppress(OSError):
        fd = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            punch_hole.punch(fd, (end // KEPT - 1) * KEPT)
        finally:
            os.close(fd)


class LogFiles:
    """Tells `grown` whose log has grown."""

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
        if _size(path):  # of what was written before there was a watch, nothing will tell
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
            self._loop.add_reader(self._inotify.fileno(), self._noticed, self._inotify)

    def _noticed(self, inotify: Inotify) -> None:
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
