"""Volume sources besides files and folders: kept, for nothing here mounts them. For `volume`."""

from typing import Annotated

import msgspec

from app.machinery.base import TOLD, Int32, LabelSelector, LocalObjectReference, Struct, at


class GCEPersistentDiskVolumeSource(Struct):
    """A disk of Google Compute Engine."""

    pd_name: Annotated[str, at(1, "Name of the disk.", required=True)] = TOLD
    fs_type: Annotated[str, at(2, "File system of the volume; ext4 by default.")] = ""
    partition: Annotated[Int32, at(3, "Partition to mount; 0 is the whole disk.")] = 0
    read_only: Annotated[bool, at(4, "True: it is mounted read-only.")] = False


class AWSElasticBlockStoreVolumeSource(Struct):
    """A disk of AWS."""

    volume_id: Annotated[str, at(1, "ID of the volume.", required=True)] = TOLD
    fs_type: Annotated[str, at(2, "File system of the volume; ext4 by default.")] = ""
    partition: Annotated[Int32, at(3, "Partition to mount; 0 is the whole disk.")] = 0
    read_only: Annotated[bool, at(4, "True: it is mounted read-only.")] = False


class GitRepoVolumeSource(Struct):
    """A clone of a git repository; obsolete."""

    repository: Annotated[str, at(1, "URL of the repository.", required=True)] = TOLD
    revision: Annotated[str, at(2, "Commit to check out.")] = ""
    directory: Annotated[str, at(3, "Folder to clone into, without '..'.")] = ""


class NFSVolumeSource(Struct):
    """A folder of an NFS server."""

    server: Annotated[str, at(1, "Name or address of the server.", required=True)] = TOLD
    path: Annotated[str, at(2, "Path of what is mounted.", required=True)] = TOLD
    read_only: Annotated[bool, at(3, "True: it is mounted read-only.")] = False


class ISCSIVolumeSource(Struct):
    """An iSCSI disk."""

    target_portal: Annotated[str, at(1, "Address of the target.", required=True)] = TOLD
    iqn: Annotated[str, at(2, "Qualified name of the target.", required=True)] = TOLD
    lun: Annotated[Int32, at(3, "Number of the logical unit.", required=True)] = msgspec.field(
        default_factory=lambda: 0
    )
    iscsi_interface: Annotated[str, at(4, "Transport to use.")] = ""
    fs_type: Annotated[str, at(5, "File system of the volume; ext4 by default.")] = ""
    read_only: Annotated[bool, at(6, "True: it is mounted read-only.")] = False
    portals: Annotated[tuple[str, ...], at(7, "Further addresses of the target.")] = ()
    chap_auth_discovery: Annotated[bool, at(8, "True: discovery logs in by CHAP.")] = False
    secret_ref: Annotated[LocalObjectReference | None, at(10, "Secret with what it takes to log in.")] = None
    chap_auth_session: Annotated[bool, at(11, "True: sessions log in by CHAP.")] = False
    initiator_name: Annotated[str | None, at(12, "Qualified name of the initiator.")] = None


class GlusterfsVolumeSource(Struct):
    """A GlusterFS volume."""

    endpoints: Annotated[str, at(1, "Name of the Endpoints with the servers.", required=True)] = TOLD
    path: Annotated[str, at(2, "Path of what is mounted.", required=True)] = TOLD
    read_only: Annotated[bool, at(3, "True: it is mounted read-only.")] = False


class RBDVolumeSource(Struct):
    """A Ceph block device."""

    monitors: Annotated[tuple[str, ...], at(1, "Addresses of the Ceph monitors.", required=True)] = ()
    image: Annotated[str, at(2, "Name of the image.", required=True)] = TOLD
    fs_type: Annotated[str, at(3, "File system of the volume; ext4 by default.")] = ""
    pool: Annotated[str, at(4, "Pool that the image is in.")] = ""
    user: Annotated[str, at(5, "User to log in as.")] = ""
    keyring: Annotated[str, at(6, "File with the keys of the user.")] = ""
    secret_ref: Annotated[LocalObjectReference | None, at(7, "Secret with what it takes to log in.")] = None
    read_only: Annotated[bool, at(8, "True: it is mounted read-only.")] = False


