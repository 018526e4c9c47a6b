"""Volumes: what to do about one PersistentVolume. Pure; kube-controller-manager's `syncVolume` and the provisioners' deletion.

    no claim                    Available
    its claim names it          Bound
    its claim is gone           Released. Retain: it stays. Delete: a node removes the data, then the object goes
    deleted by somebody         it goes once it is not bound, and, if its policy is Delete, once the data are removed

Which node removes data is written into the volume (RECLAIM_NODE). Its agent finds it there, and reports what it did to
`app.registry.agents.removed_volumes`. Only folders that Jobplane made are ever removed: what somebody made by hand stays.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import NamedTuple

from msgspec.structs import replace

from app.kinds.core.node import Node
from app.kinds.storage.persistentvolume import (
    DATA,
    PROTECTION,
    RECLAIM_NODE,
    PersistentVolume,
    is_provisioned_here,
    reclaim_node,
)
from app.kinds.storage.persistentvolumeclaim import PersistentVolumeClaim
from app.plans.plan import Action, Delete, Emit, Plan, Update
from app.plans.volumes import binding
from app.plans.volumes.provisioning import only_node

RECLAIM_TRIED = "jobplane.dev/reclaim-tried"  # annotation: nodes that could not remove the data, separated by commas
RECLAIM_RETRY = timedelta(seconds=30)
NO_DELETER = "no deletable volume plugin matched: Jobplane does not remove what it has not made"
NO_RECYCLER = "Recycle is not supported: use Retain, or a StorageClass with Delete"


class ReclaimNodes(NamedTuple):
    """Nodes by name: all that there are, and those whose agents answer."""

    known: Mapping[str, Node]
    ready: Mapping[str, Node]


def plan_volume(
    volume: PersistentVolume, claim: PersistentVolumeClaim | None, nodes: ReclaimNodes, now: datetime
) -> Plan:
    """`claim`: the one that the volume names, if it is there."""
    if _holds(volume, claim):
        return _update(volume, binding.protected(_with_bound_phase(volume, claim, now), PROTECTION))
    if volume.metadata.deletion_timestamp is not None:
        return _plan_deleted(volume, nodes, now)
    if volume.spec.claim_ref is None or not volume.spec.claim_ref.uid:
        return _update(volume, binding.protected(binding.with_phase(_unassigned(volume), "Available", now), PROTECTION))
    if claim is not None and claim.metadata.uid == volume.spec.claim_ref.uid:
        return _update(volume, _unbound(volume, now))  # the claim is bound to another volume
    return _plan_released(volume, nodes, now)


def _holds(volume: PersistentVolume, claim: PersistentVolumeClaim | None) -> bool:
    """Return whether the claim is bound to the volume, or about to be."""
    if claim is None or not binding.is_reserved_for(volume, claim):
        return False
    return claim.spec.volume_name in ("", volume.metadata.name)


def _with_bound_phase(volume: PersistentVolume, claim: PersistentVolumeClaim | None, now: datetime) -> PersistentVolume:
    is_bound = claim is not None and claim.spec.volume_name == volume.metadata.name
    return binding.with_phase(_unassigned(volume), "Bound" if is_bound else "Available", now)


def _unbound(volume: PersistentVolume, now: datetime) -> PersistentVolume:
    """A volume that the controller had bound is free again; one that somebody reserved stays reserved."""
    if binding.BOUND_BY_CONTROLLER not in volume.metadata.annotations:
        return binding.with_phase(volume, "Available", now)
    annotations = {
        key: value for key, value in volume.metadata.annotations.items() if key != binding.BOUND_BY_CONTROLLER
    }
    free = replace(
        volume, metadata=replace(volume.metadata, annotations=annotations), spec=replace(volume.spec, claim_ref=None)
    )
    return binding.with_phase(free, "Available", now)


def _plan_released(volume: PersistentVolume, nodes: ReclaimNodes, now: datetime) -> Plan:
    policy = volume.spec.persistent_volume_reclaim_policy
    if policy == "Delete" and is_provisioned_here(volume):
        return _plan_removal(volume, nodes, now)
    if policy == "Retain":
        return _update(volume, binding.with_phase(_unassigned(volume), "Released", now))
    if volume.status.phase == "Failed":
        return Plan()
    reason, why = ("RecycleFailed", NO_RECYCLER) if policy == "Recycle" else ("VolumeFailedDelete", NO_DELETER)
    failed = binding.with_phase(volume, "Failed", now, reason, why)
    return Plan((Update(failed, volume), Emit("Warning", reason, why, volume)))


def _plan_deleted(volume: PersistentVolume, nodes: ReclaimNodes, now: datetime) -> Plan:
    """Somebody has deleted it, or an agent has reported that the data are gone; it is not bound."""
    policy = volume.spec.persistent_volume_reclaim_policy
    if DATA in volume.metadata.finalizers and policy == "Delete" and is_provisioned_here(volume):
        node = only_node(volume)
        if not node or node in nodes.known:
            return _plan_removal(volume, nodes, now)
    return _update(volume, without_finalizers(volume, PROTECTION, DATA))


def without_finalizers(volume: PersistentVolume, *finalizers: str) -> PersistentVolume:
    meta = volume.metadata
    kept = tuple(each for each in meta.finalizers if each not in finalizers)
    return volume if kept == meta.finalizers else replace(volume, metadata=replace(meta, finalizers=kept))


def _plan_removal(volume: PersistentVolume, nodes: ReclaimNodes, now: datetime) -> Plan:
    """See that a node is to remove the data, and look again: it may go away before it has."""
    again_at = now + RECLAIM_RETRY
    if DATA not in volume.metadata.finalizers:
        if volume.metadata.deletion_timestamp is not None:
            return _update(volume, without_finalizers(volume, PROTECTION))
        if reclaim_node(volume):  # the node has reported: nothing is left
            return Plan((Delete(volume),))
        return _update(volume, binding.protected(volume, DATA))
    node = _choose(volume, nodes)
    if node:
        chosen = volume if reclaim_node(volume) == node else _assigned(volume, node)
        status = chosen if chosen.status.phase == "Failed" else binding.with_phase(chosen, "Released", now)
        return _update(volume, status, again_at)
    if not _tried(volume) or only_node(volume):
        where = f'node "{only_node(volume)}"' if only_node(volume) else "a node that can reach it"
        why = f"its data are removed when {where} is ready; or delete the volume with the policy Retain to keep them"
        return _update(volume, binding.with_phase(volume, "Failed", now, "VolumeFailedDelete", why), again_at)
    return _update(volume, _assigned(_untried(volume), ""), again_at)


def _choose(volume: PersistentVolume, nodes: ReclaimNodes) -> str:
    """The node that has it to do already, else the first that can; empty for none."""
    reachable = sorted(name for name, node in nodes.ready.items() if _can_remove(volume, node))
    known, tried = reclaim_node(volume), _tried(volume)
    if known in reachable:
        return known
    return next((name for name in reachable if name not in tried), "")


def _can_remove(volume: PersistentVolume, node: Node) -> bool:
    if own := only_node(volume):
        return own == node.metadata.name
    return binding.reaches(volume, node)


def _tried(volume: PersistentVolume) -> list[str]:
    return list(filter(None, volume.metadata.annotations.get(RECLAIM_TRIED, "").split(",")))


def _assigned(volume: PersistentVolume, node: str) -> PersistentVolume:
    return _annotated(volume, {RECLAIM_NODE: node})


def _unassigned(volume: PersistentVolume) -> PersistentVolume:
    return _annotated(volume, {RECLAIM_NODE: "", RECLAIM_TRIED: ""})


def _untried(volume: PersistentVolume) -> PersistentVolume:
    return _annotated(volume, {RECLAIM_TRIED: ""})


def _annotated(volume: PersistentVolume, changes: dict[str, str]) -> PersistentVolume:
    """Empty values are left out."""
    if not any(changes.values()) and not changes.keys() & volume.metadata.annotations.keys():
        return volume
    merged = volume.metadata.annotations | changes
    annotations = {key: value for key, value in merged.items() if value or key not in changes}
    return replace(volume, metadata=replace(volume.metadata, annotations=annotations))


def after_removal(volume: PersistentVolume) -> PersistentVolume:
    """The volume once its node has removed the data."""
    return without_finalizers(volume, DATA)


def after_failure(volume: PersistentVolume, node: str, why: str, now: datetime) -> PersistentVolume:
    """The volume after a node could not remove its data: the next one is to try. The one of a local volume tries again."""
    failed = binding.with_phase(volume, "Failed", now, "VolumeFailedDelete", f"{node}: {why}"[:1024])
    if only_node(volume):
        return failed
    return _annotated(failed, {RECLAIM_NODE: "", RECLAIM_TRIED: ",".join((*_tried(volume), node))})


def _update(old: PersistentVolume, new: PersistentVolume, again_at: datetime | None = None) -> Plan:
    actions: Iterable[Action] = () if new == old else (Update(new, old),)
    return Plan(tuple(actions), again_at)
