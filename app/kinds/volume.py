"""Volumes and where they are mounted."""

from typing import Annotated

import msgspec

from app.kinds.base import (
    Int32,
    Int64,
    LocalObjectReference,
    Opaque,
    Quantity,
    Struct,
    at,
)


class ObjectFieldSelector(Struct):
    """TODO-DOC"""

    api_version: Annotated[str, at(1)] = ""
    field_path: Annotated[str, at(2)] = ""


class ResourceFieldSelector(Struct):
    """TODO-DOC"""

    container_name: Annotated[str, at(1)] = ""
    resource: Annotated[str, at(2)] = ""
    divisor: Annotated[Quantity | None, at(3)] = None


class KeyToPath(Struct):
    """TODO-DOC"""

    key: Annotated[str, at(1)] = ""
    path: Annotated[str, at(2)] = ""
    mode: Annotated[Int32 | None, at(3)] = None
    user: Annotated[Int64 | None, at(4)] = None


class EmptyDirVolumeSource(Struct):
    """TODO-DOC"""

    medium: Annotated[str, at(1)] = ""
    size_limit: Annotated[Quantity | None, at(2)] = None
    mode: Annotated[Int32 | None, at(3)] = None


class HostPathVolumeSource(Struct):
    """TODO-DOC"""

    path: Annotated[str, at(1)] = ""
    type: Annotated[str, at(2)] = ""


class SecretVolumeSource(Struct):
    """TODO-DOC"""

    secret_name: Annotated[str, at(1)] = ""
    items: Annotated[tuple[KeyToPath, ...], at(2)] = ()
    default_mode: Annotated[Int32 | None, at(3)] = None
    optional: Annotated[bool | None, at(4)] = None
    default_user: Annotated[Int64 | None, at(5)] = None


class ConfigMapVolumeSource(Struct):
    """TODO-DOC"""

    local_object_reference: Annotated[LocalObjectReference | None, at(1)] = None
    items: Annotated[tuple[KeyToPath, ...], at(2)] = ()
    default_mode: Annotated[Int32 | None, at(3)] = None
    optional: Annotated[bool | None, at(4)] = None
    default_user: Annotated[Int64 | None, at(5)] = None


class DownwardAPIVolumeFile(Struct):
    """TODO-DOC"""

    path: Annotated[str, at(1)] = ""
    field_ref: Annotated[ObjectFieldSelector | None, at(2)] = None
    resource_field_ref: Annotated[ResourceFieldSelector | None, at(3)] = None
    mode: Annotated[Int32 | None, at(4)] = None
    user: Annotated[Int64 | None, at(5)] = None


class DownwardAPIVolumeSource(Struct):
    """TODO-DOC"""

    items: Annotated[tuple[DownwardAPIVolumeFile, ...], at(1)] = ()
    default_mode: Annotated[Int32 | None, at(2)] = None
    default_user: Annotated[Int64 | None, at(3)] = None


class PersistentVolumeClaimVolumeSource(Struct):
    """TODO-DOC"""

    claim_name: Annotated[str, at(1)] = ""
    read_only: Annotated[bool | None, at(2)] = None


class SecretProjection(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1, via=(1,))] = ""
    items: Annotated[tuple[KeyToPath, ...], at(2)] = ()
    optional: Annotated[bool | None, at(4)] = None


class ConfigMapProjection(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1, via=(1,))] = ""
    items: Annotated[tuple[KeyToPath, ...], at(2)] = ()
    optional: Annotated[bool | None, at(4)] = None


class DownwardAPIProjection(Struct):
    """TODO-DOC"""

    items: Annotated[tuple[DownwardAPIVolumeFile, ...], at(1)] = ()


class ServiceAccountTokenProjection(Struct):
    """TODO-DOC"""

    audience: Annotated[str, at(1)] = ""
    expiration_seconds: Annotated[Int64 | None, at(2)] = None
    path: Annotated[str, at(3)] = ""
    user: Annotated[Int64 | None, at(4)] = None


