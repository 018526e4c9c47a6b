"""Claims of pods on this node: from a claim to a folder that containers can mount, and the folders of Jobplane's own drivers.

`volumes` calls it for volumes with a claim; `removal` when the data of a released volume are to go. A folder of a driver is

    <base>/<handle>/data      base: the class's path, or the agent's own folder for local volumes without one

where only the agent's user can enter <handle>; the mode of data is its pods'. It is made by the first pod that mounts it, in
steps that can be repeated. A removal first renames it, so that what was half removed is never mounted again.
"""

import asyncio
import os
import stat
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from app.agent.pods.environment import ContainerConfigError, Lookup
from app.agent.volumes import mounts
from app.kinds.pod.pod import Pod
from app.kinds.pod.volume import HostPathVolumeSource, Volume
from app.kinds.pod.volume_sources import NFSVolumeSource
from app.kinds.storage.persistentvolume import (
    CSIPersistentVolumeSource,
    PersistentVolume,
    is_handle,
)
from app.kinds.storage.storageclass import LOCAL, PATH, PROVISIONERS, REQUIRE_MOUNT
from app.runtimes.linux.folder_removal import remove

DATA = "data"
_REMOVING = ".removing-"
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_PRIVATE, _OPEN, _OWN = 0o700, 0o777, 0o770
_NFS_SECONDS = 110.0  # that a server may take to answer
_NFS_OPTIONS = ("nosuid", "nodev", "retry=0")  # the agent tries again by itself

CheckHostPath = Callable[[HostPathVolumeSource], Path]


class ClaimMount(NamedTuple):
    """What a container mounts."""

    source: Path
    read_only: bool


class Owner(NamedTuple):
    """Whose the data of a volume are to be: the user of an isolated pod, or the fsGroup of any other."""

    user: int | None = None
    group: int | None = None


