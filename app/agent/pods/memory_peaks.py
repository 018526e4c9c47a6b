"""Memory peaks: the most memory that each container has used, as far as looking often shows it. Run by `agent`.

`pod_sync` sends the peaks with the report that ends the pod. What is used between two looks is not seen, unless the runtime knows
of it; nor are containers that end before the first look.
"""

from collections.abc import Callable

from app.agent.clock import Clock
from app.agent.pods.pod_worker import PodWorker
from app.runtimes.base import Runtime

EVERY = 1.0  # seconds
MOST_OF_TIME = 0.05  # that is spent on looking: an engine may take long to answer for many containers


class MemoryPeaks:
    """`worker_of` gives the worker of a pod's UID; None if the pod is not, or no longer, here."""

    def __init__(self, runtime: Runtime, worker_of: Callable[[str], PodWorker | None], clock: Clock) -> None:
        self._runtime, self._worker_of, self._clock = runtime, worker_of, clock

    async def run(self) -> None:
        while True:
            began_at = self._clock.elapsed()
            await self._look()
            took = self._clock.elapsed() - began_at
            await self._clock.sleep(max(EVERY, took / MOST_OF_TIME))

    async def _look(self) -> None:
        for used in await self._runtime.usage():
            worker = self._worker_of(used.key.pod_uid)
            if worker is not None:
                worker.note_memory(used.key.name, max(used.memory, used.peak))
