"""subPath of a volume, resolved without leaving the volume, whatever links its containers have made or are making.

The part is first looked up with links followed, then opened step by step without following any, and what was opened is
mounted at a place of the agent's: the name is never looked up again.
"""

import os
import stat
from contextlib import suppress
from pathlib import Path

from app.agent.pods.environment import ContainerConfigError
from app.agent.volumes import mounts
from app.agent.volumes.files import relative

_STEP = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC


def open_sub_path(volume: Path, sub_path: str) -> int:
    """A descriptor of the part; a missing one is made, as a folder like the volume. Raises ContainerConfigError, OSError."""
    top = Path(os.path.realpath(volume))
    target = Path(os.path.realpath(top / relative(sub_path)))
    if not target.is_relative_to(top):
        raise ContainerConfigError(f"subPath {sub_path} leads out of its volume")
    fd = os.open(top, _STEP)
    try:
        mode = stat.S_IMODE(os.fstat(fd).st_mode)
        for part in target.relative_to(top).parts:
            inner = _step(fd, part, mode)
            os.close(fd)
            fd = inner
            if stat.S_ISLNK(os.fstat(fd).st_mode):
                raise ContainerConfigError(f"subPath {sub_path} was changed to a link meanwhile")
    except BaseException:
        os.close(fd)
        raise
    return fd


def bind_sub_path(fd: int, target: Path) -> Path:
    """Mounts what was opened, unless it is there from an earlier start. Raises NotAllowedError, OSError."""
    if mounts.is_mounted(target):
        if os.path.samestat(os.fstat(fd), target.stat()):
            return target
        mounts.unmount_below(target)
    _place(target, is_folder=stat.S_ISDIR(os.fstat(fd).st_mode))
    mounts.bind(fd, target)
    return target


def path_of(fd: int) -> Path:
    return Path(os.readlink(f"/proc/self/fd/{fd}"))


def _step(fd: int, part: str, mode: int) -> int:
    try:
        return os.open(part, _STEP, dir_fd=fd)
    except FileNotFoundError:
        with suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=fd)
    made = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=fd)
    try:
        os.fchmod(made, mode)
    finally:
        os.close(made)
    return os.open(part, _STEP, dir_fd=fd)


def _place(target: Path, *, is_folder: bool) -> None:
    """Something of the same kind to mount upon."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir() != is_folder and target.exists():
        target.rmdir() if target.is_dir() else target.unlink()
    if is_folder:
        target.mkdir(exist_ok=True)
    else:
        target.touch()