class ClaimFolders:
    """`local`: where volumes of the class LOCAL are if it names no path. `pods`: the agent's folders of pods, by UID."""

    def __init__(self, local: Path, pods: Path, lookup: Lookup, check_host_path: CheckHostPath) -> None:
        self._local, self._pods, self._lookup = local, pods, lookup
        self._check_host_path = check_host_path

    async def mount(self, pod: Pod, volume: Volume, owner: Owner) -> ClaimMount:
        """Find or make what the claim stands for. Raises ContainerConfigError, OSError, and what reading from the API raises."""
        source = volume.persistent_volume_claim
        name = source.claim_name if source is not None else f"{pod.metadata.name}-{volume.name}"
        found = await self._lookup.volume_of_claim(pod, name)
        wants_read_only = bool(source is not None and source.read_only)
        return await self._mount(pod, volume.name, found, owner, wants_read_only)

    async def _mount(self, pod: Pod, name: str, volume: PersistentVolume, owner: Owner, read_only: bool) -> ClaimMount:
        spec = volume.spec
        if spec.volume_mode == "Block":
            raise ContainerConfigError(
                f"volume {volume.metadata.name} is a block device, which this node does not mount"
            )
        if spec.csi is not None:
            folder = await asyncio.to_thread(self.make, spec.csi, pod.metadata.uid, owner)
            return ClaimMount(folder, read_only or spec.csi.read_only)
        if spec.host_path is not None:
            return ClaimMount(self._check_host_path(spec.host_path), read_only)
        if spec.local is not None:
            return ClaimMount(_local_folder(spec.local.path), read_only)
        if spec.nfs is not None:
            target = self._pods / pod.metadata.uid / name
            await _mount_nfs(spec.nfs, target, spec.mount_options)
            return ClaimMount(target, read_only or spec.nfs.read_only)
        raise ContainerConfigError(f"this node has no driver for volume {volume.metadata.name}")

    # Folders of Jobplane's drivers

    def base_of(self, source: CSIPersistentVolumeSource) -> Path:
        """The folder that has those of the volumes. Raises ContainerConfigError if it cannot be used now."""
        if source.driver not in PROVISIONERS:
            raise ContainerConfigError(f"driver name {source.driver} not found in the list of registered CSI drivers")
        if not is_handle(source.volume_handle):
            raise ContainerConfigError(f"bad volumeHandle {source.volume_handle}")
        path = source.volume_attributes.get(PATH)
        if path is None and source.driver == LOCAL:
            self._local.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
            return self._local
        if path is None:
            raise ContainerConfigError("the volume names no path: its StorageClass needs the parameter path")
        base = Path(path)
        if not base.is_dir():
            raise ContainerConfigError(f"folder {base} does not exist on this node: mount it, or make it")
        needs_mount = source.driver != LOCAL and source.volume_attributes.get(REQUIRE_MOUNT) != "false"
        if needs_mount and not _is_on_mount(base):
            raise ContainerConfigError(
                f"no file system is mounted at {base} on this node: mount it, or use a StorageClass with the parameter "
                'requireMount: "false"'
            )
        return base

    def make(self, source: CSIPersistentVolumeSource, pod_uid: str, owner: Owner) -> Path:
        """The folder with a volume's data, for a pod; a missing one is made. Raises ContainerConfigError, OSError."""
        base = self.base_of(source)
        self._note_use(pod_uid, source.volume_handle)
        top = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            outer = _open_or_make(top, source.volume_handle, _PRIVATE)
            try:
                inner = _open_or_make(outer, DATA, _PRIVATE)
                try:
                    _give(inner, owner)
                finally:
                    os.close(inner)
            finally:
                os.close(outer)
        finally:
            os.close(top)
        return base / source.volume_handle / DATA

    def _note_use(self, pod_uid: str, handle: str) -> None:
        """It lasts until the pod has been cleared away here, across restarts of the agent."""
        self._pods.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
        marks = self._pods / pod_uid / CLAIMS
        marks.mkdir(parents=True, exist_ok=True)
        (marks / handle).touch()

    def is_used(self, handle: str) -> bool:
        """Return whether a pod that has not been cleared away here has mounted the volume."""
        return is_handle(handle) and any(self._pods.glob(f"*/{CLAIMS}/{handle}"))

    def remove(self, source: CSIPersistentVolumeSource) -> None:
        """Remove a volume's data; fine if there are none. Links are removed, not followed. Takes a while: blocks.

        Raises ContainerConfigError, OSError: then they are still there, or in part.
        """
        base = self.base_of(source)
        doomed = f"{_REMOVING}{source.volume_handle}"
        top = os.open(base, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if os.path.lexists(base / doomed):  # an earlier removal was interrupted
                _remove(base / doomed)
            with suppress(FileNotFoundError):
                os.rename(source.volume_handle, doomed, src_dir_fd=top, dst_dir_fd=top)
                _remove(base / doomed)
        finally:
            os.close(top)


CLAIMS = ".claims"


def _remove(folder: Path) -> None:
    remove([folder])
    if os.path.lexists(folder):
        raise ContainerConfigError(f"cannot delete all of {folder}: see the agent's log")


def _open_or_make(parent: int, name: str, mode: int) -> int:
    """A folder in a folder, opened without following a link."""
    with suppress(FileExistsError):
        os.mkdir(name, mode, dir_fd=parent)
    return os.open(name, _FOLDER, dir_fd=parent)


def _give(folder: int, owner: Owner) -> None:
    """Let the volume's pods write: those of one user, of one group, or, behind the private folder around it, of any."""
    found = os.fstat(folder)
    if owner.user is not None:
        if found.st_uid != owner.user:
            os.fchown(folder, owner.user, owner.user)
            os.fchmod(folder, _OWN)
        return
    if owner.group is not None and found.st_gid != owner.group:
        os.fchown(folder, -1, owner.group)
        os.fchmod(folder, _OPEN | stat.S_ISGID)
    elif stat.S_IMODE(found.st_mode) == _PRIVATE and found.st_uid == os.geteuid():
        os.fchmod(folder, _OPEN)


def _is_on_mount(path: Path) -> bool:
    """Return whether it is, or is below, a file system that was mounted below /."""
    real = path.resolve()
    return any(os.path.ismount(each) for each in (real, *real.parents) if each != Path("/"))


def _local_folder(text: str) -> Path:
    path = Path(text)
    if not path.is_absolute() or ".." in path.parts:
        raise ContainerConfigError(f"local volume {text} is not an absolute path")
    if not path.exists():
        raise ContainerConfigError(f'path "{text}" of a local volume does not exist on this node')
    return path


async def _mount_nfs(source: NFSVolumeSource, target: Path, options: tuple[str, ...]) -> None:
    """By mount(8), which needs root and the NFS client's programs. The pod's cleanup unmounts it."""
    if target.is_dir() and mounts.is_mounted(target):
        return
    target.parent.parent.mkdir(mode=_PRIVATE, parents=True, exist_ok=True)
    target.mkdir(parents=True, exist_ok=True)
    what = f"{source.server}:{source.path}"
    words = ("mount", "-t", "nfs", "-o", ",".join((*_NFS_OPTIONS, *options)), "--", what, str(target))
    try:
        made = await asyncio.create_subprocess_exec(
            *words, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.DEVNULL, stderr=asyncio.subprocess.PIPE
        )
    except OSError as error:
        raise ContainerConfigError(f"cannot mount {what}: {error}") from error
    try:
        async with asyncio.timeout(_NFS_SECONDS):
            _, said = await made.communicate()
    except TimeoutError as error:
        made.kill()
        await made.wait()
        raise ContainerConfigError(f"cannot mount {what}: the server does not answer") from error
    if made.returncode:
        raise ContainerConfigError(f"cannot mount {what}: {said.decode(errors='replace').strip()[:300]}")
