"""Binding: which volume a claim gets, and both objects once they are bound. Pure; kube-controller-manager's `FindMatchingVolume`.

A binding is one write set: claim and volume name each other, or neither does.
"""

from collections.abc import Collection, Iterable
from datetime import datetime

from msgspec.structs import replace

from app.kinds.core.node import Node
from app.kinds.storage.access_modes import STORAGE
from app.kinds.storage.persistentvolume import PROTECTION as VOLUME_PROTECTION
from app.kinds.storage.persistentvolume import PersistentVolume, PersistentVolumeStatus
from app.kinds.storage.persistentvolumeclaim import PROTECTION, PersistentVolumeClaim, class_name, requested
from app.machinery.base import O, ObjectReference
from app.machinery.quantity import compare, parse
from app.machinery.selectors import from_label_selector
from app.plans.nodes.node_selector import selects
from app.plans.plan import Action, Update

BIND_COMPLETED = "pv.kubernetes.io/bind-completed"
BOUND_BY_CONTROLLER = "pv.kubernetes.io/bound-by-controller"
_YES = "yes"


def is_bound(claim: PersistentVolumeClaim) -> bool:
    """Return whether a binding of the claim was completed, whatever has become of its volume since."""
    return bool(claim.spec.volume_name) and BIND_COMPLETED in claim.metadata.annotations


def is_reserved_for(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether the volume names the claim. Somebody who reserves a volume need not know the claim's UID."""
    reference = volume.spec.claim_ref
    if reference is None or (reference.namespace, reference.name) != (claim.metadata.namespace, claim.metadata.name):
        return False
    return reference.uid in ("", claim.metadata.uid)


def reaches(volume: PersistentVolume, node: Node) -> bool:
    """Return whether the volume can be reached from the node."""
    affinity = volume.spec.node_affinity
    return affinity is None or affinity.required is None or selects(affinity.required, node)


def satisfies(volume: PersistentVolume, claim: PersistentVolumeClaim) -> bool:
    """Return whether the volume is of the size and kind that the claim asks for."""
    spec, wanted = volume.spec, claim.spec
    return (
        volume.metadata.deletion_timestamp is None
        and (spec.volume_mode or "Filesystem") == (wanted.volume_mode or "Filesystem")
        and spec.storage_class_name == class_name(claim)
        and set(wanted.access_modes) <= set(spec.access_modes)
        and compare(spec.capacity.get(STORAGE, "0"), requested(claim)) >= 0
    )


def is_free(volume: PersistentVolume) -> bool:
    """Return whether the volume waits for any claim."""
    return volume.spec.claim_ref is None and volume.status.phase in ("Available", "Pending")


def find_volume(
    claim: PersistentVolumeClaim,
    volumes: Iterable[PersistentVolume],
    node: Node | None = None,
    taken: Collection[str] = (),
) -> PersistentVolume | None:
    """The volume that is reserved for the claim, else the smallest free one that satisfies it; of equal ones, by name.

    node:  from which it must be reachable; None: from any.
    taken: names of volumes that are promised to others.
    """
    selector = from_label_selector(claim.spec.selector) if claim.spec.selector is not None else None
    best: PersistentVolume | None = None
    for volume in volumes:
        if not satisfies(volume, claim) or (node is not None and not reaches(volume, node)):
            continue
        if is_reserved_for(volume, claim):
            return volume
        if not is_free(volume) or volume.metadata.name in taken:
            continue
        if selector is not None and not selector.matches(volume.metadata.labels):
            continue
        if best is None or _size(volume) < _size(best):
            best = volume
    return best


def _size(volume: PersistentVolume) -> tuple[object, str]:
    return parse(volume.spec.capacity.get(STORAGE, "0")), volume.metadata.name


def bind(claim: PersistentVolumeClaim, volume: PersistentVolume, now: datetime) -> tuple[Action, ...]:
    """Both objects, each naming the other."""
    return (
        Update(bound_volume(volume, claim, now), volume),
        Update(bound_claim(claim, volume), claim),
    )


def bound_volume(volume: PersistentVolume, claim: PersistentVolumeClaim, now: datetime) -> PersistentVolume:
    reserved = volume.spec.claim_ref is not None
    annotations = volume.metadata.annotations if reserved else volume.metadata.annotations | {BOUND_BY_CONTROLLER: _YES}
    bound = replace(
        volume,
        metadata=replace(volume.metadata, annotations=annotations),
        spec=replace(volume.spec, claim_ref=reference_to(claim)),
    )
    return with_phase(protected(bound, VOLUME_PROTECTION), "Bound", now)


def bound_claim(claim: PersistentVolumeClaim, volume: PersistentVolume) -> PersistentVolumeClaim:
    """The claim with its volume; the same object if it says so already."""
    annotations = claim.metadata.annotations | {BIND_COMPLETED: _YES}
    if not claim.spec.volume_name:
        annotations |= {BOUND_BY_CONTROLLER: _YES}
    status = replace(
        claim.status, phase="Bound", access_modes=volume.spec.access_modes, capacity=dict(volume.spec.capacity)
    )
    bound = replace(
        claim,
        metadata=replace(claim.metadata, annotations=annotations),
        spec=replace(claim.spec, volume_name=volume.metadata.name),
        status=status,
    )
    return claim if bound == claim else protected(bound, PROTECTION)


def reference_to(claim: PersistentVolumeClaim) -> ObjectReference:
    meta = claim.metadata
    return ObjectReference(
        kind="PersistentVolumeClaim",
        namespace=meta.namespace,
        name=meta.name,
        uid=meta.uid,
        api_version="v1",
        resource_version=meta.resource_version,
    )


def protected(obj: O, finalizer: str) -> O:
    """The object with the finalizer, unless it is being deleted: then none may be added."""
    meta = obj.metadata
    if finalizer in meta.finalizers or meta.deletion_timestamp is not None:
        return obj
    return replace(obj, metadata=replace(meta, finalizers=(*meta.finalizers, finalizer)))


def with_phase(
    volume: PersistentVolume, phase: str, now: datetime, reason: str = "", message: str = ""
) -> PersistentVolume:
    """The volume in this phase; the same object if it is in it."""
    old = volume.status
    since = now if old.phase != phase or old.last_phase_transition_time is None else old.last_phase_transition_time
    status = PersistentVolumeStatus(phase=phase, reason=reason, message=message, last_phase_transition_time=since)
    return volume if status == old else replace(volume, status=status)
