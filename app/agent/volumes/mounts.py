"""Mounts that the agent makes for pods: memory for emptyDir, and parts of volumes for subPath. Linux, by the C library.

Mounts outlive the agent, and the kernel's list of them is the only record. Nothing below a folder may be deleted while
something is mounted in it: that may be the host's own files.
"""

import ctypes
import errno
import os
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path

_BIND = 0x1000
_DETACH, _NOFOLLOW = 0x2, 0x8
_OCTAL = re.compile(r"\\([0-7]{3})")


class NotAllowedError(PermissionError):
    """The agent may not mount anything."""


def mount_memory(folder: Path, size: int | None) -> None:
    """A tmpfs. Raises NotAllowedError, OSError."""
    _mount("tmpfs", folder, "tmpfs", 0, f"size={size}" if size else "")


def bind(fd: int, target: Path) -> None:
    """Shows what a descriptor stands for at `target`, whatever its name may lead to by now."""
    _mount(f"/proc/self/fd/{fd}", target, "", _BIND, "")


def is_mounted(path: Path) -> bool:
    return str(path.resolve()) in mount_points()


def mount_points() -> list[str]:
    """All that is mounted, in the order that it was."""
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as lines:
        return [_OCTAL.sub(lambda found: chr(int(found[1], 8)), line.split(" ", 5)[4]) for line in lines]


def unmount_below(folder: Path) -> None:
    """Raises OSError if something stays mounted at or below the folder."""
    inner = _below(folder)
    for path in reversed(inner):
        unmount(Path(path))
    if inner and (left := _below(folder)):
        raise OSError(errno.EBUSY, "still mounted", left[0])


def unmount(path: Path) -> None:
    with suppress(FileNotFoundError):
        _check_result(_library().umount2(os.fsencode(path), _DETACH | _NOFOLLOW), path)


def _below(folder: Path) -> list[str]:
    top = str(folder.resolve())
    return [path for path in mount_points() if path == top or path.startswith(f"{top}/")]


def _mount(source: str, target: Path, kind: str, flags: int, options: str) -> None:
    words = (source, str(target), kind)
    _check_result(_library().mount(*map(os.fsencode, words), flags, options.encode() or None), target)


def _check_result(result: int, path: Path) -> None:
    if result:
        number = ctypes.get_errno()
        if number == errno.EPERM:
            raise NotAllowedError(number, "the agent may not mount (it lacks CAP_SYS_ADMIN)", str(path))
        raise OSError(number, os.strerror(number), str(path))


class _Library:
    mount: Callable[..., int]
    umount2: Callable[..., int]

    def __init__(self) -> None:
        loaded = ctypes.CDLL(None, use_errno=True)
        loaded.mount.argtypes = (*[ctypes.c_char_p] * 3, ctypes.c_ulong, ctypes.c_char_p)
        loaded.umount2.argtypes = (ctypes.c_char_p, ctypes.c_int)
        self.mount, self.umount2 = loaded.mount, loaded.umount2


@cache
def _library() -> _Library:
    return _Library()
