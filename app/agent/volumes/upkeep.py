"""Volume upkeep while pods run: files follow the objects that they are made of.

A look at one pod that fails is said and tried again at the next.
"""

from collections.abc import Callable, Iterable

from app.agent.clock import Clock
from app.agent.pods.environment import ConfigError
from app.agent.volumes.volumes import Volumes
from app.kinds.pod.pod import Pod
from app.machinery.errors import ApiError
from app.structured_logging import Logger

FILES_PERIOD = 45.0  # seconds between one look at all files and the next: changes arrive within a minute

logger = Logger(__name__)


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
                logger.warning("cannot refresh the volumes of a pod; retrying", pod=_name(pod), error=error)


def _name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"
