"""Pod termination: stops containers, and removes what ended pods leave on the node. Called by `pods`.

A stop is the preStop hook, the signal, and the kill when the grace period is over. Cleanup removes containers that still run,
the sandbox, devices, volumes and files. The address of a pod with a name of its own goes a few seconds after its containers:
peers that started later still reach it once, as they do where a kubelet takes a second or two to notice the end.
"""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from datetime import timedelta
from typing import Any

from app.agent.clock import Clock
from app.agent.pods.container_config import Host
from app.agent.pods.lifecycle_hooks import LifecycleHooks
from app.agent.pods.pod_worker import PodWorker
from app.plans.kubelet import pod_events
from app.plans.kubelet.pod_events import Note
from app.plans.kubelet.sync_pod import LEFTOVER_GRACE, Stop
from app.runtimes.base import ContainerKey, Runtime
from app.structured_logging import Logger

AGAIN = 5.0  # seconds until a stop that failed is tried again
LINGER = 5.0  # seconds for which the address of an ended pod with a name of its own still answers
MOST_LINGERING = 100  # pods; each has a process of some MB
SOONER = timedelta(seconds=1)  # a stop is worth another only if it kills sooner by more than that

logger = Logger(__name__)


class Stops:
    """For all pods of the agent. `spawn` runs a task beside the pod's own, `wake` has the pod synced."""

    def __init__(
        self,
        runtime: Runtime,
        clock: Clock,
        hooks: LifecycleHooks,
        record_event: Callable[[PodWorker, Note], None],
        spawn: Callable[[Coroutine[Any, Any, None]], Any],
        wake: Callable[[PodWorker], None],
    ) -> None:
        self._runtime, self._clock, self._hooks = runtime, clock, hooks
        self._record_event, self._spawn, self._wake = record_event, spawn, wake

    def stop(self, worker: PodWorker, stop: Stop) -> None:
        """Unless it is under way already and would not end sooner."""
        killed_at = self._clock.now() + stop.grace
        under_way = worker.stopping.get(stop.key)
        if under_way is None:
            self._record_event(worker, pod_events.killing(worker.pod, stop.key.name, stop.why))
        elif killed_at > under_way - SOONER:
            return
        worker.stopping[stop.key] = killed_at
        self._spawn(self._stop(worker, stop))

    async def _stop(self, worker: PodWorker, stop: Stop) -> None:
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
            self._hooks.on_stopped(worker, stop.key)
        if worker.stopping.get(stop.key) == killed_at:
            del worker.stopping[stop.key]
        worker.look.add(stop.key)
        self._wake(worker)


class PodCleanup:
    """Each pod is cleared by one task at a time. Should it fail, the next relist finds what is left."""

    def __init__(self, host: Host, spawn: Callable[[Coroutine[Any, Any, None]], Any]) -> None:
        self._host, self._spawn = host, spawn
        self._uids: set[str] = set()
        self._lingering = 0

    def clear(
        self, uid: str, live: Sequence[ContainerKey], task: asyncio.Task[None] | None = None, *, lingers: bool = False
    ) -> None:
        """`live` still run; `task`, if there is one, may be starting something and comes to its end first.

        lingers: the address is to answer for LINGER seconds more.
        """
        if uid not in self._uids:
            self._uids.add(uid)
            self._host.devices.leave(uid)
            self._spawn(self._clear(uid, live, task, lingers=lingers))

    def uids_with_files(self) -> set[str]:
        """Pods that have files here and are not being cleared."""
        host = self._host
        return (host.volumes.uids() | host.hosts.uids() | host.devices.uids()) - self._uids

    def clear_unknown(self, standing: Collection[str], known: Collection[str]) -> None:
        """Clear pods that are not known. `standing`: those with a sandbox, as of a moment ago."""
        for uid in (self.uids_with_files() | set(standing)) - set(known):
            self.clear(uid, ())

    async def _clear(
        self, uid: str, live: Sequence[ContainerKey], task: asyncio.Task[None] | None, *, lingers: bool
    ) -> None:
        runtime = self._host.runtime
        try:
            if task is not None:
                await asyncio.wait([task])
            await asyncio.gather(*[runtime.stop_container(key, LEFTOVER_GRACE) for key in live])
            if lingers:
                await self._linger(uid)
            await runtime.remove_sandbox(uid)
            self._host.devices.release(uid)
            await self._host.volumes.remove(uid)
            self._host.hosts.remove(uid)
        except ConnectionError as error:
            logger.warning("cannot remove a pod yet; retrying", pod_uid=uid, error=error)
        except Exception as error:
            logger.error("unexpected error; cannot remove a pod yet", pod_uid=uid, traceback_of=error)
        finally:
            self._uids.discard(uid)

    async def _linger(self, uid: str) -> None:
        """Nothing of the pod runs any more: its devices are free for others at once."""
        if self._lingering >= MOST_LINGERING:
            return
        self._host.devices.release(uid)
        self._lingering += 1
        try:
            await self._host.clock.sleep(LINGER)
        finally:
            self._lingering -= 1


def lingers(worker: PodWorker) -> bool:
    """Return whether other pods may still call an ended pod by its name: it has an address, and is not being deleted."""
    pod = worker.pod
    return bool(worker.ip and pod.spec.subdomain) and pod.metadata.deletion_timestamp is None
