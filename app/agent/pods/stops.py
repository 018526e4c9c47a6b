"""Stops containers: the preStop hook, the signal, and the kill when the grace is over. Called by `pods`."""

from collections.abc import Callable, Coroutine
from datetime import timedelta
from typing import Any

from app.agent.clock import Clock
from app.agent.pods.lifecycle_hooks import Hooks
from app.agent.pods.pod_worker import PodWorker
from app.plans.kubelet import pod_events
from app.plans.kubelet.pod_events import Note
from app.plans.kubelet.sync_pod import Stop
from app.runtimes.base import ContainerKey, Runtime
from app.structured_logging import Logger

AGAIN = 5.0  # seconds until a stop that failed is tried again
SOONER = timedelta(seconds=1)  # a stop is worth another only if it kills sooner by more than that

logger = Logger(__name__)


class Stops:
    """For all pods of the agent. `spawn` runs a task beside the pod's own, `wake` has the pod looked at."""

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        hooks: Hooks,
        tell: Callable[[PodWorker, Note], None],
        spawn: Callable[[Coroutine[Any, Any, None]], Any],
        wake: Callable[[PodWorker], None],
    ) -> None:
        self._runtime, self._clock, self._hooks = runtime, clock, hooks
        self._tell, self._spawn, self._wake = tell, spawn, wake

    def stop(self, worker: PodWorker, stop: Stop) -> None:
        """Unless it is under way already and would not end sooner."""
        killed_at = self._clock.now() + stop.grace
        under_way = worker.stopping.get(stop.key)
        if under_way is None:
            self._tell(worker, pod_events.killing(worker.pod, stop.key.name, stop.why))
        elif killed_at > under_way - SOONER:
            return
        worker.stopping[stop.key] = killed_at
        self._spawn(self._one(worker, stop))

    async def _one(self, worker: PodWorker, stop: Stop) -> None:
        killed_at = worker.stopping[stop.key]
        try:
            left = await self._hooks.before_stop(worker, stop.key, stop.grace)
            await self._runtime.stop_container(ContainerKey(worker.uid, *stop.key), left)
        except Exception as error:
            if isinstance(error, ConnectionError):
                logger.warning(
                    "cannot stop a container yet; retrying", **worker.log_fields, container=stop.key.name, error=error
                )
            else:
                logger.error(
                    "unexpected error; cannot stop a container yet",
                    **worker.log_fields,
                    container=stop.key.name,
                    traceback_of=error,
                )
            await self._clock.sleep(AGAIN)
            worker.changed = True
        else:
            self._hooks.stopped(worker, stop.key)
        if worker.stopping.get(stop.key) == killed_at:
            del worker.stopping[stop.key]
        worker.look.add(stop.key)
        self._wake(worker)
