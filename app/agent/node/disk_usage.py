"""Disk usage of a folder. `eviction_manager` asks for what pods write to."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

BLOCK = 512  # bytes, what st_blocks counts


def size(folder: Path) -> int:
    """Bytes of disk or memory; a file with several names counts once. What vanishes meanwhile counts for nothing."""
    total, waiting = 0, [str(folder)]
    seen: set[int] = set()
    while waiting:
        for entry in _entries(waiting.pop()):
            with suppress(OSError):
                found = entry.stat(follow_symlinks=False)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(entry.path)
                elif found.st_nlink > 1 and found.st_ino in seen:
                    continue
                seen.update({found.st_ino} if found.st_nlink > 1 else ())
                total += found.st_blocks * BLOCK
    return total


def _entries(folder: str) -> Iterator["os.DirEntry[str]"]:
    with suppress(OSError), os.scandir(folder) as entries:
        yield from entries
