"""A pod's volumes on this node: emptyDir, configMap, secret, downwardAPI and projected, as folders of the agent's.

Folders live as long as the pod. Names come from the API and are checked again here: nothing outside the root is
touched. Other kinds of volumes, hostPath among them, are refused. Contents are written once and do not follow changes.
"""

import asyncio
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path, PurePosixPath

from app.agent.environment import ConfigError, Lookup, expand, field, resource
from app.kinds.container import Container
from app.kinds.pod import Pod
from app.kinds.volume import (
    ConfigMapProjection,
    ConfigMapVolumeSource,
    DownwardAPIVolumeFile,
    KeyToPath,
    ProjectedVolumeSource,
    SecretProjection,
    Volume,
    VolumeMount,
    VolumeProjection,
)
from app.runtimes.base import Mount

_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,251}[A-Za-z0-9])?")
FILE_MODE = 0o644


class Volumes:
    """All pods' volumes under one root: `root/<pod uid>/<volume name>`."""

    def __init__(self, root: Path, ip: str, lookup: Lookup) -> None:
        self._root, self._ip, self._lookup = root, ip, lookup

    async def mounts(self, pod: Pod, container: Container, env: Mapping[str, str]) -> tuple[Mount, ...]:
        """Prepares what the container mounts. Raises `ConfigError`."""
        if not container.volume_mounts:
            return ()
        volumes = {volume.name: volume for volume in pod.spec.volumes}
        return tuple([await self._mount(pod, container, volumes, mount, env) for mount in container.volume_mounts])

    async def remove(self, uid: str) -> None:
        folder = self._folder(uid)
        if folder.exists():
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    def uids(self) -> set[str]:
        """Pods that have left something here."""
        return {path.name for path in self._root.iterdir()} if self._root.is_dir() else set()

    def _folder(self, *names: str) -> Path:
        if not all(_NAME.fullmatch(name) for name in names):
            raise ConfigError(f"bad name of a volume: {'/'.join(names)}")
        return self._root.joinpath(*names)

    async def _mount(
        self, pod: Pod, container: Container, volumes: Mapping[str, Volume], mount: VolumeMount, env: Mapping[str, str]
    ) -> Mount:
        volume = volumes.get(mount.name)
        if volume is None:
            raise ConfigError(f'volume "{mount.name}" is not defined')
        folder = self._folder(pod.metadata.uid, volume.name)
        if not folder.is_dir():
            await self._fill(pod, container, volume, folder)
        sub_path = expand(mount.sub_path_expr, env) or mount.sub_path
        source = _inside(folder, sub_path) if sub_path else folder
        return Mount(source=source, target=mount.mount_path, read_only=mount.read_only or volume.empty_dir is None)

    async def _fill(self, pod: Pod, container: Container, volume: Volume, folder: Path) -> None:
        self._prepare_root()
        if volume.empty_dir is not None:
            _open_folder(folder)
        else:
            _write_all(folder, *await self._files(pod, container, volume))

    def _prepare_root(self) -> None:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)  # other users' way to secrets ends here

    async def _files(self, pod: Pod, container: Container, volume: Volume) -> tuple[dict[str, bytes], int]:
        if volume.config_map is not None:
            return await self._config_map(pod, volume.config_map), volume.config_map.default_mode or FILE_MODE
        if volume.secret is not None:
            source = volume.secret
            projection = SecretProjection(name=source.secret_name, items=source.items, optional=source.optional)
            return await self._secret(pod, projection), source.default_mode or FILE_MODE
        if volume.downward_api is not None:
            mode = volume.downward_api.default_mode or FILE_MODE
            return self._facts(pod, container, volume.downward_api.items), mode
        if volume.projected is not None:
            return await self._projected(pod, container, volume.projected), volume.projected.default_mode or FILE_MODE
        raise ConfigError(f'volume "{volume.name}" is of a kind that this node does not offer')

    async def _config_map(self, pod: Pod, source: ConfigMapVolumeSource | ConfigMapProjection) -> dict[str, bytes]:
        optional = bool(source.optional)
        found = await self._lookup.config_map(pod.metadata.namespace, source.name, optional=optional)
        return _chosen(found or {}, source.items, optional=optional)

    async def _secret(self, pod: Pod, source: SecretProjection) -> dict[str, bytes]:
        optional = bool(source.optional)
        found = await self._lookup.secret(pod.metadata.namespace, source.name, optional=optional)
        return _chosen(found or {}, source.items, optional=optional)

    async def _projected(self, pod: Pod, container: Container, volume: ProjectedVolumeSource) -> dict[str, bytes]:
        files: dict[str, bytes] = {}
        for source in volume.sources:
            files.update(await self._projection(pod, container, source))
        return files

    async def _projection(self, pod: Pod, container: Container, source: VolumeProjection) -> dict[str, bytes]:
        if source.config_map is not None:
            return await self._config_map(pod, source.config_map)
        if source.secret is not None:
            return await self._secret(pod, source.secret)
        if source.downward_api is not None:
            return self._facts(pod, container, source.downward_api.items)
        raise ConfigError("a projected volume has a source that this node does not offer")

    def _facts(self, pod: Pod, container: Container, items: Iterable[DownwardAPIVolumeFile]) -> dict[str, bytes]:
        return {each.path: self._fact(pod, container, each).encode() for each in items}

    def _fact(self, pod: Pod, container: Container, file: DownwardAPIVolumeFile) -> str:
        if file.field_ref is not None:
            return field(pod, file.field_ref.field_path, self._ip)
        if file.resource_field_ref is not None:
            return resource(pod, container, file.resource_field_ref, self._lookup.allocatable)
        raise ConfigError(f"file {file.path} of a downward API volume names nothing")


def _chosen(found: Mapping[str, bytes], items: Iterable[KeyToPath], *, optional: bool) -> dict[str, bytes]:
    """All keys under their own names, or the listed ones under theirs."""
    wanted = {item.path: item.key for item in items} or {key: key for key in found}
    missing = [key for key in wanted.values() if key not in found]
    if missing and not optional:
        raise ConfigError(f"references non-existent config key: {missing[0]}")
    return {path: found[key] for path, key in wanted.items() if key in found}


def _open_folder(folder: Path) -> None:
    """A container may run as any user; the umask must not narrow it."""
    folder.mkdir(parents=True)
    folder.chmod(0o777)


def _write_all(folder: Path, files: Mapping[str, bytes], mode: int) -> None:
    """Complete or absent: a start that was cut short leaves no half-filled folder behind."""
    fresh = folder.with_name(folder.name + ".new")
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir(parents=True)
    for path, content in files.items():
        _write(fresh, path, content, mode)
    fresh.rename(folder)


def _write(folder: Path, path: str, content: bytes, mode: int) -> None:
    target = folder / _relative(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_bytes(content)
    target.chmod(mode)


def _relative(path: str) -> PurePosixPath:
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise ConfigError(f"path {path} must stay inside its volume")
    return pure


def _inside(folder: Path, sub_path: str) -> Path:
    """A part of a volume. A container may have put a link there that leads out of it."""
    target = (folder / _relative(sub_path)).resolve()
    if not target.is_relative_to(folder.resolve()):
        raise ConfigError(f"subPath {sub_path} leads out of its volume")
    if not target.exists():
        _open_folder(target)
    return target
