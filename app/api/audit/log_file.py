"""Files of the audit log: appends lines, and rotates by size, number and age, as kube-apiserver's --audit-log-max* do.

`event_buffer` calls `write` in its thread. Each process has a file of its own: the first takes audit.log, others
audit.2.log, audit.3.log and so on, by a lock that ends with its process. So no two write to one file, and a file goes on after a
restart. A line is there whole or not at all: what a failed write left is cut off at once, what a kill left at the next start.
"""

import fcntl
import os
import re
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Protocol

from app.structured_logging import Logger

logger = Logger(__name__)
_MOST_PROCESSES = 64
_AT_ONCE = 1 << 20  # bytes in one call of the kernel
_BLOCK = 64 << 10
_TIME = "%Y-%m-%dT%H-%M-%S"


class AuditLog(Protocol):
    """Where lines go."""

    def write(self, lines: deque[bytes]) -> None:
        """Write lines, and take those away that are written. OSError if one cannot be; to call again goes on with it."""
        ...

    def close(self) -> None: ...


class StandardOutput:
    """The audit log of a container: its standard output."""

    def write(self, lines: deque[bytes]) -> None:
        while lines:
            _write_all(1, lines[0])
            lines.popleft()

    def close(self) -> None:
        """Leave it open: it is everybody's."""


class LogFile:
    """One file with its backups. `max_backups` and `max_age` of 0: without limit."""

    def __init__(
        self, path: Path, *, max_bytes: int, max_backups: int, max_age: timedelta, now: Callable[[], datetime]
    ) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._lock, self.path = _lock_first_free(path)
        self._max_bytes, self._max_backups, self._max_age, self._now = max_bytes, max_backups, max_age, now
        self._file, self._size = -1, 0
        self._open()
        _cut_half_line(self._file)
        self._size = os.fstat(self._file).st_size
        self._delete_old_backups()

    def write(self, lines: deque[bytes]) -> None:
        self._follow_rename()
        while lines:
            if self._size and self._size + len(lines[0]) > self._max_bytes:
                self._rotate()
            some, room = [lines[0]], min(self._max_bytes - self._size, _AT_ONCE) - len(lines[0])
            while len(some) < len(lines) and len(lines[len(some)]) <= room:
                some.append(lines[len(some)])
                room -= len(some[-1])
            self._append(b"".join(some))
            for _ in some:
                lines.popleft()

    def close(self) -> None:
        os.close(self._file)
        os.close(self._lock)

    def _append(self, data: bytes) -> None:
        try:
            _write_all(self._file, data)
        except OSError:
            os.ftruncate(self._file, self._size)  # no half line stays, and none is written twice
            raise
        self._size += len(data)

    def _open(self) -> None:
        opened = os.open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        if self._file >= 0:
            os.close(self._file)
        self._file, self._size = opened, os.fstat(opened).st_size

    def _follow_rename(self) -> None:
        """Begin a new file if somebody, such as logrotate, has moved or removed this one, or go on in one that was cut."""
        mine = os.fstat(self._file)
        try:
            found = self.path.stat()
        except FileNotFoundError:
            self._open()
            return
        if (found.st_dev, found.st_ino) != (mine.st_dev, mine.st_ino):
            self._open()
        self._size = min(self._size, mine.st_size) if found.st_ino == mine.st_ino else self._size

    def _rotate(self) -> None:
        now = self._now().astimezone(UTC)
        name = f"{self.path.stem}-{now.strftime(_TIME)}.{now.microsecond // 1000:03d}"
        backup, number = self.path.with_name(f"{name}{self.path.suffix}"), 1
        while backup.exists():
            backup, number = self.path.with_name(f"{name}.{number:03d}{self.path.suffix}"), number + 1
        self.path.rename(backup)
        self._open()
        self._delete_old_backups()

    def backups(self) -> list[Path]:
        """The backups of this file, oldest first."""
        mine = re.compile(rf"{re.escape(self.path.stem)}-(\d{{4}}-\d\d-\d\dT[\d.-]+){re.escape(self.path.suffix)}")
        return sorted(
            (each for each in self.path.parent.iterdir() if mine.fullmatch(each.name)), key=lambda each: each.stem
        )

    def _delete_old_backups(self) -> None:
        found = self.backups()
        surplus = found[: -self._max_backups] if self._max_backups else []
        before = f"{self.path.stem}-{(self._now().astimezone(UTC) - self._max_age).strftime(_TIME)}"
        aged = [each for each in found if self._max_age and each.name < before]
        for each in {*surplus, *aged}:
            each.unlink(missing_ok=True)


def _write_all(file: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(file, rest) :]


def _lock_first_free(path: Path) -> tuple[int, Path]:
    """Return a locked descriptor, and the path that it stands for. OSError if as many processes as may be have one."""
    for number in range(1, _MOST_PROCESSES + 1):
        own = path if number == 1 else path.with_name(f"{path.stem}.{number}{path.suffix}")
        lock = os.open(own.with_name(f".{own.name}.lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(lock)
            continue
        except OSError:
            os.close(lock)
            raise
        return lock, own
    raise OSError(f"{path}: {_MOST_PROCESSES} processes write audit logs there: pass another JOBPLANE_AUDIT_LOG_PATH")


def _cut_half_line(file: int) -> None:
    """Cut off what follows the last line end: a process was killed while it wrote that."""
    end = os.fstat(file).st_size
    while end:
        start = max(0, end - _BLOCK)
        found = os.pread(file, end - start, start).rfind(b"\n")
        if found >= 0:
            end = start + found + 1
            break
        end = start
    os.ftruncate(file, end)
