"""Eviction manager: evicts pods that use more disk than they may, and others when the machine runs short.

Every ten seconds it looks. When the disk is short, images go first; of pods one at a time goes, and the next one only when
that one is gone or half a minute is over. `app.plans.kubelet.node_pressure_eviction` says which and why.
"""

import asyncio
import os
from collections import defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from app.agent.clock import Clock
from app.agent.node.pressure import Pressures
from app.agent.volumes.volumes import Volumes
from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_state import has_ended
from app.plans.kubelet import node_pressure_eviction, pod_events
from app.plans.kubelet.node_pressure_eviction import DISK, SIGNALS, PodUsage, Shortage, Volume
from app.plans.kubelet.pod_events import Note
from app.plans.kubelet.pod_status import Evicted
from app.runtimes.base import ContainerUsage
from app.structured_logging import Logger

BLOCK = 512  # bytes, what st_blocks counts


def folder_size(folder: Path) -> int:
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


PERIOD = 10.0
SHARE = 0.1  # of the time that is spent looking at sizes, at most
GRACE = timedelta(seconds=1)
CLEANUP = timedelta(seconds=30)

logger = Logger(__name__)


class ActivePods(Protocol):
    """Those that run here."""

    def all(self) -> Sequence[Pod]: ...

    def evict(self, uid: str, why: Evicted, note: Note | None) -> None: ...


class EvictionManager:
    """`usage` is the runtime's; `free_images` removes unused images, and returns how many bytes that freed."""

    def __init__(
        self,
        pods: ActivePods,
        usage: Callable[[], Awaitable[Iterable[ContainerUsage]]],
        volumes: Volumes,
        pressures: Pressures,
        free_images: Callable[[], Awaitable[int]],
        clock: Clock,
    ) -> None:
        self._pods, self._usage, self._volumes, self._pressures = pods, usage, volumes, pressures
        self._free_images, self._clock = free_images, clock
        self._last: tuple[str, datetime] | None = None

    async def run(self) -> None:
        while True:
            began = self._clock.elapsed()
            await self.check()
            took = self._clock.elapsed() - began
            await self._clock.sleep(max(PERIOD, took / SHARE))

    async def check(self) -> None:
        """Once."""
        shortages = self._pressures.shortages()
        if any(SIGNALS[each.signal][0] == DISK for each in shortages) and await self._free_images():
            shortages = self._pressures.shortages()
        measured = await self._measure(all_of_them=bool(shortages))
        remaining = [each for each in measured if not self._is_over(each)]
        if shortages and not self._is_waiting():
            self._evict_one(remaining, shortages[0])

    def _is_over(self, measured: PodUsage) -> bool:
        why = node_pressure_eviction.find_exceeded_limit(measured)
        if why:
            self._evict_pod(measured.pod, why)
        return bool(why)

    def _evict_one(self, pods: Sequence[PodUsage], shortage: Shortage) -> None:
        victim = node_pressure_eviction.select_victim(pods, shortage)
        if victim is None:
            logger.warning("node is under pressure, and no pod can be evicted", resource=SIGNALS[shortage.signal][1])
            return
        why = node_pressure_eviction.eviction_message(victim, shortage)
        meta = victim.pod.metadata
        logger.warning("evicting a pod: the node is under pressure", pod=f"{meta.namespace}/{meta.name}", reason=why)
        self._last = victim.pod.metadata.uid, self._clock.now()
        self._evict_pod(victim.pod, why, mark=why)

    def _evict_pod(self, pod: Pod, why: str, mark: str = "") -> None:
        """`mark`: what its condition DisruptionTarget says, if it is not the pod's own fault."""
        self._pods.evict(pod.metadata.uid, Evicted("Evicted", why, GRACE, mark), pod_events.evicted("Evicted", why))

    def _is_waiting(self) -> bool:
        """For the last one that was evicted to be gone."""
        if self._last is None or self._clock.now() - self._last[1] >= CLEANUP:
            return False
        return any(pod.metadata.uid == self._last[0] for pod in self._pods.all())

    async def _measure(self, *, all_of_them: bool) -> list[PodUsage]:
        """Every pod as far as it has limits, if not more is wanted: to look into folders takes its time."""
        pods = [pod for pod in self._pods.all() if not has_ended(pod.status)]
        whole = {pod.metadata.uid for pod in pods if all_of_them or node_pressure_eviction.has_storage_limit(pod)}
        memory: defaultdict[str, dict[str, int]] = defaultdict(dict)
        disk: defaultdict[str, dict[str, int]] = defaultdict(dict)
        for each in await self._usage() if whole else ():
            memory[each.key.pod_uid][each.key.name] = each.memory
            disk[each.key.pod_uid][each.key.name] = each.disk
            for folder in each.folders if each.key.pod_uid in whole else ():
                disk[each.key.pod_uid][each.key.name] += await asyncio.to_thread(folder_size, folder)
        return [
            PodUsage(pod, memory[uid], disk[uid], await self._sizes(pod, all_of_them=uid in whole))
            for pod in pods
            for uid in (pod.metadata.uid,)
        ]

    async def _sizes(self, pod: Pod, *, all_of_them: bool) -> tuple[Volume, ...]:
        if not pod.spec.volumes:
            return ()
        wanted = [each for each in self._volumes.empty_dirs(pod) if all_of_them or each.limit]
        sizes = [await asyncio.to_thread(folder_size, each.folder) for each in wanted]
        return tuple(
            Volume(each.name, size, each.limit, each.in_memory) for each, size in zip(wanted, sizes, strict=True)
        )
