"""Pod cleanup: removes what pods leave on the node: containers that still run, the sandbox, volumes, files. Called by `pods`."""

import asyncio
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any

from app.agent.pods.container_config import Host
from app.plans.kubelet.sync_pod import LEFTOVER_GRACE
from app.runtimes.base import ContainerKey
from app.structured_logging import Logger

logger = Logger(__name__)


class PodCleanup:
    """Each pod is cleared by one task at a time. Should it fail, the next relist finds what is left."""

    def __init__(self, host: Host, spawn: Callable[[Coroutine[Any, Any, None]], Any]) -> None:
        self._host, self._spawn = host, spawn
        self._uids: set[str] = set()

    def clear(self, uid: str, live: Sequence[ContainerKey], task: asyncio.Task[None] | None = None) -> None:
        """`live` still run; `task`, if there is one, may be starting something and comes to its end first."""
        if uid not in self._uids:
            self._uids.add(uid)
            self._host.devices.leave(uid)
            self._spawn(self._cleared(uid, live, task))

    def left(self) -> set[str]:
        """Pods with files here that nobody is clearing."""
        host = self._host
        return (host.volumes.uids() | host.hosts.uids() | host.devices.uids()) - self._uids

    def tidy(self, standing: Collection[str], known: Collection[str]) -> None:
        """Whatever there is of pods that are not known goes. `standing`: those with a sandbox, as of a moment ago."""
        for uid in (self.left() | set(standing)) - set(known):
            self.clear(uid, ())

    async def _cleared(self, uid: str, live: Sequence[ContainerKey], task: asyncio.Task[None] | None) -> None:
        runtime = self._host.runtime
        try:
            if task is not None:
                await asyncio.wait([task])
            await asyncio.gather(*[runtime.stop_container(key, LEFTOVER_GRACE) for key in live])
            await runtime.remove_sandbox(uid)
            self._host.devices.release(uid)
            await self._host.volumes.remove(uid)
            self._host.hosts.gone(uid)
        except ConnectionError as error:
            logger.warning("cannot remove a pod yet; retrying", pod_uid=uid, error=error)
        except Exception as error:
            logger.error("unexpected error; cannot remove a pod yet", pod_uid=uid, traceback_of=error)
        finally:
            self._uids.discard(uid)
