"""Reports of agents about volumes whose data they were to remove: the volume goes, or another node is to try."""

from collections.abc import Callable, Sequence
from typing import cast

from app.client.protocol import RemovedVolume
from app.kinds.storage.persistentvolume import KIND as VOLUMES
from app.kinds.storage.persistentvolume import PersistentVolume, reclaim_node
from app.machinery.base import Object
from app.machinery.errors import ApiError
from app.plans.volumes.volumes import after_failure, after_removal
from app.registry.registry import Registry
from app.registry.verbs import objects

PHASES = frozenset({"Released", "Failed"})


class _NotChosenError(Exception):
    pass


async def accept(registry: Registry, items: Sequence[RemovedVolume], owns: Callable[[str], bool]) -> int:
    """Store the reports, and return how many counted: of volumes that a node which `owns` accepts was chosen for."""
    accepted = 0
    for item in items:

        def report(old: Object, item: RemovedVolume = item) -> Object:
            return _reported(cast("PersistentVolume", old), item, owns, registry)

        try:
            await objects.rewrite(registry, VOLUMES, "", item.name, report)
            accepted += 1
        except _NotChosenError:
            continue
        except ApiError as error:
            if error.code != 404:
                raise
    return accepted


def _reported(
    volume: PersistentVolume, item: RemovedVolume, owns: Callable[[str], bool], registry: Registry
) -> PersistentVolume:
    node = reclaim_node(volume)
    if volume.metadata.uid != item.uid or not node or not owns(node) or volume.status.phase not in PHASES:
        raise _NotChosenError
    return after_failure(volume, node, item.error, registry.now()) if item.error else after_removal(volume)
