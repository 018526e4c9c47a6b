"""inotify: the kernel's notices of changed files, which the standard library lacks. The process runtime follows logs with it."""

import ctypes
import errno
import os
import struct
from contextlib import suppress
from pathlib import Path

OVERFLOWN = -1  # a watch that stands for all: notices were lost
_MODIFY = 0x2
_IGNORED = 0x8000  # the kernel took the watch away
_EVENT = struct.Struct("iIII")


class Inotify:
    """Watches files. `fileno()` is readable when one was written to. OSError where the kernel refuses."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._fd = self._done(self._libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def fileno(self) -> int:
        return self._fd

    def add(self, path: Path) -> int:
        """The number of the watch, which `read` gives."""
        return self._done(self._libc.inotify_add_watch(self._fd, os.fsencode(path), _MODIFY))

    def remove(self, watch: int) -> None:
        """Fine if the file, and so the watch, is gone."""
        self._libc.inotify_rm_watch(self._fd, watch)

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
