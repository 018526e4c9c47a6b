"""The PersistentVolume kind: storage that claims can be bound to, made by hand or by a provisioner.

What nodes can mount: hostPath, local, nfs, and csi of Jobplane's own drivers. The finalizer PROTECTION keeps a volume while it is
bound, DATA until what its reclaim policy says of the data has been done.
"""

import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.pod.placement_validation import validate_node_selector
from app.kinds.pod.volume_validation import validate_host_path
from app.kinds.storage.access_modes import (
    STORAGE,
    canonical_amounts,
    short_modes,
    validate_access_modes,
    validate_size,
    validate_volume_mode,
)
from app.kinds.storage.persistentvolume_schema import (
    CSIPersistentVolumeSource,
    LocalVolumeSource,
    PersistentVolume,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    VolumeNodeAffinity,
)
from app.kinds.storage.storageclass import PATH, PROVISIONERS, is_plain_path
from app.machinery import name_validation as names
from app.machinery.base import Column, Kind, ObjectReference
from app.machinery.durations import age
from app.machinery.errors import Cause, forbidden, invalid, not_supported, one_of, required

__all__ = [
    "DATA",
    "KIND",
    "PROTECTION",
    "RECLAIM_NODE",
    "CSIPersistentVolumeSource",
    "LocalVolumeSource",
    "PersistentVolume",
    "PersistentVolumeSpec",
    "PersistentVolumeStatus",
    "VolumeNodeAffinity",
    "is_handle",
    "is_provisioned_here",
    "reclaim_node",
]

PROTECTION, DATA = "kubernetes.io/pv-protection", "jobplane.dev/data"
RECLAIM_NODE = "jobplane.dev/reclaim-node"  # annotation and field selector: the node that is to remove the data
_SOURCES = ("host_path", "nfs", "local", "csi")
_HANDLE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_BAD_HANDLE = "must be the name of a folder: lower case letters, digits and '-', 63 characters at most"


def is_handle(handle: str) -> bool:
    """Return whether it can name the folder of a volume of Jobplane's drivers: never a path."""
    return _HANDLE.fullmatch(handle) is not None


def is_provisioned_here(volume: PersistentVolume) -> bool:
    """Return whether the volume is a folder that Jobplane's agents make and remove."""
    return volume.spec.csi is not None and volume.spec.csi.driver in PROVISIONERS


def reclaim_node(volume: PersistentVolume) -> str:
    """Name of the node that is to remove the data; empty for none."""
    return volume.metadata.annotations.get(RECLAIM_NODE, "")


def prepare(volume: PersistentVolume) -> PersistentVolume:
    spec = volume.spec
    prepared = replace(
        spec,
        capacity=canonical_amounts(spec.capacity),
        persistent_volume_reclaim_policy=spec.persistent_volume_reclaim_policy or "Retain",
        volume_mode=spec.volume_mode or "Filesystem",
    )
    return replace(volume, spec=prepared)


def on_create(volume: PersistentVolume, now: datetime) -> PersistentVolume:
    return replace(volume, status=PersistentVolumeStatus(phase="Pending", last_phase_transition_time=now))


def on_update(new: PersistentVolume, old: PersistentVolume) -> PersistentVolume:
    return replace(new, status=old.status)


def on_status(new: PersistentVolume, old: PersistentVolume) -> PersistentVolume:
    return replace(new, spec=old.spec)


def validate(volume: PersistentVolume) -> list[Cause]:
    spec = volume.spec
    return [
        *validate_access_modes(spec.access_modes, "spec.accessModes"),
        *validate_size(spec.capacity, "spec.capacity"),
        *(
            not_supported("spec.capacity", name, (STORAGE,))
            for name in spec.capacity
            if name != STORAGE and STORAGE in spec.capacity
        ),
        *one_of(
            "spec.persistentVolumeReclaimPolicy",
            spec.persistent_volume_reclaim_policy,
            ("Delete", "Recycle", "Retain"),
        ),
        *_node_affinity(spec),
        *_source(spec),
        *(
            invalid("spec.storageClassName", spec.storage_class_name, text)
            for text in (names.dns_subdomain(spec.storage_class_name) if spec.storage_class_name else ())
        ),
        *validate_volume_mode(spec.volume_mode, "spec.volumeMode"),
        *_claim_ref(spec.claim_ref),
    ]


def _claim_ref(reference: ObjectReference | None) -> Iterator[Cause]:
    if reference is not None and not reference.name:
        yield required("spec.claimRef.name")
    if reference is not None and not reference.namespace:
        yield required("spec.claimRef.namespace")


def _node_affinity(spec: PersistentVolumeSpec) -> Iterator[Cause]:
    affinity = spec.node_affinity
    if affinity is not None and affinity.required is None:
        yield required("spec.nodeAffinity.required", "must specify required node constraints")
    elif affinity is not None and affinity.required is not None:
        yield from validate_node_selector(affinity.required, "spec.nodeAffinity.required")
    elif spec.local is not None:
        yield required("spec.nodeAffinity", "Local volume requires node affinity")


