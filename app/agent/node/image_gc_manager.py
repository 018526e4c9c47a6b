"""Garbage collection of images when the disk fills up, and of containers' earlier runs.

The agent runs both loops; the eviction manager asks for images to be removed first. The runtime keeps images in use.
"""

import os
from collections.abc import Awaitable, Callable, Collection
from datetime import datetime
from pathlib import Path

from app.agent.clock import Clock
from app.agent.pods.images import ImageManager
from app.plans.kubelet import image_gc
from app.plans.kubelet.image_gc import Disk, StoredImage
from app.runtimes.base import Runtime
from app.structured_logging import Logger

IMAGES_PERIOD = 300.0
RUNS_PERIOD = 60.0

logger = Logger(__name__)


class ImageGcManager:
    """`in_use`: ids of images that pods here have; `remove_old_runs`: containers that later runs have followed.

    disk: of the images.
    """

    def __init__(
        self,
        runtime: Runtime,
        images: ImageManager | None,
        in_use: Callable[[], Collection[str]],
        remove_old_runs: Callable[[], Awaitable[None]],
        disk: Callable[[], Disk],
        clock: Clock,
    ) -> None:
        self._runtime, self._images, self._in_use = runtime, images, in_use
        self._remove_old_runs, self._disk, self._clock = remove_old_runs, disk, clock
        self._seen_at: dict[str, datetime] = {}

    async def run(self) -> None:
        while True:
            await self.collect()
            await self._clock.sleep(IMAGES_PERIOD)

    async def run_for_containers(self) -> None:
        while True:
            await self._clock.sleep(RUNS_PERIOD)
            await self._remove_old_runs()

    async def collect(self, *, now: bool = False) -> int:
        """Bytes of images that went. `now`: the node is short of disk already."""
        if self._images is None:
            return 0
        stored = await self._list_stored(self._images)
        wanted, freed = image_gc.bytes_to_free(self._disk(), now=now), 0
        for each in image_gc.removable_images(stored, self._in_use(), self._clock.now()):
            if freed >= wanted:
                break
            if await self._remove(each):
                freed += each.size
        if freed:
            self._images.forget_all()
        if freed < wanted:
            logger.warning(
                "cannot free enough disk: too few images are unused", reason=f"{freed} of {wanted} bytes are freed"
            )
        return freed

    async def _list_stored(self, images: ImageManager) -> list[StoredImage]:
        found, now = await self._runtime.images(), self._clock.now()
        self._seen_at = image_gc.update_first_seen(self._seen_at, {each.id for each in found}, now)
        used_at = images.used_at
        used_at |= dict.fromkeys(self._in_use(), now)
        for gone in used_at.keys() - self._seen_at.keys():
            del used_at[gone]
        return [StoredImage(each.id, each.size, used_at.get(each.id), self._seen_at[each.id]) for each in found]

    async def _remove(self, image: StoredImage) -> bool:
        try:
            await self._runtime.remove_image(image.id)
        except Exception as error:
            logger.warning("cannot remove an image; retrying", image=image.id, error=error)
            return False
        if image.id in {each.id for each in await self._runtime.images()}:
            return False
        logger.info("removed an unused image: the disk is full", image=image.id, bytes=image.size)
        return True


def read_disk(path: Path) -> Disk:
    """Of the file system there."""
    found = os.statvfs(path)
    return Disk(found.f_blocks * found.f_frsize, found.f_bavail * found.f_frsize)
