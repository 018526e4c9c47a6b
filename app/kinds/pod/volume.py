"""Volumes and where they are mounted."""

from typing import Annotated

import msgspec

from app.kinds.pod.volume_sources import (
    AWSElasticBlockStoreVolumeSource,
    AzureDiskVolumeSource,
    AzureFileVolumeSource,
    CephFSVolumeSource,
    CinderVolumeSource,
    ClusterTrustBundleProjection,
    CSIVolumeSource,
    FCVolumeSource,
    FlexVolumeSource,
    FlockerVolumeSource,
    GCEPersistentDiskVolumeSource,
    GitRepoVolumeSource,
    GlusterfsVolumeSource,
    ImageVolumeSource,
    ISCSIVolumeSource,
    NFSVolumeSource,
    PhotonPersistentDiskVolumeSource,
    PortworxVolumeSource,
    QuobyteVolumeSource,
    RBDVolumeSource,
    ScaleIOVolumeSource,
    StorageOSVolumeSource,
    VsphereVirtualDiskVolumeSource,
)
from app.machinery.base import (
    Int32,
    Int64,
    Opaque,
    Quantity,
    Struct,
    at,
)


class ObjectFieldSelector(Struct):
    """Names a field of the pod itself."""

    api_version: Annotated[str, at(1, "Version that the path is given in; v1 by default.")] = ""
    field_path: Annotated[str, at(2, "The field, such as metadata.name.", required=True)] = ""


class ResourceFieldSelector(Struct):
    """Names a request or limit of a container."""

    container_name: Annotated[str, at(1, "The container; required in volumes.")] = ""
    resource: Annotated[str, at(2, "What is asked for, such as limits.cpu.", required=True)] = ""
    divisor: Annotated[Quantity | None, at(3, "Unit of the answer; 1 by default.")] = None


class KeyToPath(Struct):
    """Puts one key into one file."""

    key: Annotated[str, at(1, "The key.", required=True)] = ""
    path: Annotated[str, at(2, "The file, relative to the volume; without '..'.", required=True)] = ""
    mode: Annotated[Int32 | None, at(3, "Permissions of the file.")] = None
    user: Annotated[Int64 | None, at(4, "UID that owns the file.")] = None


class EmptyDirVolumeSource(Struct):
    """An empty folder that lives as long as the pod."""

    medium: Annotated[str, at(1, "Empty for the node's disk, Memory for tmpfs.")] = ""
    size_limit: Annotated[Quantity | None, at(2, "How much it may hold.")] = None
    mode: Annotated[Int32 | None, at(3, "Permissions of the folder.")] = None


class HostPathVolumeSource(Struct):
    """A file or folder of the node."""

    path: Annotated[str, at(1, "Its path on the node.", required=True)] = ""
    type: Annotated[
        str,
        at(
            2,
            "What must be there, or is made; empty for no check.",
            enum=("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"),
        ),
    ] = ""


class SecretVolumeSource(Struct):
    """The keys of a Secret, as files."""

    secret_name: Annotated[str, at(1, "Name of the Secret.")] = ""
    items: Annotated[tuple[KeyToPath, ...], at(2, "Keys to show; all if empty.")] = ()
    default_mode: Annotated[Int32 | None, at(3, "Permissions of the files; 0644 by default.")] = None
    optional: Annotated[bool | None, at(4, "True: it may be missing.")] = None
    default_user: Annotated[Int64 | None, at(5, "UID that owns the files.")] = None


class ConfigMapVolumeSource(Struct):
    """The keys of a ConfigMap, as files."""

    name: Annotated[str, at(1, "Name of the ConfigMap.", via=(1,), default="")] = ""
    items: Annotated[tuple[KeyToPath, ...], at(2, "Keys to show; all if empty.")] = ()
    default_mode: Annotated[Int32 | None, at(3, "Permissions of the files; 0644 by default.")] = None
    optional: Annotated[bool | None, at(4, "True: it may be missing.")] = None
    default_user: Annotated[Int64 | None, at(5, "UID that owns the files.")] = None


class DownwardAPIVolumeFile(Struct):
    """A file that holds something about the pod."""

    path: Annotated[str, at(1, "The file, relative to the volume; without '..'.", required=True)] = ""
    field_ref: Annotated[ObjectFieldSelector | None, at(2, "A field of the pod.")] = None
    resource_field_ref: Annotated[ResourceFieldSelector | None, at(3, "A request or limit of a container.")] = None
    mode: Annotated[Int32 | None, at(4, "Permissions of the file.")] = None
    user: Annotated[Int64 | None, at(5, "UID that owns the file.")] = None