def _source(spec: PersistentVolumeSpec) -> Iterator[Cause]:
    given = [name for name in _SOURCES if getattr(spec, name) is not None]
    if not given:
        yield required("spec", "must specify a volume type")
    for name in given[1:]:
        yield forbidden(
            f"spec.{'hostPath' if name == 'host_path' else name}", "may not specify more than 1 volume type"
        )
    if spec.host_path is not None:
        yield from validate_host_path(spec.host_path, "spec.hostPath")
    elif spec.local is not None:
        yield from _path(spec.local.path, "spec.local.path")
    elif spec.nfs is not None:
        if not spec.nfs.server:
            yield required("spec.nfs.server")
        yield from _path(spec.nfs.path, "spec.nfs.path")
        if spec.nfs.path and not spec.nfs.path.startswith("/"):
            yield invalid("spec.nfs.path", spec.nfs.path, "must be an absolute path")
    elif spec.csi is not None:
        yield from _csi(spec.csi)


def _path(path: str, field: str) -> Iterator[Cause]:
    if not path:
        yield required(field)
    elif ".." in path.split("/"):
        yield invalid(field, path, "must not contain '..'")


def _csi(source: CSIPersistentVolumeSource) -> Iterator[Cause]:
    if not source.driver:
        yield required("spec.csi.driver")
    if not source.volume_handle:
        yield required("spec.csi.volumeHandle")
    elif source.driver in PROVISIONERS and not is_handle(source.volume_handle):
        yield invalid("spec.csi.volumeHandle", source.volume_handle, _BAD_HANDLE)
    path = source.volume_attributes.get(PATH)
    if source.driver in PROVISIONERS and path is not None and not is_plain_path(path):
        yield invalid("spec.csi.volumeAttributes[path]", path, "must be an absolute path below /, without '..'")


def validate_update(new: PersistentVolume, old: PersistentVolume) -> list[Cause]:
    causes = []
    if any(getattr(new.spec, name) != getattr(old.spec, name) for name in _SOURCES):
        field = "spec.persistentvolumesource"
        causes.append(forbidden(field, f"{field} is immutable after creation"))
    if new.spec.volume_mode != old.spec.volume_mode:
        causes.append(invalid("spec.volumeMode", new.spec.volume_mode, "field is immutable"))
    if old.spec.node_affinity is not None and new.spec.node_affinity != old.spec.node_affinity:
        causes.append(invalid("spec.nodeAffinity", new.spec.node_affinity, "field is immutable"))
    return causes


def row(volume: PersistentVolume, now: datetime) -> list[Any]:
    meta, spec, status = volume.metadata, volume.spec, volume.status
    claim = spec.claim_ref
    return [
        meta.name,
        str(spec.capacity.get(STORAGE, "0")),
        short_modes(spec.access_modes),
        spec.persistent_volume_reclaim_policy,
        status.phase if meta.deletion_timestamp is None else "Terminating",
        f"{claim.namespace}/{claim.name}" if claim is not None else "",
        spec.storage_class_name,
        spec.volume_attributes_class_name or "<unset>",
        status.reason,
        age(meta.creation_timestamp, now),
        spec.volume_mode or "<unset>",
    ]


KIND = Kind(
    type=PersistentVolume,
    group="",
    version="v1",
    plural="persistentvolumes",
    short_names=("pv",),
    namespaced=False,
    has_status=True,
    prepare=prepare,
    on_create=on_create,
    on_update=on_update,
    on_status=on_status,
    validate=validate,
    validate_update=validate_update,
    columns=(
        Column(name="Name", format="name", description="Name of the volume."),
        Column(name="Capacity", description="How much it holds."),
        Column(name="Access Modes", description="How it can be mounted."),
        Column(name="Reclaim Policy", description="What becomes of it when its claim is deleted."),
        Column(name="Status", description="Available, Bound, Released or Failed."),
        Column(name="Claim", description="The claim that it is bound to."),
        Column(name="StorageClass", description="Name of the StorageClass."),
        Column(name="VolumeAttributesClass", description="Name of the VolumeAttributesClass."),
        Column(name="Reason", description="Why it failed, in one word."),
        Column(name="Age", description="Time since the volume was created."),
        Column(name="VolumeMode", description="Filesystem or Block.", priority=1),
    ),
    row=row,
    fields={RECLAIM_NODE: reclaim_node},
    returns_deleted=True,
    example="""\
apiVersion: v1
kind: PersistentVolume
metadata:
  name: archive
spec:
  capacity:
    storage: 1Ti
  accessModes: [ReadOnlyMany]
  hostPath:
    path: /data/archive
""",
)
