"""Removes network namespaces that containerd has lost track of, for it was killed as it made them. The cri runtime asks.

One that is older than containerd itself has to be among those that containerd found when it started. If none of its sandboxes
has it, nothing runs in it and it leads nowhere, nobody will ever use it.
"""

import ctypes
import os
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.runtimes.linux import network_namespaces

NAMES = "cni-*"  # as containerd calls them
_USUAL = Path("/run/netns")
_DETACH = 2


def folder(config: Mapping[str, Any]) -> Path:
    """Where containerd keeps them, by its configuration; nowhere if it is another engine: those there are not its."""
    if config.get("netnsMountsUnderStateDir"):
        return Path(config.get("stateDir", ""), "netns")
    return _USUAL if "stateDir" in config else Path()


def older(folder: Path, moment: float) -> set[Path]:
    """Those that were there before that, as a file's time."""
    if not folder.is_absolute():
        return set()
    found = set()
    for path in folder.glob(NAMES):
        with suppress(OSError):
            found |= {path} if path.stat().st_ctime < moment else set()
    return found


def remove_unused(path: Path) -> bool:
    """Whether it was; blocks."""
    with suppress(OSError):
        if path.stat().st_ino in set(_used()) or network_namespaces.interfaces(str(path)) - {"lo"}:
            return False
        libc = ctypes.CDLL(None, use_errno=True)
        libc.umount2(os.fsencode(path), _DETACH)
        path.unlink()
        return True
    return False


def _used() -> Iterator[int]:
    """The networks of all processes."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError):
                yield os.stat(f"/proc/{name}/ns/net").st_ino