class FlexVolumeSource(Struct):
    """A volume of an exec plug-in."""

    driver: Annotated[str, at(1, "Name of the driver.", required=True)] = TOLD
    fs_type: Annotated[str, at(2, "File system of the volume; ext4 by default.")] = ""
    secret_ref: Annotated[LocalObjectReference | None, at(3, "Secret with what it takes to log in.")] = None
    read_only: Annotated[bool, at(4, "True: it is mounted read-only.")] = False
    options: Annotated[dict[str, str], at(5, "Further options of the driver.")] = msgspec.field(default_factory=dict)


class CinderVolumeSource(Struct):
    """A disk of OpenStack."""

    volume_id: Annotated[str, at(1, "ID of the volume.", required=True)] = TOLD
    fs_type: Annotated[str, at(2, "File system of the volume; ext4 by default.")] = ""
    read_only: Annotated[bool, at(3, "True: it is mounted read-only.")] = False
    secret_ref: Annotated[LocalObjectReference | None, at(4, "Secret with what it takes to log in.")] = None


class CephFSVolumeSource(Struct):
    """A CephFS folder."""

    monitors: Annotated[tuple[str, ...], at(1, "Addresses of the Ceph monitors.", required=True)] = ()
    path: Annotated[str, at(2, "Path of what is mounted.")] = ""
    user: Annotated[str, at(3, "User to log in as.")] = ""
    secret_file: Annotated[str, at(4, "File with the keys of the user.")] = ""
    secret_ref: Annotated[LocalObjectReference | None, at(5, "Secret with what it takes to log in.")] = None
    read_only: Annotated[bool, at(6, "True: it is mounted read-only.")] = False


class FlockerVolumeSource(Struct):
    """A Flocker volume."""

    dataset_name: Annotated[str, at(1, "Name of the dataset; obsolete.")] = ""
    dataset_uuid: Annotated[str, at(2, "UUID of the dataset.")] = ""


class FCVolumeSource(Struct):
    """A Fibre Channel disk."""

    target_wwns: Annotated[tuple[str, ...], at(1, "World-wide names of the targets.")] = ()
    lun: Annotated[Int32 | None, at(2, "Number of the logical unit.")] = None
    fs_type: Annotated[str, at(3, "File system of the volume; ext4 by default.")] = ""
    read_only: Annotated[bool, at(4, "True: it is mounted read-only.")] = False
    wwids: Annotated[tuple[str, ...], at(5, "World-wide identifiers, in place of targetWWNs and lun.")] = ()


class AzureFileVolumeSource(Struct):
    """A share of Azure Files."""

    secret_name: Annotated[str, at(1, "Secret with the account and its key.", required=True)] = TOLD
    share_name: Annotated[str, at(2, "Name of the share.", required=True)] = TOLD
    read_only: Annotated[bool, at(3, "True: it is mounted read-only.")] = False


class VsphereVirtualDiskVolumeSource(Struct):
    """A disk of vSphere."""

    volume_path: Annotated[str, at(1, "Path of the disk.", required=True)] = TOLD
    fs_type: Annotated[str, at(2, "File system of the volume; ext4 by default.")] = ""
    storage_policy_name: Annotated[str, at(3, "Name of the storage policy.")] = ""
    storage_policy_id: Annotated[str, at(4, "ID of the storage policy.")] = ""


class QuobyteVolumeSource(Struct):
    """A Quobyte volume."""

    registry: Annotated[str, at(1, "Registry services, as host:port, with commas between them.", required=True)] = TOLD
    volume: Annotated[str, at(2, "Name of the volume.", required=True)] = TOLD
    read_only: Annotated[bool, at(3, "True: it is mounted read-only.")] = False
    user: Annotated[str, at(4, "User to log in as.")] = ""
    group: Annotated[str, at(5, "Group that files are accessed as.")] = ""
    tenant: Annotated[str, at(6, "Tenant that owns the volume.")] = ""


