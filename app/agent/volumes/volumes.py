"""Volumes of pods on this node, folders of the agent: made for a start, refreshed, and removed with the pod.

Folders live as long as the pod, and are found again by the next agent. Names come from the API and are checked again
here: nothing outside the root is touched, but for hostPath. Below a pod's folder:

    <volume>                 emptyDir (with medium Memory: a tmpfs mounted here) and volumes of files
    .parts/<container>-<n>   what the container's n-th mount shows by its subPath, mounted here
    .claims/<handle>         a mark: the pod has mounted a volume of Jobplane's drivers, which are elsewhere (`claims`)
"""

import asyncio
import os
import re
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import msgspec

from app.agent.clock import Clock, WallClock
from app.agent.pods.environment import ContainerConfigError, Lookup, VolumeError, expand
from app.agent.volumes import files, sub_paths
from app.agent.volumes import mounts as volume_mounts
from app.agent.volumes.claims import ClaimFolders, ClaimMount, Owner
from app.agent.volumes.mounts import NotAllowedError
from app.agent.volumes.sources import ServiceAccountTokens, VolumeSources, fs_group, holds_files
from app.kinds.pod.container import Container
from app.kinds.pod.pod import Pod
from app.kinds.pod.volume import EmptyDirVolumeSource, HostPathVolumeSource, Volume, VolumeMount
from app.machinery import quantity
from app.machinery.errors import ApiError
from app.runtimes.base import Mount, Sandbox
from app.runtimes.linux.folder_removal import remove
from app.structured_logging import Logger

MEMORY = "Memory"
_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9-]{0,251}[A-Za-z0-9])?")
_PARTS = ".parts"
REFRESH_PERIOD = 45.0  # seconds between one look at all files and the next: changes arrive within a minute
_FOLDER_MODE, _FILE_MODE = 0o755, 0o644
_HOST_PATH_TYPES: Mapping[str, tuple[Callable[[int], bool], str]] = {
    "Directory": (stat.S_ISDIR, "a directory"),
    "File": (stat.S_ISREG, "a file"),
    "Socket": (stat.S_ISSOCK, "a socket file"),
    "CharDevice": (stat.S_ISCHR, "a character device"),
    "BlockDevice": (stat.S_ISBLK, "a block device"),
}
_OR_CREATE = "OrCreate"
_NOT_MOUNTED = ("/proc", "/sys", "/dev", "/tmp", "/var/tmp")  # noqa: S108 - isolated pods have their own
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH

logger = Logger(__name__)


class EmptyDir(NamedTuple):
    """One of a pod's: its folder, and how much it may hold, as it was given."""

    name: str
    folder: Path
    limit: str
    in_memory: bool


