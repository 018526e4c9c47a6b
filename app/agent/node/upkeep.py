"""Node upkeep while pods run: volumes follow their sources, garbage is collected, pods are evicted.

Put together here, for the agent to run; each part is a module of its own.
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path

from app.agent.node import image_gc_manager
from app.agent.node.eviction_manager import Eviction
from app.agent.node.image_gc_manager import Garbage
from app.agent.pods.container_config import Host
from app.agent.pods.pods import Pods
from app.agent.volumes.upkeep import VolumeUpkeep

Loop = Callable[[], Awaitable[None]]


class Upkeep:
    """`state`: the agent's folder, on the disk that pods fill."""

    def __init__(self, host: Host, pods: Pods, state: Path) -> None:
        self._host, self._pods = host, pods
        self._volumes = VolumeUpkeep(host.volumes, pods.all, host.clock)
        store = Path(host.info.store) if host.info.store and Path(host.info.store).exists() else state
        self._garbage = Garbage(
            host.runtime, pods.images, self._images_in_use, pods.thin, partial(image_gc_manager.disk, store), host.clock
        )

        self._eviction = Eviction(pods, host.runtime.usage, host.volumes, host.pressures, self._free_images, host.clock)

    def _images_in_use(self) -> set[str]:
        return {image for work in self._pods.works() for image in work.images.values()}

    async def _free_images(self) -> int:
        return await self._garbage.collect(now=True)

    def loops(self) -> Iterator[tuple[str, Loop]]:
        """Where nothing really runs there is nothing to do."""
        if self._host.info.runs_commands:
            yield "files of volumes", self._volumes.follow_sources
            yield "eviction", self._eviction.follow
            yield "images that nobody uses", self._garbage.follow_images
            yield "runs that others have followed", self._garbage.follow_runs
