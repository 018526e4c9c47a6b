"""Service account volume: the projected volume with the token of a pod's service account, at Kubernetes' path. Pure.

Called by `pod_admission`. Kubernetes adds it unless `automountServiceAccountToken` is false; here the pod, or its account,
must set it to true: most batch pods never call the API, and each would be larger, with mounts in every container.
"""

from hashlib import sha256

from msgspec.structs import replace

from app.kinds.core.serviceaccount import ServiceAccount
from app.kinds.pod.container import Container
from app.kinds.pod.pod_schema import PodSpec
from app.kinds.pod.volume import (
    ConfigMapProjection,
    DownwardAPIProjection,
    DownwardAPIVolumeFile,
    KeyToPath,
    ObjectFieldSelector,
    ProjectedVolumeSource,
    ServiceAccountTokenProjection,
    Volume,
    VolumeMount,
    VolumeProjection,
)

PATH = "/var/run/secrets/kubernetes.io/serviceaccount"
PREFIX = "kube-api-access-"
EXPIRES_AFTER = 60 * 60 + 7  # seconds; the odd seven distinguish such a token from others
_LETTERS = "bcdfghjklmnpqrstvwxz2456789"
_SOURCES = (
    VolumeProjection(
        service_account_token=ServiceAccountTokenProjection(expiration_seconds=EXPIRES_AFTER, path="token")
    ),
    VolumeProjection(
        config_map=ConfigMapProjection(name="kube-root-ca.crt", items=(KeyToPath(key="ca.crt", path="ca.crt"),))
    ),
    VolumeProjection(
        downward_api=DownwardAPIProjection(
            items=(
                DownwardAPIVolumeFile(
                    path="namespace", field_ref=ObjectFieldSelector(api_version="v1", field_path="metadata.namespace")
                ),
            )
        )
    ),
)


def is_wanted(spec: PodSpec, account: ServiceAccount | None) -> bool:
    """By the pod's own setting, else by its account's."""
    wanted = spec.automount_service_account_token
    if wanted is None and account is not None:
        wanted = account.automount_service_account_token
    return bool(wanted)


def add_token_volume(spec: PodSpec, pod: str) -> PodSpec:
    """Containers that mount another volume at the path keep it. The volume's name is derived from `pod`."""
    name = next((volume.name for volume in spec.volumes if volume.name.startswith(PREFIX)), _volume_name(pod))
    containers = tuple(_add_mount(each, name) for each in spec.containers)
    init_containers = tuple(_add_mount(each, name) for each in spec.init_containers)
    if (containers, init_containers) == (spec.containers, spec.init_containers):
        return spec
    volumes = spec.volumes
    if not any(volume.name == name for volume in volumes):
        volumes += (Volume(name=name, projected=ProjectedVolumeSource(sources=_SOURCES, default_mode=0o644)),)
    return replace(spec, containers=containers, init_containers=init_containers, volumes=volumes)


def _add_mount(container: Container, name: str) -> Container:
    if any(mount.mount_path == PATH for mount in container.volume_mounts):
        return container
    mount = VolumeMount(name=name, read_only=True, mount_path=PATH)
    return replace(container, volume_mounts=(*container.volume_mounts, mount))


def _volume_name(pod: str) -> str:
    return PREFIX + "".join(_LETTERS[byte % len(_LETTERS)] for byte in sha256(pod.encode()).digest()[:5])
