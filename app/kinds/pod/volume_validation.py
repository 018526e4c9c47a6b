"""Validation of volumes, and of where containers mount them. Part of `app.kinds.pod.pod_validation`."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from msgspec.structs import fields

from app.kinds.pod.container import Container, EphemeralContainer
from app.kinds.pod.env_validation import IN_VOLUME, validate_field, validate_resource_field
from app.kinds.pod.volume import (
    ConfigMapProjection,
    ConfigMapVolumeSource,
    DownwardAPIProjection,
    DownwardAPIVolumeFile,
    DownwardAPIVolumeSource,
    EmptyDirVolumeSource,
    HostPathVolumeSource,
    KeyToPath,
    PersistentVolumeClaimVolumeSource,
    ProjectedVolumeSource,
    SecretProjection,
    SecretVolumeSource,
    ServiceAccountTokenProjection,
    Volume,
    VolumeProjection,
)
from app.kinds.storage.persistentvolumeclaim import EphemeralVolumeSource, prepare_spec, validate_spec
from app.machinery import name_validation
from app.machinery.errors import Cause, duplicate, forbidden, format_value, invalid, not_supported, required
from app.machinery.meta.metadata_validation import validate_annotations, validate_labels
from app.machinery.quantity import compare, fault

MODE_TEXT = "must be a number between 0 and 0777 (octal), both inclusive"

_SOURCES = tuple((each.name, each.encode_name) for each in fields(Volume) if each.name != "name")
_PARTS = tuple((each.name, each.encode_name) for each in fields(VolumeProjection))
_HOST_PATH_TYPES = (
    "",
    "BlockDevice",
    "CharDevice",
    "Directory",
    "DirectoryOrCreate",
    "File",
    "FileOrCreate",
    "Socket",
)


def absent(path: str, value: Any) -> Cause:
    """Something that is referred to, and is not there."""
    return Cause("FieldValueNotFound", f"Not found: {format_value(value)}", path)


def validate_volumes(volumes: tuple[Volume, ...], path: str) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        here = f"{path}[{index}]"
        yield from _source(volume, here)
        if not volume.name:
            yield required(f"{here}.name")
        for text in name_validation.dns_label(volume.name) if volume.name else ():
            yield invalid(f"{here}.name", volume.name, text)
        if volume.name in seen:
            yield duplicate(f"{here}.name", volume.name)
        seen.add(volume.name)


def _source(volume: Volume, path: str) -> Iterator[Cause]:
    given = [(wire, getattr(volume, name)) for name, wire in _SOURCES if getattr(volume, name) is not None]
    if not given:
        yield required(path, "must specify a volume type")
        return
    wire, source = given[0]
    if validate := _CHECKS.get(type(source)):
        yield from validate(source, f"{path}.{wire}")
    for wire, _ in given[1:]:
        yield forbidden(f"{path}.{wire}", "may not specify more than 1 volume type")


def _empty_dir(source: EmptyDirVolumeSource, path: str) -> Iterator[Cause]:
    limit = source.size_limit
    if limit is not None and (fault(limit) or compare(limit, 0) < 0):
        yield forbidden(f"{path}.sizeLimit", "SizeLimit field must be a valid resource quantity")


def validate_host_path(source: HostPathVolumeSource, path: str) -> Iterator[Cause]:
    """As ValidateVolumes of Kubernetes' core validation; the same holds for PersistentVolumes."""
    if not source.path:
        yield required(f"{path}.path")
        return
    yield from _no_backsteps(source.path, f"{path}.path")
    if source.type not in _HOST_PATH_TYPES:
        yield not_supported(f"{path}.type", source.type, _HOST_PATH_TYPES)


def _secret(source: SecretVolumeSource, path: str) -> Iterator[Cause]:
    if not source.secret_name:
        yield required(f"{path}.secretName")
    yield from _mode(source.default_mode, f"{path}.defaultMode")
    yield from _items(source.items, f"{path}.items")


def _config_map(source: ConfigMapVolumeSource, path: str) -> Iterator[Cause]:
    if not source.name:
        yield required(f"{path}.name")
    yield from _mode(source.default_mode, f"{path}.defaultMode")
    yield from _items(source.items, f"{path}.items")


def _claim(source: PersistentVolumeClaimVolumeSource, path: str) -> Iterator[Cause]:
    if not source.claim_name:
        yield required(f"{path}.claimName")


