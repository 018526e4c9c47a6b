"""Claims: what to do about one PersistentVolumeClaim. Pure; kube-controller-manager's `syncClaim`, with its events.

no class, but a default one       it gets that (Kubernetes assigns it in retrospect, too)
bound                             Lost if the volume is gone; larger if more is asked for
names a volume                    bound to it, if that is free
class waits for the first pod     the scheduler binds it with that pod (`pod_volumes`)
else                              the volume that fits best, or a new one
"""

from collections.abc import Iterable
from datetime import datetime
from typing import NamedTuple

from msgspec.structs import replace

from app.kinds.storage.access_modes import STORAGE
from app.kinds.storage.persistentvolume import PersistentVolume
from app.kinds.storage.persistentvolumeclaim import PersistentVolumeClaim, class_name, requested
from app.kinds.storage.storageclass import NO_PROVISIONER, PROVISIONERS, StorageClass, is_delayed
from app.machinery.quantity import compare
from app.plans.plan import Action, Create, Emit, Plan, Update
from app.plans.volumes import binding
from app.plans.volumes.provisioning import find_obstacle, provision

WAITS = "waiting for first consumer to be created before binding"
NO_VOLUME = "no persistent volumes available for this claim and no storage class is set"
NO_FREE_VOLUME = "no persistent volumes available for this claim and its storage class makes none"


class ClaimPlan(NamedTuple):
    """What to do, and why the claim stays as it is: an event, which the caller records when it is a new one."""

    plan: Plan
    waiting: Emit | None = None


def plan_claim(
    claim: PersistentVolumeClaim,
    volume: PersistentVolume | None,
    volumes: Iterable[PersistentVolume],
    storage_class: StorageClass | None,
    default: StorageClass | None,
    now: datetime,
) -> ClaimPlan:
    """`volume`: the one that the claim names, if it is there; `volumes`: those that it may be bound to."""
    if claim.metadata.deletion_timestamp is not None and not binding.is_bound(claim):
        return ClaimPlan(Plan())
    if binding.is_bound(claim):
        return _plan_bound(claim, volume, storage_class, now)
    if claim.spec.volume_name:
        return _plan_named(claim, volume, now)
    if claim.spec.storage_class_name is None and not class_name(claim) and default is not None:
        named = replace(claim, spec=replace(claim.spec, storage_class_name=default.metadata.name))
        return ClaimPlan(Plan((Update(named, claim),)))
    return _plan_unbound(claim, volumes, storage_class, now)


def _plan_bound(
    claim: PersistentVolumeClaim, volume: PersistentVolume | None, storage_class: StorageClass | None, now: datetime
) -> ClaimPlan:
    if volume is None:
        return _lose(claim, "ClaimLost", "Bound claim has lost its PersistentVolume. Data on the volume is lost!")
    if not binding.is_reserved_for(volume, claim):
        if volume.spec.claim_ref is None:
            return ClaimPlan(Plan(binding.bind(claim, volume, now)))
        return _lose(claim, "ClaimMisbound", "Two claims are bound to the same volume, this one is bound incorrectly")
    actions: list[Action] = []
    if compare(requested(claim), volume.spec.capacity.get(STORAGE, "0")) > 0 and _may_grow(claim, storage_class):
        larger = {**volume.spec.capacity, STORAGE: requested(claim)}
        actions.append(Update(replace(volume, spec=replace(volume.spec, capacity=larger)), volume))
        volume = replace(volume, spec=replace(volume.spec, capacity=larger))
        actions.append(Emit("Normal", "VolumeResizeSuccessful", "Resize volume succeeded", claim))
    bound = binding.bound_claim(claim, volume)
    if bound is not claim:
        actions.append(Update(bound, claim))
    return ClaimPlan(Plan(tuple(actions)))


def _may_grow(claim: PersistentVolumeClaim, storage_class: StorageClass | None) -> bool:
    return (
        storage_class is not None
        and bool(storage_class.allow_volume_expansion)
        and storage_class.provisioner in PROVISIONERS
        and claim.metadata.deletion_timestamp is None
    )


