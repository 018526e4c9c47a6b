"""Disk space that containers of the oci runtime have written to their root: what is in overlayfs' upper folders.

To look takes a walk through them, so each is looked at seldom, and the more seldom the longer it took. An ordinary user's agent
does not see into folders that containers have closed to others: what is there does not count.
"""

import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from app.runtimes.base import ContainerKey

LEAST_PAUSE, SHARE = 10.0, 50  # seconds between looks, and at least so many times what the last one took


class _Look(NamedTuple):
    bytes: int
    again: float


class WritableLayerSizes:
    """Called in a thread, one call at a time."""

    def __init__(self) -> None:
        self._looks: dict[ContainerKey, _Look] = {}

    def measure(self, folders: Mapping[ContainerKey, Path]) -> dict[ContainerKey, int]:
        """Bytes of each, as of now or of the last look. Those that are not asked for are forgotten."""
        known, self._looks = self._looks, {}
        for key, folder in folders.items():
            look, began = known.get(key), time.monotonic()
            if look is None or began >= look.again:
                size, ended = _size(folder), time.monotonic()
                look = _Look(size, ended + max(LEAST_PAUSE, SHARE * (ended - began)))
            self._looks[key] = look
        return {key: look.bytes for key, look in self._looks.items()}


def _size(folder: Path) -> int:
    """Of all that is in it, links not followed. What goes meanwhile does not count."""
    total, left = 0, [str(folder)]
    while left:
        with suppress(OSError), os.scandir(left.pop()) as entries:
            for each in entries:
                with suppress(OSError):
                    total += each.stat(follow_symlinks=False).st_blocks * 512
                    if each.is_dir(follow_symlinks=False):
                        left.append(each.path)
    return total