class DownwardAPIVolumeSource(Struct):
    """Facts about the pod, as files."""

    items: Annotated[tuple[DownwardAPIVolumeFile, ...], at(1, "The files.")] = ()
    default_mode: Annotated[Int32 | None, at(2, "Permissions of the files; 0644 by default.")] = None
    default_user: Annotated[Int64 | None, at(3, "UID that owns the files.")] = None


class PersistentVolumeClaimVolumeSource(Struct):
    """Storage that outlives the pod."""

    claim_name: Annotated[str, at(1, "Name of the claim.", required=True)] = ""
    read_only: Annotated[bool | None, at(2, "True: mounted read-only everywhere.")] = None


class SecretProjection(Struct):
    """The keys of a Secret, in a projected volume."""

    name: Annotated[str, at(1, "Name of the Secret.", via=(1,), default="")] = ""
    items: Annotated[tuple[KeyToPath, ...], at(2, "Keys to show; all if empty.")] = ()
    optional: Annotated[bool | None, at(4, "True: it may be missing.")] = None


class ConfigMapProjection(Struct):
    """The keys of a ConfigMap, in a projected volume."""

    name: Annotated[str, at(1, "Name of the ConfigMap.", via=(1,), default="")] = ""
    items: Annotated[tuple[KeyToPath, ...], at(2, "Keys to show; all if empty.")] = ()
    optional: Annotated[bool | None, at(4, "True: it may be missing.")] = None


class DownwardAPIProjection(Struct):
    """Facts about the pod, in a projected volume."""

    items: Annotated[tuple[DownwardAPIVolumeFile, ...], at(1, "The files.")] = ()


class ServiceAccountTokenProjection(Struct):
    """A token of the pod's service account, in a projected volume."""

    audience: Annotated[str, at(1, "Who the token is meant for.")] = ""
    expiration_seconds: Annotated[Int64 | None, at(2, "How long it is valid; an hour by default.")] = None
    path: Annotated[str, at(3, "The file, relative to the volume.", required=True)] = ""
    user: Annotated[Int64 | None, at(4, "UID that owns the file.")] = None


class VolumeProjection(Struct):
    """One of the things in a projected volume; exactly one is set."""

    secret: Annotated[SecretProjection | None, at(1, "A Secret.")] = None
    downward_api: Annotated[DownwardAPIProjection | None, at(2, "Facts about the pod.")] = msgspec.field(
        default=None, name="downwardAPI"
    )
    config_map: Annotated[ConfigMapProjection | None, at(3, "A ConfigMap.")] = None
    service_account_token: Annotated[ServiceAccountTokenProjection | None, at(4, "A token.")] = None
    cluster_trust_bundle: Annotated[ClusterTrustBundleProjection | None, at(5, "Trusted certificates.")] = None
    pod_certificate: Annotated[Opaque | None, at(6, "A certificate of the pod.")] = None


class ProjectedVolumeSource(Struct):
    """Several things in one folder."""

    sources: Annotated[tuple[VolumeProjection, ...], at(1, "The things.")] = ()
    default_mode: Annotated[Int32 | None, at(2, "Permissions of the files; 0644 by default.")] = None
    default_user: Annotated[Int64 | None, at(3, "UID that owns the files.")] = None


