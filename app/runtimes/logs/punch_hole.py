"""Gives the disk back what a file's reader has done with, while its size and all offsets in it stay. Linux only."""

import ctypes

_KEEP_SIZE, _PUNCH_HOLE = 0x1, 0x2
_libc = ctypes.CDLL(None, use_errno=True)


def punch(fd: int, end: int) -> bool:
    """Frees all before `end`, which reads as zeros from now on. False where the file system has no holes."""
    try:
        if end <= 0:
            return True
        code: int = _libc.fallocate(fd, _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(end))
    except AttributeError:  # no such call on this system
        return False
    return code == 0