class AzureDiskVolumeSource(Struct):
    """A disk of Azure."""

    disk_name: Annotated[str, at(1, "Name of the disk.", required=True)] = TOLD
    disk_uri: Annotated[str, at(2, "URI of the disk.", required=True)] = TOLD
    caching_mode: Annotated[
        str | None, at(3, "None, ReadOnly or ReadWrite.", enum=("None", "ReadOnly", "ReadWrite"))
    ] = None
    fs_type: Annotated[str | None, at(4, "File system of the volume; ext4 by default.")] = None
    read_only: Annotated[bool | None, at(5, "True: it is mounted read-only.")] = None
    kind: Annotated[str | None, at(6, "Shared, Dedicated or Managed.", enum=("Dedicated", "Managed", "Shared"))] = None


class PhotonPersistentDiskVolumeSource(Struct):
    """A disk of Photon Controller."""

    pd_id: Annotated[str, at(1, "ID of the disk.", required=True)] = TOLD
    fs_type: Annotated[str, at(2, "File system of the volume; ext4 by default.")] = ""


class PortworxVolumeSource(Struct):
    """A Portworx volume."""

    volume_id: Annotated[str, at(1, "ID of the volume.", required=True)] = TOLD
    fs_type: Annotated[str, at(2, "File system of the volume; ext4 by default.")] = ""
    read_only: Annotated[bool, at(3, "True: it is mounted read-only.")] = False


class ScaleIOVolumeSource(Struct):
    """A ScaleIO volume."""

    gateway: Annotated[str, at(1, "Address of the gateway.", required=True)] = TOLD
    system: Annotated[str, at(2, "Name of the storage system.", required=True)] = TOLD
    secret_ref: Annotated[LocalObjectReference | None, at(3, "Secret with what it takes to log in.", required=True)] = (
        None
    )
    ssl_enabled: Annotated[bool, at(4, "True: the gateway is spoken to over TLS.")] = False
    protection_domain: Annotated[str, at(5, "Name of the protection domain.")] = ""
    storage_pool: Annotated[str, at(6, "Pool of the protection domain.")] = ""
    storage_mode: Annotated[str, at(7, "ThickProvisioned or ThinProvisioned.")] = ""
    volume_name: Annotated[str, at(8, "Name of the volume.")] = ""
    fs_type: Annotated[str, at(9, "File system of the volume; ext4 by default.")] = ""
    read_only: Annotated[bool, at(10, "True: it is mounted read-only.")] = False


class StorageOSVolumeSource(Struct):
    """A StorageOS volume."""

    volume_name: Annotated[str, at(1, "Name of the volume.")] = ""
    volume_namespace: Annotated[str, at(2, "Scope of the volume's name.")] = ""
    fs_type: Annotated[str, at(3, "File system of the volume; ext4 by default.")] = ""
    read_only: Annotated[bool, at(4, "True: it is mounted read-only.")] = False
    secret_ref: Annotated[LocalObjectReference | None, at(5, "Secret with what it takes to log in.")] = None


class CSIVolumeSource(Struct):
    """A volume of a CSI driver that lives as long as the pod."""

    driver: Annotated[str, at(1, "Name of the driver.", required=True)] = TOLD
    read_only: Annotated[bool | None, at(2, "True: it is mounted read-only.")] = None
    fs_type: Annotated[str | None, at(3, "File system of the volume; ext4 by default.")] = None
    volume_attributes: Annotated[dict[str, str], at(4, "What the driver is told.")] = msgspec.field(
        default_factory=dict
    )
    node_publish_secret_ref: Annotated[LocalObjectReference | None, at(5, "Secret that the driver is given.")] = None


class ImageVolumeSource(Struct):
    """An OCI image or artifact."""

    reference: Annotated[str, at(1, "Image or artifact to mount.")] = ""
    pull_policy: Annotated[str, at(2, "Always, IfNotPresent or Never.", enum=("Always", "IfNotPresent", "Never"))] = ""


class ClusterTrustBundleProjection(Struct):
    """Trusted certificates as a file."""

    name: Annotated[str | None, at(1, "Its name.")] = None
    signer_name: Annotated[str | None, at(2, "Signer whose bundles are taken.")] = None
    label_selector: Annotated[LabelSelector | None, at(3, "Which bundles of the signer are taken.")] = None
    path: Annotated[str, at(4, "Path of what is mounted.", required=True)] = TOLD
    optional: Annotated[bool | None, at(5, "True: there may be none.")] = None
