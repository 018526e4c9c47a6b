"""The PersistentVolumeClaim kind: asks for storage that outlives pods.

`app.plans.volumes` binds claims to volumes. The finalizer PROTECTION keeps a claim while a pod uses it.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.pod.placement_validation import validate_selector
from app.kinds.storage.access_modes import (
    READ_WRITE_ONCE,
    READ_WRITE_ONCE_POD,
    STORAGE,
    canonical_amounts,
    short_modes,
    validate_access_modes,
    validate_size,
    validate_volume_mode,
)
from app.kinds.storage.persistentvolumeclaim_schema import (
    EphemeralVolumeSource,
    PersistentVolumeClaim,
    PersistentVolumeClaimCondition,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    PersistentVolumeClaimTemplate,
    VolumeResourceRequirements,
)
from app.machinery import name_validation as names
from app.machinery.base import Column, Kind, Quantity
from app.machinery.durations import age
from app.machinery.errors import Cause, forbidden, invalid
from app.machinery.quantity import compare, fault

__all__ = [
    "KIND",
    "PROTECTION",
    "EphemeralVolumeSource",
    "PersistentVolumeClaim",
    "PersistentVolumeClaimCondition",
    "PersistentVolumeClaimSpec",
    "PersistentVolumeClaimStatus",
    "PersistentVolumeClaimTemplate",
    "VolumeResourceRequirements",
    "class_name",
    "is_exclusive",
    "is_single_node",
    "prepare_spec",
    "requested",
    "validate_spec",
]

PROTECTION = "kubernetes.io/pvc-protection"
_OLD_CLASS = "volume.beta.kubernetes.io/storage-class"  # before Kubernetes 1.6; some charts still write it
_IMMUTABLE = "spec is immutable after creation except resources.requests and volumeAttributesClassName for bound claims"


def class_name(claim: PersistentVolumeClaim) -> str:
    """Name of the claim's StorageClass; empty for none."""
    old = claim.metadata.annotations.get(_OLD_CLASS)
    return old if old is not None else claim.spec.storage_class_name or ""


def requested(claim: PersistentVolumeClaim) -> Quantity:
    """Storage that the claim asks for."""
    return claim.spec.resources.requests.get(STORAGE, "0")


def is_exclusive(claim: PersistentVolumeClaim) -> bool:
    """Return whether one pod may use the claim at a time."""
    return READ_WRITE_ONCE_POD in claim.spec.access_modes


def is_single_node(claim: PersistentVolumeClaim) -> bool:
    """Return whether pods of one node may use the claim at a time."""
    return set(claim.spec.access_modes) == {READ_WRITE_ONCE}


def prepare(claim: PersistentVolumeClaim) -> PersistentVolumeClaim:
    return replace(claim, spec=prepare_spec(claim.spec))


def prepare_spec(spec: PersistentVolumeClaimSpec) -> PersistentVolumeClaimSpec:
    """A claim's spec with its defaults; of a template, too."""
    amounts = VolumeResourceRequirements(
        limits=canonical_amounts(spec.resources.limits), requests=canonical_amounts(spec.resources.requests)
    )
    return replace(spec, volume_mode=spec.volume_mode or "Filesystem", resources=amounts)


def on_create(claim: PersistentVolumeClaim, _: datetime) -> PersistentVolumeClaim:
    return replace(claim, status=PersistentVolumeClaimStatus(phase="Pending"))


def on_update(new: PersistentVolumeClaim, old: PersistentVolumeClaim) -> PersistentVolumeClaim:
    return replace(new, status=old.status)


def on_status(new: PersistentVolumeClaim, old: PersistentVolumeClaim) -> PersistentVolumeClaim:
    return replace(new, spec=old.spec)


def validate(claim: PersistentVolumeClaim) -> list[Cause]:
    return list(validate_spec(claim.spec, "spec"))


def validate_spec(spec: PersistentVolumeClaimSpec, path: str) -> Iterator[Cause]:
    """Of a claim, or of a template of one."""
    yield from validate_access_modes(spec.access_modes, f"{path}.accessModes", "at least 1 access mode is required")
    if spec.selector is not None:
        yield from validate_selector(spec.selector, f"{path}.selector")
    yield from validate_size(spec.resources.requests, f"{path}.resources[storage]")
    for text in names.dns_subdomain(spec.storage_class_name) if spec.storage_class_name else ():
        yield invalid(f"{path}.storageClassName", spec.storage_class_name, text)
    for text in names.dns_subdomain(spec.volume_name) if spec.volume_name else ():
        yield invalid(f"{path}.volumeName", spec.volume_name, text)
    yield from validate_volume_mode(spec.volume_mode, f"{path}.volumeMode")


def validate_update(new: PersistentVolumeClaim, old: PersistentVolumeClaim) -> list[Cause]:
    """A claim that is not bound may be given a volume, and a class if it has none; a bound one may grow."""
    allowed = replace(new.spec, volume_attributes_class_name=old.spec.volume_attributes_class_name)
    if not old.spec.volume_name:
        allowed = replace(allowed, volume_name="")
    if old.spec.storage_class_name is None:
        allowed = replace(allowed, storage_class_name=None)
    if old.status.phase == "Bound":
        resources = replace(new.spec.resources, requests=old.spec.resources.requests)
        allowed = replace(allowed, resources=resources)
    if allowed != old.spec:
        return [forbidden("spec", _IMMUTABLE)]
    if not fault(requested(new)) and compare(requested(new), requested(old)) < 0:
        return [forbidden("spec.resources.requests.storage", "field can not be less than previous value")]
    return []


def row(claim: PersistentVolumeClaim, now: datetime) -> list[Any]:
    meta, spec, status = claim.metadata, claim.spec, claim.status
    is_bound = bool(spec.volume_name)
    return [
        meta.name,
        status.phase if meta.deletion_timestamp is None else "Terminating",
        spec.volume_name,
        str(status.capacity.get(STORAGE, "0")) if is_bound else "",
        short_modes(status.access_modes) if is_bound else "",
        class_name(claim),
        spec.volume_attributes_class_name or "<unset>",
        age(meta.creation_timestamp, now),
        spec.volume_mode or "<unset>",
    ]


KIND = Kind(
    type=PersistentVolumeClaim,
    group="",
    version="v1",
    plural="persistentvolumeclaims",
    short_names=("pvc",),
    has_status=True,
    prepare=prepare,
    on_create=on_create,
    on_update=on_update,
    on_status=on_status,
    validate=validate,
    validate_update=validate_update,
    columns=(
        Column(name="Name", format="name", description="Name of the claim."),
        Column(name="Status", description="Pending, Bound or Lost."),
        Column(name="Volume", description="The volume that it is bound to."),
        Column(name="Capacity", description="How much the volume holds."),
        Column(name="Access Modes", description="How the volume can be mounted."),
        Column(name="StorageClass", description="Name of the StorageClass."),
        Column(name="VolumeAttributesClass", description="Name of the VolumeAttributesClass."),
        Column(name="Age", description="Time since the claim was created."),
        Column(name="VolumeMode", description="Filesystem or Block.", priority=1),
    ),
    row=row,
    returns_deleted=True,
    example="""\
apiVersion: v1
kind: PersistentVolumeClaim
metadata:
  name: results
spec:
  accessModes: [ReadWriteMany]
  storageClassName: shared
  resources:
    requests:
      storage: 10Gi
""",
)
