"""Builders of claims, volumes and classes for tests of storage, and what is stored, in dictionaries."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from app.kinds.pod.affinity import NodeSelector, NodeSelectorRequirement, NodeSelectorTerm
from app.kinds.pod.pod import Pod
from app.kinds.pod.volume import HostPathVolumeSource, PersistentVolumeClaimVolumeSource, Volume
from app.kinds.storage.persistentvolume import (
    PersistentVolume,
    PersistentVolumeSpec,
    PersistentVolumeStatus,
    VolumeNodeAffinity,
)
from app.kinds.storage.persistentvolumeclaim import (
    PersistentVolumeClaim,
    PersistentVolumeClaimSpec,
    PersistentVolumeClaimStatus,
    VolumeResourceRequirements,
)
from app.kinds.storage.storageclass import LOCAL_CLASS, SHARED_FOLDER, StorageClass
from app.machinery.base import ObjectMeta
from app.plans.volumes.pod_volumes import Storage
from tests.scheduler.cluster import HOST

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
SHARED = StorageClass(
    metadata=ObjectMeta(name="shared", uid="c-shared", resource_version="1"),
    provisioner=SHARED_FOLDER,
    parameters={"path": "/shared"},
    reclaim_policy="Delete",
    volume_binding_mode="Immediate",
)
LOCAL = LOCAL_CLASS
HAND_MADE = StorageClass(
    metadata=ObjectMeta(name="disks", uid="c-disks", resource_version="1"),
    provisioner="kubernetes.io/no-provisioner",
    volume_binding_mode="WaitForFirstConsumer",
)


def a_claim(
    name: str = "data", storage: str = "1Gi", of: str | None = "", volume: str = "", **more: Any
) -> PersistentVolumeClaim:
    modes = more.pop("modes", ("ReadWriteOnce",))
    metadata = more.pop("metadata", {})
    return PersistentVolumeClaim(
        metadata=ObjectMeta(
            name=name,
            namespace="default",
            uid=f"uid-of-{name}",
            resource_version="1",
            creation_timestamp=NOW,
            **metadata,
        ),
        spec=PersistentVolumeClaimSpec(
            access_modes=modes,
            resources=VolumeResourceRequirements(requests={"storage": storage}),
            storage_class_name=of,
            volume_name=volume,
            **more,
        ),
        status=PersistentVolumeClaimStatus(phase="Pending"),
    )


def a_volume(
    name: str = "v", storage: str = "1Gi", of: str = "", node: str = "", phase: str = "Available", **more: Any
) -> PersistentVolume:
    affinity = None
    if node:
        demand = NodeSelectorRequirement(key=HOST, operator="In", values=(node,))
        affinity = VolumeNodeAffinity(
            required=NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(demand,)),))
        )
    metadata = more.pop("metadata", {})
    usual = {"persistent_volume_reclaim_policy": "Retain", "host_path": HostPathVolumeSource(path=f"/data/{name}")}
    return PersistentVolume(
        metadata=ObjectMeta(name=name, uid=f"uid-of-{name}", resource_version="1", **metadata),
        spec=PersistentVolumeSpec(
            capacity={"storage": storage},
            access_modes=more.pop("modes", ("ReadWriteOnce",)),
            storage_class_name=of,
            node_affinity=affinity,
            volume_mode="Filesystem",
            **(usual | more),
        ),
        status=PersistentVolumeStatus(phase=phase),
    )


def with_claims(pod: Pod, *names: str) -> tuple[Volume, ...]:
    """Volumes of a pod, for its spec."""
    return tuple(
        Volume(name=f"v{number}", persistent_volume_claim=PersistentVolumeClaimVolumeSource(claim_name=name))
        for number, name in enumerate(names)
    )


def stored(
    claims: Iterable[PersistentVolumeClaim] = (),
    volumes: Iterable[PersistentVolume] = (),
    classes: Iterable[StorageClass] = (),
    users: Mapping[str, str] = {},  # nodes by UIDs of pods
) -> Storage:
    by_claim = {each.metadata.name: each for each in claims}
    by_volume = {each.metadata.name: each for each in volumes}
    by_class = {each.metadata.name: each for each in classes}
    return Storage(
        claim=lambda _, name: by_claim.get(name),
        volume=by_volume.get,
        volumes=lambda _: by_volume.values(),
        storage_class=by_class.get,
        users=lambda *_: users,
        nodes=lambda *_: tuple(users.values()),
    )