def _ephemeral(source: EphemeralVolumeSource, path: str) -> Iterator[Cause]:
    template = source.volume_claim_template
    if template is None:
        yield required(f"{path}.volumeClaimTemplate")
        return
    here = f"{path}.volumeClaimTemplate"
    yield from validate_labels(template.metadata.labels, f"{here}.metadata.labels")
    yield from validate_annotations(template.metadata.annotations, f"{here}.metadata.annotations")
    yield from validate_spec(prepare_spec(template.spec), f"{here}.spec")


def _downward(source: DownwardAPIVolumeSource, path: str) -> Iterator[Cause]:
    yield from _mode(source.default_mode, f"{path}.defaultMode")
    yield from _files(source.items, path)


def _validate_projected(source: ProjectedVolumeSource, path: str) -> Iterator[Cause]:
    yield from _mode(source.default_mode, f"{path}.defaultMode")
    for index, part in enumerate(source.sources):
        here = f"{path}.sources[{index}]"
        given = [(wire, getattr(part, name)) for name, wire in _PARTS if getattr(part, name) is not None]
        for wire, value in given[:1]:
            if validate := _CHECKS.get(type(value)):
                yield from validate(value, f"{here}.{wire}")
        for wire, _ in given[1:]:
            yield forbidden(f"{here}.{wire}", "may not specify more than 1 volume type per source")
        if not given:
            yield required(here, "must specify one volume source type")


def _projected_keys(part: SecretProjection | ConfigMapProjection, path: str) -> Iterator[Cause]:
    if not part.name:
        yield required(f"{path}.name")
    yield from _items(part.items, f"{path}.items")


def _projected_facts(part: DownwardAPIProjection, path: str) -> Iterator[Cause]:
    yield from _files(part.items, path)


def _token(part: ServiceAccountTokenProjection, path: str) -> Iterator[Cause]:
    seconds = 3600 if part.expiration_seconds is None else part.expiration_seconds
    if seconds < 600:
        yield invalid(f"{path}.expirationSeconds", seconds, "may not specify a duration less than 10 minutes")
    if seconds > 2**32:
        yield invalid(f"{path}.expirationSeconds", seconds, "may not specify a duration larger than 2^32 seconds")
    if not part.path:
        yield required(f"{path}.path")
    else:
        yield from _file_path(part.path, f"{path}.path")


def _items(items: tuple[KeyToPath, ...], path: str) -> Iterator[Cause]:
    for index, item in enumerate(items):
        here = f"{path}[{index}]"
        if not item.key:
            yield required(f"{here}.key")
        if not item.path:
            yield required(f"{here}.path")
        yield from _file_path(item.path, f"{here}.path")
        yield from _mode(item.mode, f"{here}.mode")