def _lose(claim: PersistentVolumeClaim, reason: str, message: str) -> ClaimPlan:
    if claim.status.phase == "Lost":
        return ClaimPlan(Plan())
    lost = replace(claim, status=replace(claim.status, phase="Lost", access_modes=(), capacity={}))
    return ClaimPlan(Plan((Update(lost, claim), Emit("Warning", reason, message, claim))))


def _plan_named(claim: PersistentVolumeClaim, volume: PersistentVolume | None, now: datetime) -> ClaimPlan:
    """Somebody has written the volume's name into the claim."""
    name = claim.spec.volume_name
    if volume is None:
        return ClaimPlan(Plan(), Emit("Warning", "FailedBinding", f'volume "{name}" not found', claim))
    if volume.spec.claim_ref is not None and not binding.is_reserved_for(volume, claim):
        why = f'volume "{name}" already bound to a different claim.'
        return ClaimPlan(Plan(), Emit("Warning", "FailedBinding", why, claim))
    if not binding.satisfies(volume, claim):
        why = f'Cannot bind to requested volume "{name}": size, class, access modes or volume mode do not match'
        return ClaimPlan(Plan(), Emit("Warning", "VolumeMismatch", why, claim))
    return ClaimPlan(Plan(binding.bind(claim, volume, now)))


def _plan_unbound(
    claim: PersistentVolumeClaim,
    volumes: Iterable[PersistentVolume],
    storage_class: StorageClass | None,
    now: datetime,
) -> ClaimPlan:
    delayed = is_delayed(storage_class)
    # A claim that waits for its first pod is only bound to a volume that somebody has reserved for it.
    candidates = [each for each in volumes if not delayed or binding.is_reserved_for(each, claim)]
    found = binding.find_volume(claim, candidates)
    if found is not None:
        return ClaimPlan(Plan(binding.bind(claim, found, now)))
    if delayed:
        return ClaimPlan(Plan(), Emit("Normal", "WaitForFirstConsumer", WAITS, claim))
    if not class_name(claim):
        return ClaimPlan(Plan(), Emit("Normal", "FailedBinding", NO_VOLUME, claim))
    if storage_class is None:
        why = f'storageclass.storage.k8s.io "{class_name(claim)}" not found'
        return ClaimPlan(Plan(), Emit("Warning", "ProvisioningFailed", why, claim))
    if storage_class.provisioner == NO_PROVISIONER:
        return ClaimPlan(Plan(), Emit("Normal", "FailedBinding", NO_FREE_VOLUME, claim))
    if storage_class.provisioner not in PROVISIONERS:
        return ClaimPlan(Plan(), _external(claim, storage_class.provisioner))
    if obstacle := find_obstacle(claim, storage_class):
        why = f'failed to provision volume with StorageClass "{class_name(claim)}": {obstacle}'
        return ClaimPlan(Plan(), Emit("Warning", "ProvisioningFailed", why, claim))
    return ClaimPlan(Plan(provision_and_bind(claim, provision(claim, storage_class), now)))


def _external(claim: PersistentVolumeClaim, provisioner: str) -> Emit:
    message = (
        f"Waiting for a volume to be created either by the external provisioner '{provisioner}' or manually by the system "
        "administrator. If volume creation is delayed, please verify that the provisioner is running and correctly registered."
    )
    return Emit("Normal", "ExternalProvisioning", message, claim)


def provision_and_bind(
    claim: PersistentVolumeClaim, volume: PersistentVolume, now: datetime, old: PersistentVolumeClaim | None = None
) -> tuple[Action, ...]:
    """The new volume and its claim, in one write set. `old`: the stored claim, if that is another version."""
    message = f"Successfully provisioned volume {volume.metadata.name}"
    return (
        Create(binding.with_phase(volume, "Bound", now)),
        Update(binding.bound_claim(claim, volume), old or claim),
        Emit("Normal", "ProvisioningSucceeded", message, claim, once=True),
    )