class VolumeProjection(Struct):
    """TODO-DOC"""

    secret: Annotated[SecretProjection | None, at(1)] = None
    downward_api: Annotated[DownwardAPIProjection | None, at(2)] = msgspec.field(default=None, name="downwardAPI")
    config_map: Annotated[ConfigMapProjection | None, at(3)] = None
    service_account_token: Annotated[ServiceAccountTokenProjection | None, at(4)] = None
    cluster_trust_bundle: Annotated[Opaque | None, at(5)] = None
    pod_certificate: Annotated[Opaque | None, at(6)] = None


class ProjectedVolumeSource(Struct):
    """TODO-DOC"""

    sources: Annotated[tuple[VolumeProjection, ...], at(1)] = ()
    default_mode: Annotated[Int32 | None, at(2)] = None
    default_user: Annotated[Int64 | None, at(3)] = None


class Volume(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1)] = ""
    host_path: Annotated[HostPathVolumeSource | None, at(1, via=(2,))] = None
    empty_dir: Annotated[EmptyDirVolumeSource | None, at(2, via=(2,))] = None
    gce_persistent_disk: Annotated[Opaque | None, at(3, via=(2,))] = None
    aws_elastic_block_store: Annotated[Opaque | None, at(4, via=(2,))] = None
    git_repo: Annotated[Opaque | None, at(5, via=(2,))] = None
    secret: Annotated[SecretVolumeSource | None, at(6, via=(2,))] = None
    nfs: Annotated[Opaque | None, at(7, via=(2,))] = None
    iscsi: Annotated[Opaque | None, at(8, via=(2,))] = None
    glusterfs: Annotated[Opaque | None, at(9, via=(2,))] = None
    persistent_volume_claim: Annotated[PersistentVolumeClaimVolumeSource | None, at(10, via=(2,))] = None
    rbd: Annotated[Opaque | None, at(11, via=(2,))] = None
    flex_volume: Annotated[Opaque | None, at(12, via=(2,))] = None
    cinder: Annotated[Opaque | None, at(13, via=(2,))] = None
    cephfs: Annotated[Opaque | None, at(14, via=(2,))] = None
    flocker: Annotated[Opaque | None, at(15, via=(2,))] = None
    downward_api: Annotated[DownwardAPIVolumeSource | None, at(16, via=(2,))] = msgspec.field(
        default=None, name="downwardAPI"
    )
    fc: Annotated[Opaque | None, at(17, via=(2,))] = None
    azure_file: Annotated[Opaque | None, at(18, via=(2,))] = None
    config_map: Annotated[ConfigMapVolumeSource | None, at(19, via=(2,))] = None
    vsphere_volume: Annotated[Opaque | None, at(20, via=(2,))] = None
    quobyte: Annotated[Opaque | None, at(21, via=(2,))] = None
    azure_disk: Annotated[Opaque | None, at(22, via=(2,))] = None
    photon_persistent_disk: Annotated[Opaque | None, at(23, via=(2,))] = None
    portworx_volume: Annotated[Opaque | None, at(24, via=(2,))] = None
    scale_io: Annotated[Opaque | None, at(25, via=(2,))] = msgspec.field(default=None, name="scaleIO")
    projected: Annotated[ProjectedVolumeSource | None, at(26, via=(2,))] = None
    storageos: Annotated[Opaque | None, at(27, via=(2,))] = None
    csi: Annotated[Opaque | None, at(28, via=(2,))] = None
    ephemeral: Annotated[Opaque | None, at(29, via=(2,))] = None
    image: Annotated[Opaque | None, at(30, via=(2,))] = None


class VolumeMount(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1)] = ""
    read_only: Annotated[bool, at(2)] = False
    mount_path: Annotated[str, at(3)] = ""
    sub_path: Annotated[str, at(4)] = ""
    mount_propagation: Annotated[str, at(5)] = ""
    sub_path_expr: Annotated[str, at(6)] = ""
    recursive_read_only: Annotated[str, at(7)] = ""
    bind_mount_options: Annotated[tuple[str, ...], at(8)] = ()


class VolumeDevice(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1)] = ""
    device_path: Annotated[str, at(2)] = ""