class Volumes:
    """All pods' volumes under one root: `root/<pod uid>/<volume name>`.

    isolated: containers see nothing of the host but what they are given, so nothing may lead them out of it.
    private:  folders of the agent, which no pod of a namespace that is not privileged may mount.
    local:    where claims of this node's own disk are; beside the root unless told otherwise.
    """

    def __init__(
        self,
        root: Path,
        ip: str,
        lookup: Lookup,
        clock: Clock | None = None,
        *,
        isolated: bool = False,
        private: Sequence[Path] = (),
        local: Path | None = None,
    ) -> None:
        self._private = (root, *private)
        self._owners: dict[str, Sandbox] = {}  # of isolated pods
        self._root, self._isolated, self._ip, self._lookup = root, isolated, ip, lookup
        self._tokens = ServiceAccountTokens(lookup, clock or WallClock())
        self._sources = VolumeSources(ip, lookup, self._tokens)
        self.claims = ClaimFolders(local or root.parent / "claims", root, lookup, check_host_path)
        self._claimed: dict[tuple[str, str], ClaimMount] = {}  # by pod and volume

    def set_owner(self, sandbox: Sandbox) -> None:
        """Makes the volumes of an isolated pod its user's."""
        if sandbox.is_isolated:
            self._owners[sandbox.pod_uid] = sandbox

    def _group(self, pod: Pod) -> int | None:
        owner = self._owners.get(pod.metadata.uid)
        return fs_group(pod) if owner is None else owner.user

    async def mounts(self, pod: Pod, container: Container, env: Mapping[str, str]) -> tuple[Mount, ...]:
        """Prepares what the pod mounts, and tells what this container does. Raises ContainerConfigError, VolumeError for one."""
        if not pod.spec.volumes:
            _check_names(container, {})
            return ()
        volumes = {volume.name: volume for volume in _mounted_volumes(pod)}
        for volume in volumes.values():
            await self._prepare(pod, volume)
        _check_names(container, volumes)
        return tuple(
            self._mount(pod, f"{container.name}-{index}", volumes[mount.name], mount, env)
            for index, mount in enumerate(container.volume_mounts)
        )

    def sources_once(self) -> VolumeSources:
        """For one round of `refresh`: what many pods' volumes are made of is read once."""
        return VolumeSources(self._ip, self._lookup.with_cache(), self._tokens)

    async def refresh(self, pod: Pod, sources: VolumeSources) -> bool:
        """Writes what has changed in volumes of files that are there; whether anything has."""
        changed = False
        for volume in _mounted_volumes(pod):
            folder = self._folder(pod.metadata.uid, volume.name)
            if holds_files(volume) and files.is_written(folder):
                changed |= files.write(folder, await sources.files(pod, volume), self._group(pod))
        return changed

    def empty_dirs(self, pod: Pod) -> Iterator[EmptyDir]:
        for volume in _mounted_volumes(pod):
            source = volume.empty_dir
            if source is not None:
                folder = self._folder(pod.metadata.uid, volume.name)
                yield EmptyDir(volume.name, folder, str(source.size_limit or ""), source.medium == MEMORY)

    async def remove(self, uid: str) -> None:
        """Raises OSError if something stays mounted; then nothing is deleted."""
        self._tokens.forget(uid)
        self._owners.pop(uid, None)
        for key in [key for key in self._claimed if key[0] == uid]:
            del self._claimed[key]
        folder = self._folder(uid)
        if folder.exists():
            await asyncio.to_thread(_delete, folder)

    def uids(self) -> set[str]:
        """Pods that have left something here."""
        return {path.name for path in self._root.iterdir()} if self._root.is_dir() else set()

    def _folder(self, *names: str) -> Path:
        if not all(_NAME.fullmatch(name) for name in names):
            raise ContainerConfigError(f"bad name of a volume: {'/'.join(names)}")
        return self._root.joinpath(*names)

    async def _prepare(self, pod: Pod, volume: Volume) -> None:
        try:
            folder = self._folder(pod.metadata.uid, volume.name)
            if volume.empty_dir is not None:
                self._prepare_empty(folder, volume.empty_dir, self._group(pod))
            elif volume.host_path is not None:
                self._check_host_path(pod, volume.host_path)
            elif volume.persistent_volume_claim is not None or volume.ephemeral is not None:
                owner = self._owners.get(pod.metadata.uid)
                whose = Owner(group=fs_group(pod)) if owner is None else Owner(user=owner.user)
                key = pod.metadata.uid, volume.name
                self._claimed[key] = await self.claims.mount(pod, volume, whose)
            elif not holds_files(volume):
                raise ContainerConfigError(f"this node has no driver for volumes of kind {_kind(volume)}")
            elif not files.is_written(folder):
                self._prepare_root()
                files.write(folder, await self._sources.files(pod, volume), self._group(pod))
        except ConnectionError:
            raise  # the API cannot be reached: that says nothing of the volume
        except (ContainerConfigError, OSError) as error:
            raise VolumeError(volume.name, _reason(error)) from error

    def _prepare_empty(self, folder: Path, source: EmptyDirVolumeSource, group: int | None) -> None:
        if source.medium not in ("", MEMORY):
            raise ContainerConfigError(f"this node has no medium {source.medium}")
        in_memory = source.medium == MEMORY
        if folder.is_dir() and (not in_memory or volume_mounts.is_mounted(folder)):
            return
        self._prepare_root()
        folder.mkdir(parents=True, exist_ok=True)
        if in_memory:
            volume_mounts.mount_memory(folder, quantity.value(source.size_limit) if source.size_limit else None)
        files.open_folder(folder, group)

    def _prepare_root(self) -> None:
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)  # other users' way to secrets ends here

    def _mount(self, pod: Pod, part: str, volume: Volume, mount: VolumeMount, env: Mapping[str, str]) -> Mount:
        if mount.mount_propagation not in ("", "None"):
            raise ContainerConfigError(
                f'mountPropagation {mount.mount_propagation} of volume "{volume.name}" is not supported'
            )
        if mount.recursive_read_only == "Enabled":
            raise ContainerConfigError(f'recursiveReadOnly of volume "{volume.name}" is not supported')
        of_host = volume.host_path
        claimed = self._claimed.get((pod.metadata.uid, volume.name))
        if claimed is not None:
            source = claimed.source
        else:
            source = self._check_host_path(pod, of_host) if of_host else self._folder(pod.metadata.uid, volume.name)
        sub_path = expand(mount.sub_path_expr, env) or mount.sub_path
        if sub_path:
            source = self._part(pod, part, source, sub_path, trusted=holds_files(volume))
        read_only = mount.read_only or holds_files(volume) or (claimed is not None and claimed.read_only)
        return Mount(source=source, target=mount.mount_path, read_only=read_only)

    def _check_host_path(self, pod: Pod, source: HostPathVolumeSource) -> Path:
        owner = self._owners.get(pod.metadata.uid)
        if owner is None:
            path = check_host_path(source)
            if self._isolated and not os.access(path, os.R_OK):
                raise ContainerConfigError(f"hostPath {source.path} is closed to the agent's user ({os.geteuid()})")
            return path
        return check_open_host_path(source, owner, self._private)

    def _part(self, pod: Pod, part: str, volume: Path, sub_path: str, *, trusted: bool) -> Path:
        """`trusted`: only the agent writes to the volume."""
        place = self._folder(pod.metadata.uid) / _PARTS / part
        try:
            fd = sub_paths.open_sub_path(volume, sub_path)
            try:
                return self._bind(fd, place, trusted=trusted)
            finally:
                os.close(fd)
        except (ContainerConfigError, OSError) as error:
            raise ContainerConfigError(
                f'failed to prepare subPath "{sub_path}" of a volume: {_reason(error)}'
            ) from error

    def _bind(self, fd: int, place: Path, *, trusted: bool) -> Path:
        try:
            self._prepare_root()
            return sub_paths.bind_sub_path(fd, place)
        except NotAllowedError:
            if self._isolated and not trusted:
                raise  # until the engine looks it up, its name may lead somewhere else
            return sub_paths.path_of(fd)