class Volume(Struct):
    """A folder that containers of the pod can mount; exactly one source is set."""

    name: Annotated[str, at(1, "Name, unique in the pod.", required=True)] = ""
    host_path: Annotated[HostPathVolumeSource | None, at(1, "A file or folder of the node.", via=(2,))] = None
    empty_dir: Annotated[
        EmptyDirVolumeSource | None, at(2, "An empty folder that lives as long as the pod.", via=(2,))
    ] = None
    gce_persistent_disk: Annotated[
        GCEPersistentDiskVolumeSource | None, at(3, "A disk of Google Compute Engine.", via=(2,))
    ] = None
    aws_elastic_block_store: Annotated[AWSElasticBlockStoreVolumeSource | None, at(4, "A disk of AWS.", via=(2,))] = (
        None
    )
    git_repo: Annotated[GitRepoVolumeSource | None, at(5, "A clone of a git repository; obsolete.", via=(2,))] = None
    secret: Annotated[SecretVolumeSource | None, at(6, "A Secret.", via=(2,))] = None
    nfs: Annotated[NFSVolumeSource | None, at(7, "A folder of an NFS server.", via=(2,))] = None
    iscsi: Annotated[ISCSIVolumeSource | None, at(8, "An iSCSI disk.", via=(2,))] = None
    glusterfs: Annotated[GlusterfsVolumeSource | None, at(9, "A GlusterFS volume.", via=(2,))] = None
    persistent_volume_claim: Annotated[PersistentVolumeClaimVolumeSource | None, at(10, "A claim.", via=(2,))] = None
    rbd: Annotated[RBDVolumeSource | None, at(11, "A Ceph block device.", via=(2,))] = None
    flex_volume: Annotated[FlexVolumeSource | None, at(12, "A volume of an exec plug-in.", via=(2,))] = None
    cinder: Annotated[CinderVolumeSource | None, at(13, "A disk of OpenStack.", via=(2,))] = None
    cephfs: Annotated[CephFSVolumeSource | None, at(14, "A CephFS folder.", via=(2,))] = None
    flocker: Annotated[FlockerVolumeSource | None, at(15, "A Flocker volume.", via=(2,))] = None
    downward_api: Annotated[DownwardAPIVolumeSource | None, at(16, "Facts about the pod.", via=(2,))] = msgspec.field(
        default=None, name="downwardAPI"
    )
    fc: Annotated[FCVolumeSource | None, at(17, "A Fibre Channel disk.", via=(2,))] = None
    azure_file: Annotated[AzureFileVolumeSource | None, at(18, "A share of Azure Files.", via=(2,))] = None
    config_map: Annotated[ConfigMapVolumeSource | None, at(19, "A ConfigMap.", via=(2,))] = None
    vsphere_volume: Annotated[VsphereVirtualDiskVolumeSource | None, at(20, "A disk of vSphere.", via=(2,))] = None
    quobyte: Annotated[QuobyteVolumeSource | None, at(21, "A Quobyte volume.", via=(2,))] = None
    azure_disk: Annotated[AzureDiskVolumeSource | None, at(22, "A disk of Azure.", via=(2,))] = None
    photon_persistent_disk: Annotated[
        PhotonPersistentDiskVolumeSource | None, at(23, "A disk of Photon Controller.", via=(2,))
    ] = None
    portworx_volume: Annotated[PortworxVolumeSource | None, at(24, "A Portworx volume.", via=(2,))] = None
    scale_io: Annotated[ScaleIOVolumeSource | None, at(25, "A ScaleIO volume.", via=(2,))] = msgspec.field(
        default=None, name="scaleIO"
    )
    projected: Annotated[ProjectedVolumeSource | None, at(26, "Several things in one folder.", via=(2,))] = None
    storageos: Annotated[StorageOSVolumeSource | None, at(27, "A StorageOS volume.", via=(2,))] = None
    csi: Annotated[
        CSIVolumeSource | None, at(28, "A volume of a CSI driver that lives as long as the pod.", via=(2,))
    ] = None
    ephemeral: Annotated[Opaque | None, at(29, "A claim that is made for the pod and goes with it.", via=(2,))] = None
    image: Annotated[ImageVolumeSource | None, at(30, "An OCI image or artifact.", via=(2,))] = None


class VolumeMount(Struct):
    """Where a container sees a volume."""

    name: Annotated[str, at(1, "Name of the volume.", required=True)] = ""
    read_only: Annotated[bool, at(2, "True: the container cannot write to it.")] = False
    mount_path: Annotated[str, at(3, "Path in the container.", required=True)] = ""
    sub_path: Annotated[str, at(4, "Part of the volume that is mounted; all of it if empty.")] = ""
    mount_propagation: Annotated[
        str, at(5, "None, HostToContainer or Bidirectional.", enum=("Bidirectional", "HostToContainer", "None"))
    ] = ""
    sub_path_expr: Annotated[str, at(6, "Like subPath, with $(VAR) filled in from the environment.")] = ""
    recursive_read_only: Annotated[str, at(7, "Disabled, IfPossible or Enabled.")] = ""
    bind_mount_options: Annotated[tuple[str, ...], at(8, "Further options of the bind mount.")] = ()


class VolumeDevice(Struct):
    """Where a container sees a volume as a raw block device."""

    name: Annotated[str, at(1, "Name of the volume, a claim.", required=True)] = ""
    device_path: Annotated[str, at(2, "Path in the container.", required=True)] = ""
