"""Files of configMap, secret, downwardAPI and projected volumes: written, and later swapped, all at once.

`write` keeps them in a folder of their own that the link `..data` points to; the names that containers read are links
through it. Who follows them sees the old files or the new ones, never some of each.
"""

import os
import shutil
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from app.agent.pods.environment import ContainerConfigError

CURRENT = "..data"
_FOLDER_MODE = 0o755
_OPEN = 0o777
_READ, _WRITE, _SEARCH = 0o440, 0o660, 0o110  # what a pod's fsGroup may


class File(NamedTuple):
    """What is in it, its permissions, and its owner, if that is not the agent's user."""

    data: bytes
    mode: int
    owner: int | None = None


Files = Mapping[str, File]


def is_written(folder: Path) -> bool:
    return (folder / CURRENT).is_symlink()


def write(folder: Path, files: Files, group: int | None = None) -> bool:
    """False if they are there already, just so. `group` is the pod's fsGroup."""
    wanted = {str(relative(path)): _for_group(file, group) for path, file in files.items()}
    if _has(folder, wanted, group):
        return False
    _open_folder(folder, group)
    fresh = Path(tempfile.mkdtemp(prefix="..", dir=folder))
    _own_folder(fresh, _FOLDER_MODE, group)
    for path, file in wanted.items():
        _write(fresh, path, file, group)
    _point(folder, CURRENT, fresh.name)
    names = {PurePosixPath(path).parts[0] for path in wanted}
    for name in names:
        if not (folder / name).is_symlink():
            _point(folder, name, f"{CURRENT}/{name}")
    _clear(folder, names | {CURRENT, fresh.name})
    return True


def open_folder(folder: Path, group: int | None = None, mode: int = _OPEN) -> None:
    """One that a container may fill, as any user; the umask must not narrow it."""
    folder.mkdir(parents=True, exist_ok=True)
    if group is not None:
        os.chown(folder, -1, group)
        mode |= _WRITE | _SEARCH | stat.S_ISGID
    folder.chmod(mode)


def relative(path: str) -> PurePosixPath:
    """A path that stays inside its volume. Raises ContainerConfigError."""
    pure = PurePosixPath(path)
    if pure.is_absolute() or ".." in pure.parts or not pure.parts:
        raise ContainerConfigError(f"path {path} must stay inside its volume")
    return pure


def _for_group(file: File, group: int | None) -> File:
    return file if group is None else file._replace(mode=file.mode | _READ)


def _open_folder(folder: Path, group: int | None) -> None:
    if not folder.is_dir():
        folder.mkdir(parents=True)
        _own_folder(folder, _OPEN, group)


def _own_folder(folder: Path, mode: int, group: int | None) -> None:
    if group is not None:
        os.chown(folder, -1, group)
        mode |= _READ | _SEARCH | stat.S_ISGID
    folder.chmod(mode)


def _write(fresh: Path, path: str, file: File, group: int | None) -> None:
    target = fresh / path
    for parent in reversed(target.relative_to(fresh).parents[:-1]):
        if not (fresh / parent).is_dir():
            (fresh / parent).mkdir()
            _own_folder(fresh / parent, _FOLDER_MODE, group)
    target.write_bytes(file.data)
    if file.owner is not None or group is not None:
        os.chown(target, -1 if file.owner is None else file.owner, -1 if group is None else group)
    target.chmod(file.mode)


def _point(folder: Path, name: str, target: str) -> None:
    """Makes or moves a link; a reader finds the old or the new one."""
    passing = folder / "..passing"
    passing.unlink(missing_ok=True)
    passing.symlink_to(target)
    passing.rename(folder / name)


def _clear(folder: Path, kept: set[str]) -> None:
    """What earlier files have left. Folders that a container's subPath has made stay."""
    for path in folder.iterdir():
        if path.name in kept:
            continue
        if path.is_symlink():
            path.unlink()
        elif path.name.startswith(".."):
            shutil.rmtree(path, ignore_errors=True)


def _has(folder: Path, wanted: Files, group: int | None) -> bool:
    current = folder / CURRENT
    if not current.is_symlink():
        return False
    found = {str(Path(where, name).relative_to(current)) for where, _, names in os.walk(current) for name in names}
    return found == set(wanted) and all(_is(current / path, file, group) for path, file in wanted.items())


def _is(path: Path, file: File, group: int | None) -> bool:
    found = path.stat()
    owned = file.owner in (None, found.st_uid) and group in (None, found.st_gid)
    return owned and stat.S_IMODE(found.st_mode) == file.mode and path.read_bytes() == file.data
