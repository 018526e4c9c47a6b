"""Mounts of plain processes: arguments by which bubblewrap shows the host as it is, plus the mounts. Called by `launch`.

The process runtime calls it for containers that have mounts. Nothing is made on the host: where a target does not
exist, the folder that it would be in is replaced, for this container only, by a new one that shows all that was there.
"""

import os
import stat
import subprocess
from collections.abc import Sequence
from pathlib import Path

from app.runtimes.base import Mount, StartError
from app.runtimes.process import isolation
from app.runtimes.process.isolation import View

ENTRIES_LIMIT = 512  # a folder with more of them is not worth rebuilding for every start
_PATIENCE = 60  # seconds: a host that is busy is none that refuses
_TRIES = 5
_NOT_REBUILT = ("/dev", "/proc", "/sys")


def usable(program: str) -> bool:
    """Return whether this host lets us have mounts of our own; it needs privileges or user namespaces.

    Tried more than once: bubblewrap fails when one of the host's mounts goes away while it copies them all.
    """
    return any(_works(program) for _ in range(_TRIES))


def _works(program: str) -> bool:
    try:
        tried = subprocess.run(
            [program, "--dev-bind", "/", "/", "true"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_PATIENCE,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return False
    return tried.returncode == 0


def arguments(
    mounts: Sequence[Mount], devices: Sequence[str] = (), *, read_only: bool = False, view: View | None = None
) -> list[str]:
    """bubblewrap's arguments for these mounts; outer targets come before inner ones. Raises StartError.

    read_only: all of the host is, but for the mounts, these devices, and /dev.
    view:      of an isolated container.
    """
    ordered = sorted(((target_on_host(mount), mount) for mount in mounts), key=lambda pair: pair[0].count("/"))
    if view:
        isolation.check_nesting(view, mounts)
    made: list[str] = isolation.replaced(view, mounts) if view else []
    missing = []
    for target, _ in ordered:
        if not os.path.lexists(target) and not any(_is_under(target, outer) for outer in made):
            missing.append(target)
        made.append(target)
    rebuilt = sorted({_nearest_folder(target) for target in missing})
    result = _host(rebuilt, read_only=read_only)
    for device in devices:
        result += ["--dev-bind", device, device]
    result += isolation.arguments(view, mounts) if view else []
    own = [*rebuilt, *(isolation.replaced(view, mounts) if view else [])]  # folders in which mount points are made
    for target, mount in ordered:
        result += _parents(target, own)
        own.append(target)
        result += ["--ro-bind" if mount.read_only else "--dev-bind", str(mount.source), target]
    for folder in rebuilt if read_only else ():
        result += ["--remount-ro", folder]
    return result + (isolation.last_arguments(view) if view else [])


def hostname_arguments(name: str) -> list[str]:
    """bubblewrap's arguments for a host name of its own; none for an ordinary user, who would need a user namespace."""
    return ["--unshare-uts", "--hostname", name] if name and os.geteuid() == 0 else []


def _parents(target: str, own: Sequence[str]) -> list[str]:
    """Folders on the way to a target, which bubblewrap would make for root alone."""
    bases = [each for each in own if _is_under(target, each) and each != target]
    if not bases:
        return []
    base = max(bases, key=len)
    way = [str(each) for each in reversed(Path(target).parents) if _is_under(str(each), base) and str(each) != base]
    return [part for folder in way for part in ("--perms", "0755", "--dir", folder)]


def target_on_host(mount: Mount) -> str:
    """Return where the target really is, links followed. Raises StartError."""
    if not os.path.isabs(mount.target) or os.path.normpath(mount.target) == "/":
        raise StartError(f'cannot mount at "{mount.target}": not an absolute path below /')
    if not mount.source.exists():
        raise StartError(f'cannot mount "{mount.source}": no such file or directory')
    return os.path.realpath(mount.target)


def host_path(path: str, mounts: Sequence[Mount]) -> str:
    """Return where on the host a path of the container is."""
    for mount in sorted(mounts, key=lambda each: -len(each.target)):
        target = os.path.normpath(mount.target)
        if _is_under(path, target):
            return os.path.normpath(os.path.join(mount.source, os.path.relpath(path, target)))
    return path


def _host(rebuilt: Sequence[str], *, read_only: bool) -> list[str]:
    """The whole host, with new folders in the place of those in `rebuilt` (outer ones first)."""
    result = [] if "/" in rebuilt else ["--ro-bind" if read_only else "--dev-bind", "/", "/"]
    if read_only and "/" not in rebuilt:
        result += ["--dev-bind", "/dev", "/dev"]
    for folder in rebuilt:
        if folder != "/":
            result += ["--perms", f"{stat.S_IMODE(os.stat(folder).st_mode):04o}", "--tmpfs", folder]
        result += _entries(folder, read_only=read_only)
    return result


def _entries(folder: str, *, read_only: bool) -> list[str]:
    result: list[str] = []
    names = os.listdir(folder)
    if len(names) > ENTRIES_LIMIT:
        raise StartError(f'cannot mount in "{folder}": it has more than {ENTRIES_LIMIT} entries')
    for name in sorted(names):
        path = Path(folder, name)
        if path.is_symlink():
            result += ["--symlink", os.readlink(path), str(path)]
        else:
            is_read_only = read_only and str(path) != "/dev"
            result += ["--ro-bind-try" if is_read_only else "--dev-bind-try", str(path), str(path)]
    return result


def _nearest_folder(target: str) -> str:
    """The deepest folder above the target that the host has. Raises StartError."""
    folder = os.path.dirname(target)
    while not os.path.isdir(folder):
        if os.path.lexists(folder):
            raise StartError(f'cannot mount at "{target}": "{folder}" is not a directory')
        folder = os.path.dirname(folder)
    if any(_is_under(folder, special) for special in _NOT_REBUILT):
        raise StartError(
            f'cannot mount at "{target}": it does not exist on this host, and "{folder}" belongs to the kernel'
        )
    return folder


def _is_under(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")
