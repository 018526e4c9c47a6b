"""Removal of the data of released volumes, for which the API has chosen one of this agent's nodes.

One watch a node has the volumes (`RECLAIM_NODE`); the API is told what became of each (`RemovedVolumes`). A volume that a pod
here has mounted waits until the pod has been cleared away. Nothing is remembered: what was not reported is looked at again.
"""

import asyncio
from contextlib import aclosing

from app.agent.clock import Clock
from app.agent.pods.environment import ContainerConfigError
from app.agent.volumes.claims import ClaimFolders
from app.client.api import Api
from app.client.protocol import RemovedVolume, RemovedVolumes, removed_volumes_path
from app.kinds.storage.persistentvolume import RECLAIM_NODE, PersistentVolume
from app.machinery.errors import ApiError
from app.structured_logging import Logger, ObjectFields, object_fields

RETRY = 2.0  # seconds
FAILED_RETRY = 30.0
UNKNOWN_RETRY = 300.0
MOST_NODES = 64  # with a watch each: fleets of simulated nodes have none

logger = Logger(__name__)


class VolumeRemoval:
    def __init__(self, api: Api, folders: ClaimFolders, clock: Clock) -> None:
        self._api, self._folders, self._clock = api, folders, clock
        self._wanted: dict[str, tuple[str, PersistentVolume]] = {}  # by UID, with the node
        self._tried_at: dict[str, float] = {}
        self._wake = asyncio.Event()

    async def follow(self, node: str) -> None:
        """Until it fails, or is cancelled. An API of an earlier version has no such volumes."""
        try:
            await self._follow(node)
        except ApiError as error:
            if error.code not in (403, 404):
                raise
            await self._clock.sleep(UNKNOWN_RETRY)

    async def _follow(self, node: str) -> None:
        chosen = {"fieldSelector": f"{RECLAIM_NODE}={node}"}
        async with aclosing(self._api.list_and_watch("/api/v1/persistentvolumes", PersistentVolume, chosen)) as events:
            async for event in events:
                if event.object is None:
                    for uid in [uid for uid, (owner, _) in self._wanted.items() if owner == node]:
                        del self._wanted[uid]
                    self._wanted |= {each.metadata.uid: (node, each) for each in event.items}
                elif event.type == "DELETED":
                    self._wanted.pop(event.object.metadata.uid, None)
                else:
                    self._wanted[event.object.metadata.uid] = node, event.object
                self._wake.set()

    async def run(self) -> None:
        """For ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._wanted:
                await self._remove_all()
                if self._wanted:
                    await self._clock.sleep(RETRY)

    async def _remove_all(self) -> None:
        for uid, (node, volume) in list(self._wanted.items()):
            due = self._tried_at.get(uid, -FAILED_RETRY) + FAILED_RETRY
            if self._clock.elapsed() < due or not _is_to_go(volume):
                continue
            source = volume.spec.csi
            if source is None or self._folders.is_used(source.volume_handle):
                continue
            error = await self._remove(volume)
            await self._report(node, volume, error)
        self._tried_at = {uid: at for uid, at in self._tried_at.items() if uid in self._wanted}

    async def _remove(self, volume: PersistentVolume) -> str:
        """Why its data could not be removed; empty if they are gone."""
        source = volume.spec.csi
        if source is None:
            return "it is no volume of Jobplane's drivers"
        try:
            await asyncio.to_thread(self._folders.remove, source)
        except (ContainerConfigError, OSError) as error:
            logger.warning("cannot remove the data of a volume; retrying", **_fields(volume), error=error)
            self._tried_at[volume.metadata.uid] = self._clock.elapsed()
            return str(error)
        logger.info("removed the data of a released volume", **_fields(volume))
        return ""

    async def _report(self, node: str, volume: PersistentVolume, error: str) -> None:
        meta = volume.metadata
        report = RemovedVolumes(items=(RemovedVolume(name=meta.name, uid=meta.uid, error=error),))
        try:
            await self._api.request("POST", removed_volumes_path(node), report)
        except ApiError as refusal:
            logger.warning("the API refuses the report of a removed volume", **_fields(volume), error=refusal)
            return
        if not error:
            self._wanted.pop(meta.uid, None)


def _fields(volume: PersistentVolume) -> ObjectFields:
    return object_fields("persistentvolumes", "", volume.metadata.name)


def _is_to_go(volume: PersistentVolume) -> bool:
    """Return whether its data may be removed, whatever else the API has written into it."""
    return volume.status.phase in ("Released", "Failed") and volume.spec.persistent_volume_reclaim_policy == "Delete"