class VolumeRefresh:
    """Files of volumes follow the objects that they are made of. `pods` gives those that run here."""

    def __init__(self, volumes: Volumes, pods: Callable[[], Iterable[Pod]], clock: Clock) -> None:
        self._volumes, self._pods, self._clock = volumes, pods, clock

    async def run(self) -> None:
        while True:
            await self._clock.sleep(REFRESH_PERIOD)
            await self.refresh()

    async def refresh(self) -> None:
        """Once. A pod that fails is logged, and tried again the next time."""
        sources = self._volumes.sources_once()
        for pod in [pod for pod in self._pods() if pod.spec.volumes]:
            try:
                await self._volumes.refresh(pod, sources)
            except (ContainerConfigError, ApiError, OSError) as error:
                name = f"{pod.metadata.namespace}/{pod.metadata.name}"
                logger.warning("cannot refresh the volumes of a pod; retrying", pod=name, error=error)


def _mounted_volumes(pod: Pod) -> list[Volume]:
    """Volumes that some container mounts; others are not even made."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    names = {mount.name for container in containers for mount in container.volume_mounts}
    return [volume for volume in pod.spec.volumes if volume.name in names]


def check_host_path(source: HostPathVolumeSource) -> Path:
    """The path, if it is of the type that is asked for. Raises ContainerConfigError, OSError."""
    path = Path(source.path)
    if not path.is_absolute() or ".." in path.parts:
        raise ContainerConfigError(f"hostPath {source.path} is not an absolute path")
    if not path.exists():
        _make_host_path(path, source.type)
    if source.type:
        is_right, what = _HOST_PATH_TYPES[source.type.removesuffix(_OR_CREATE)]
        if not path.exists() or not is_right(path.stat().st_mode):
            raise ContainerConfigError(f"hostPath type check failed: {source.path} is not {what}")
    return path


def check_open_host_path(source: HostPathVolumeSource, owner: Sandbox, private: Sequence[Path]) -> Path:
    """The path of an isolated pod, links followed, if any user could reach it without the agent's rights.

    Only root may be able to change where it leads, as it is mounted later. Nothing is made. Raises ContainerConfigError, OSError.
    """
    refusal = f"hostPath {source.path} needs a privileged namespace on this node's runtime"
    if owner.user is None:
        raise ContainerConfigError(refusal)
    path = Path(
        os.path.realpath(check_host_path(HostPathVolumeSource(path=source.path, type=_existing(source))), strict=True)
    )
    own = (each.resolve() for each in (*private, *map(Path, _NOT_MOUNTED)))
    if any(path.is_relative_to(each) or each.is_relative_to(path) for each in own):
        raise ContainerConfigError(refusal)
    for folder in path.parents:
        found = folder.stat()
        if found.st_uid != 0 or found.st_mode & _OTHERS_WRITE or not found.st_mode & stat.S_IXOTH:
            raise ContainerConfigError(f"{refusal}: {folder} is not open to all, or not root's alone to change")
    return path


def _existing(source: HostPathVolumeSource) -> str:
    """The type, without making anything."""
    if not os.path.exists(source.path):
        raise ContainerConfigError(f"hostPath type check failed: {source.path} does not exist")
    return source.type.removesuffix(_OR_CREATE)


def _make_host_path(path: Path, kind: str) -> None:
    """Without a type, engines make a missing folder; so it is done here, for all runtimes alike."""
    if kind in ("", "DirectoryOrCreate"):
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(_FOLDER_MODE)
    elif kind == "FileOrCreate":
        os.close(os.open(path, os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_WRONLY, _FILE_MODE))
        path.chmod(_FILE_MODE)


def _check_names(container: Container, volumes: Iterable[str]) -> None:
    for mount in container.volume_mounts:
        if mount.name not in volumes:
            raise ContainerConfigError(f'volume "{mount.name}" is not defined')


def _kind(volume: Volume) -> str:
    """The field that it is given by."""
    return next((name for name in msgspec.to_builtins(volume) if name != "name"), "that is not known")


def _reason(error: Exception) -> str:
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror}" if error.filename else error.strerror or str(error)
    return str(error)


def _delete(folder: Path) -> None:
    volume_mounts.unmount_below(folder)
    with suppress(RecursionError):  # folders in folders, thousands deep
        shutil.rmtree(folder, ignore_errors=True)
    if folder.exists():
        remove([folder])