def _files(files: tuple[DownwardAPIVolumeFile, ...], path: str) -> Iterator[Cause]:
    for file in files:
        if not file.path:
            yield required(f"{path}.path")
        yield from _file_path(file.path, f"{path}.path")
        if file.field_ref:
            yield from validate_field(file.field_ref, IN_VOLUME, f"{path}.fieldRef")
            if file.resource_field_ref:
                yield invalid(path, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
        elif file.resource_field_ref:
            yield from validate_resource_field(file.resource_field_ref, f"{path}.resourceFieldRef", in_volume=True)
        else:
            yield required(path, "one of fieldRef and resourceFieldRef is required")
        yield from _mode(file.mode, f"{path}.mode")


def _mode(mode: int | None, path: str) -> Iterator[Cause]:
    if mode is not None and not 0 <= mode <= 0o777:
        yield invalid(path, mode, MODE_TEXT)


def _no_backsteps(value: str, path: str) -> Iterator[Cause]:
    if ".." in value.split("/"):
        yield invalid(path, value, "must not contain '..'")


def relative_path(value: str, path: str) -> Iterator[Cause]:
    """A path that stays within the folder that it starts from."""
    if value.startswith("/"):
        yield invalid(path, value, "must be a relative path")
    yield from _no_backsteps(value, path)


def _file_path(value: str, path: str) -> Iterator[Cause]:
    yield from relative_path(value, path)
    if value.startswith("..") and not value.startswith("../") and value != "..":
        yield invalid(path, value, "must not start with '..'")


_CHECKS: Mapping[type, Callable[[Any, str], Iterator[Cause]]] = {
    EmptyDirVolumeSource: _empty_dir,
    HostPathVolumeSource: validate_host_path,
    SecretVolumeSource: _secret,
    ConfigMapVolumeSource: _config_map,
    PersistentVolumeClaimVolumeSource: _claim,
    EphemeralVolumeSource: _ephemeral,
    DownwardAPIVolumeSource: _downward,
    ProjectedVolumeSource: _validate_projected,
    SecretProjection: _projected_keys,
    ConfigMapProjection: _projected_keys,
    DownwardAPIProjection: _projected_facts,
    ServiceAccountTokenProjection: _token,
}


def validate_mounts(
    container: Container | EphemeralContainer, volumes: Mapping[str, Volume], path: str
) -> Iterator[Cause]:
    """A container's volumeMounts and volumeDevices, against the pod's volumes and against each other."""
    yield from _mounts(container, volumes, f"{path}.volumeMounts")
    yield from _devices(container, volumes, f"{path}.volumeDevices")


def _mounts(container: Container | EphemeralContainer, volumes: Mapping[str, Volume], path: str) -> Iterator[Cause]:
    devices = {device.name for device in container.volume_devices}
    device_paths = {device.device_path for device in container.volume_devices}
    seen: set[str] = set()
    for index, mount in enumerate(container.volume_mounts):
        here = f"{path}[{index}]"
        if not mount.name:
            yield required(f"{here}.name")
        if mount.name not in volumes:
            yield absent(f"{here}.name", mount.name)
        if not mount.mount_path:
            yield required(f"{here}.mountPath")
        if mount.mount_path in seen:
            yield invalid(f"{here}.mountPath", mount.mount_path, "must be unique")
        seen.add(mount.mount_path)
        if mount.name in devices:
            yield invalid(f"{here}.name", mount.name, "must not already exist in volumeDevices")
        if mount.mount_path in device_paths:
            yield invalid(f"{here}.mountPath", mount.mount_path, "must not already exist as a path in volumeDevices")
        yield from relative_path(mount.sub_path, f"{path}.subPath")
        if mount.sub_path and mount.sub_path_expr:
            text = "subPathExpr and subPath are mutually exclusive"
            yield invalid(f"{here}.subPathExpr", mount.sub_path_expr, text)
        yield from relative_path(mount.sub_path_expr, f"{path}.subPathExpr")
        yield from _propagation(container, mount.mount_propagation, f"{path}.mountPropagation")


def _propagation(container: Container | EphemeralContainer, value: str, path: str) -> Iterator[Cause]:
    allowed = ("Bidirectional", "HostToContainer", "None")
    if value and value not in allowed:
        yield not_supported(path, value, allowed)
    context = container.security_context
    if value == "Bidirectional" and not (context and context.privileged):
        yield forbidden(path, "Bidirectional mount propagation is available only to privileged containers")


def _devices(container: Container | EphemeralContainer, volumes: Mapping[str, Volume], path: str) -> Iterator[Cause]:
    mounts = {mount.name for mount in container.volume_mounts}
    mount_paths = {mount.mount_path for mount in container.volume_mounts}
    seen_names: set[str] = set()
    seen_paths: set[str] = set()
    for index, device in enumerate(container.volume_devices):
        name, device_path = f"{path}[{index}].name", f"{path}[{index}].devicePath"
        if not device.name:
            yield required(name)
        elif device.name in seen_names:
            yield invalid(name, device.name, "must be unique")
        yield from _device_volume(volumes.get(device.name), device.name, name)
        if not device.device_path:
            yield required(device_path)
        elif device.device_path in seen_paths:
            yield invalid(device_path, device.device_path, "must be unique")
        if ".." in device.device_path.split("/"):
            yield invalid(device_path, device.device_path, "can not contain backsteps ('..')")
        if device.name in mounts:
            yield invalid(name, device.name, "must not already exist in volumeMounts")
        if device.device_path in mount_paths:
            yield invalid(device_path, device.device_path, "must not already exist as a path in volumeMounts")
        seen_names.add(device.name)
        seen_paths.add(device.device_path)


def _device_volume(volume: Volume | None, name: str, path: str) -> Iterator[Cause]:
    if volume is None:
        yield absent(path, name)
    elif volume.persistent_volume_claim is None and volume.ephemeral is None:
        text = "can only use volume source type of PersistentVolumeClaim or Ephemeral for block mode"
        yield invalid(path, name, text)
