"""Home folder of a pod, and the file for its termination message, as the user of a container finds them.

Containers that run as the agent's user share the one folder of their pod. Any other user has one of its own, and is let
through the agent's folders without seeing what is in them. Where the agent's folders themselves are out of its reach, as
in root's home, both are mounted elsewhere for it.
"""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from app.runtimes.base import Mount, StartError
from app.runtimes.process.files import Folder

ELSEWHERE, MESSAGE_ELSEWHERE = "/home/jobplane", "/home/.jobplane-termination-log"
_PASSAGE = 0o711


@dataclass(frozen=True, kw_only=True)
class Home:
    """Paths as the container sees them, and what has to be mounted for that."""

    path: str
    message: str
    mounts: Sequence[Mount] = ()


def of_agent(folder: Folder, home: Path, *, read_only: bool) -> Home:
    """`read_only`: the whole host is, so that the message needs a way out."""
    message = folder.path / "message"
    if read_only:
        folder.write("message", b"")
    mounts = [Mount(source=message, target=str(message))] if read_only else []
    return Home(path=str(home), message=str(message), mounts=mounts)


def of_user(folder: Folder, home: Path, owner: tuple[int, int], *, read_only: bool) -> Home:
    """Raises StartError, OSError."""
    own, message = home.with_name(f"{home.name}-{owner[0]}"), folder.path / "message"
    own.mkdir(mode=0o700, exist_ok=True)
    os.chown(own, *owner)
    folder.write("message", b"")
    os.chown(message, *owner, follow_symlinks=False)
    for passage in (folder.root, home.parent, folder.path):
        passage.chmod(_PASSAGE)
    if all(_lets_through(each, owner) for each in folder.root.parents):
        mounts = [Mount(source=message, target=str(message))] if read_only else []
        return Home(path=str(own), message=str(message), mounts=mounts)
    return _mounted_elsewhere(folder, own, read_only=read_only)


def of_isolated(folder: Folder, home: Path, owner: tuple[int, int] | None, *, read_only: bool) -> Home:
    """For a container that does not see the agent's folders. `owner`: None for the agent's user. Raises OSError."""
    folder.write("message", b"")
    if owner is not None:
        os.chown(home, *owner)
        os.chown(folder.path / "message", *owner, follow_symlinks=False)
    return _mounted_elsewhere(folder, home, read_only=read_only)


def _mounted_elsewhere(folder: Folder, own: Path, *, read_only: bool) -> Home:
    mounts = [
        Mount(source=own, target=ELSEWHERE, read_only=read_only),
        Mount(source=folder.path / "message", target=MESSAGE_ELSEWHERE),
    ]
    return Home(path=ELSEWHERE, message=MESSAGE_ELSEWHERE, mounts=mounts)


def check_mountable(home: Home, owner: tuple[int, int] | None, bubblewrap: str) -> None:
    """Raises StartError."""
    if owner is not None and home.path == ELSEWHERE and not bubblewrap:
        raise StartError(
            f"user {owner[0]} cannot reach the agent's folders: install bubblewrap, "
            "or let the agent keep its data where all may pass (JOBPLANE_DATA_DIR)"
        )


def _lets_through(folder: Path, owner: tuple[int, int]) -> bool:
    found = folder.stat()
    if found.st_uid == owner[0]:
        return bool(found.st_mode & stat.S_IXUSR)
    if found.st_gid == owner[1]:
        return bool(found.st_mode & stat.S_IXGRP)
    return bool(found.st_mode & stat.S_IXOTH)
