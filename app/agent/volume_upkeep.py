"""Looks after volumes while pods run: files that follow what they are made of, and emptyDirs that have become too large.

The agent runs both loops. A look at one pod that fails is said and tried again at the next.
"""

import asyncio
import logging
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from app.agent.clock import Clock
from app.agent.environment import ConfigError
from app.agent.volumes import Volumes
from app.kinds import quantity
from app.kinds.errors import ApiError
from app.kinds.pod import Pod

FILES_PERIOD = 45.0  # seconds between one look at all files and the next: changes arrive within a minute
SIZES_PERIOD = 10.0
BLOCK = 512  # bytes, what st_blocks counts
SHARE = 0.1  # of the time that is spent looking at sizes, at most

log = logging.getLogger(__name__)

# A pod that has to go, and why.
Evict = Callable[[str, str], None]


class VolumeUpkeep:
    """`pods` gives those that run here; `evict` ends one."""

    def __init__(self, volumes: Volumes, pods: Callable[[], Iterable[Pod]], evict: Evict, clock: Clock) -> None:
        self._volumes, self._pods, self._evict, self._clock = volumes, pods, evict, clock

    async def follow_sources(self) -> None:
        while True:
            await self._clock.sleep(FILES_PERIOD)
            await self.refresh()

    async def refresh(self) -> None:
        sources = self._volumes.sources_once()
        for pod in [pod for pod in self._pods() if pod.spec.volumes]:
            try:
                await self._volumes.refresh(pod, sources)
            except (ConfigError, ApiError, OSError) as error:
                log.warning("volumes of pod %s/%s stay as they are: %s", *_name(pod), error)

    async def follow_sizes(self) -> None:
        while True:
            began = self._clock.elapsed()
            await self.measure()
            took = self._clock.elapsed() - began
            await self._clock.sleep(max(SIZES_PERIOD, took / SHARE))

    async def measure(self) -> None:
        for pod in [pod for pod in self._pods() if pod.spec.volumes]:
            message = await self.excess(pod)
            if message:
                self._evict(pod.metadata.uid, message)

    async def excess(self, pod: Pod) -> str:
        """What is too large, as the kubelet says it; nothing if all is well."""
        for name, folder, limit in self._volumes.limited(pod):
            if await asyncio.to_thread(size, folder) > quantity.whole(limit):
                return f'Usage of EmptyDir volume "{name}" exceeds the limit "{limit}". '
        return ""


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


def _name(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name
