"""Volume upkeep while pods run: files follow the objects that they are made of.

A look at one pod that fails is said and tried again at the next.
"""

import logging
from collections.abc import Callable, Iterable

from app.agent.clock import Clock
from app.agent.pods.environment import ConfigError
from app.agent.volumes.volumes import Volumes
from app.kinds.pod.pod import Pod
from app.machinery.errors import ApiError

FILES_PERIOD = 45.0  # seconds between one look at all files and the next: changes arrive within a minute

log = logging.getLogger(__name__)


class VolumeUpkeep:
    """`pods` gives those that run here."""

    def __init__(self, volumes: Volumes, pods: Callable[[], Iterable[Pod]], clock: Clock) -> None:
        self._volumes, self._pods, self._clock = volumes, pods, clock

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


def _name(pod: Pod) -> tuple[str, str]:
    return pod.metadata.namespace, pod.metadata.name
