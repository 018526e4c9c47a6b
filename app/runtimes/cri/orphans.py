"""Orphans of containerd: what it has lost track of, because it was killed while it made or removed it. Called by the cri runtime.

What is younger than containerd itself is left alone: it may be just about to be made. Of an engine whose process is not seen
from here, or that does not tell where it keeps what, nothing is removed that this has to be known for.

A shim or network namespace that is older than containerd itself has to be one that containerd found when it started. If none of
its sandboxes has it, none ever will, and it would stay for ever: it is removed. When a shim is killed, containerd clears away
what it knows of it. A namespace also must have no process and lead nowhere.
"""

import asyncio
import ctypes
import os
import signal
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.runtimes.base import Unsupported
from app.runtimes.cri.containers import Containers
from app.runtimes.cri.engine import Engine
from app.runtimes.cri.sandboxes import Sandboxes
from app.runtimes.engine.errors import EngineError
from app.runtimes.engine.orphan_cgroups import Rubbish
from app.runtimes.engine.shims import is_older, shims, started_at
from app.runtimes.linux import network_namespaces
from app.runtimes.process import process_table
from app.structured_logging import Logger

_NETWORKS = "cni-*"  # as containerd calls network namespaces
_USUAL = Path("/run/netns")
_DETACH = 2


def networks_folder(config: Mapping[str, Any]) -> Path:
    """Folder of containerd's network namespaces, by its configuration; an empty path for any other engine."""
    if config.get("netnsMountsUnderStateDir"):
        return Path(config.get("stateDir", ""), "netns")
    return _USUAL if "stateDir" in config else Path()


def older_networks(folder: Path, moment: float) -> set[Path]:
    """Network namespaces that were there before `moment`, in seconds since 1970."""
    if not folder.is_absolute():
        return set()
    found = set()
    for path in folder.glob(_NETWORKS):
        with suppress(OSError):
            found |= {path} if path.stat().st_ctime < moment else set()
    return found


def remove_unused_network(path: Path) -> bool:
    """Remove a network namespace that no process is in and that leads nowhere; True if it was one. Blocks."""
    with suppress(OSError):
        if path.stat().st_ino in set(_used()) or network_namespaces.interfaces(str(path)) - {"lo"}:
            return False
        libc = ctypes.CDLL(None, use_errno=True)
        libc.umount2(os.fsencode(path), _DETACH)
        path.unlink()
        return True
    return False


def _used() -> Iterator[int]:
    """Inodes of the network namespaces of all processes."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError):
                yield os.stat(f"/proc/{name}/ns/net").st_ino


NAMESPACE = "k8s.io"


def end_lost_shims(started: float, address: str, known: Collection[str]) -> int:
    """Kill shims that containerd has lost track of; how many. `started`: when containerd was; `known`: ids of all it has."""
    place = (os.path.realpath(address), NAMESPACE)
    ours = [each for each in shims() if (each.address, each.namespace) == place]
    lost = [each.pid for each in ours if each.id not in known and is_older(each.pid, started)]
    for pid in lost:
        process_table.kill(pid, signal.SIGKILL)
    return len(lost)


_BUNDLES = "io.containerd.runtime.v2.task"  # below containerd's own folder
_RUNC = "/run/containerd/runc"  # unless it is configured otherwise; whatever containerd's own folder is

logger = Logger(__name__)


class Leftovers:
    """Shims, network namespaces, cgroups and runc's folders, whoever's pods they were for."""

    def __init__(self, engine: Engine, sandboxes: Sandboxes, containers: Containers) -> None:
        self._engine, self._sandboxes, self._containers = engine, sandboxes, containers
        self._config: Mapping[str, Any] | None = None
        self._known_networks: set[Path] = set()  # that have been looked at
        self._rubbish = Rubbish()

    async def remove(self) -> None:
        """Raises ConnectionError, EngineError."""
        process, path = self._engine.process
        if not process:
            return
        known = await self._sandboxes.ids() | await self._containers.ids()
        started = started_at(process)
        if started is None:  # what is known is another's answer
            return
        if lost := await asyncio.to_thread(end_lost_shims, started, path, known):
            logger.warning("ended orphaned shims of the container engine", count=lost)
        if self._config is None:
            self._config = await self._engine.config()
        await self._remove_networks(started, networks_folder(self._config))
        await self._remove_rubbish(process, started, known, self._config)

    async def _remove_networks(self, started: float, folder: Path) -> None:
        older = await asyncio.to_thread(older_networks, folder, started)
        unclear = older - self._known_networks
        if not unclear:
            return
        with suppress(Unsupported, EngineError):  # it does not say which it knows, or we may not look into them
            for path in unclear - await self._sandboxes.networks():
                if await asyncio.to_thread(remove_unused_network, path):
                    logger.warning("removed an orphaned network namespace of the container engine", path=str(path))
            self._known_networks = older

    async def _remove_rubbish(
        self, process: int, started: float, known: Collection[str], config: Mapping[str, Any]
    ) -> None:
        roots = {root for root in runc_roots(config) if is_seen_by(process, root)}
        if not roots:
            return
        bundles = Path(config["stateDir"]).parent / _BUNDLES / NAMESPACE
        if lost := await asyncio.to_thread(self._rubbish.remove, roots, known, started, bundles):
            logger.warning("removed orphaned cgroups of the container engine", count=len(lost))


def is_seen_by(process: int, path: Path) -> bool:
    """Whether a folder is the same for that process: it may be in a container of its own."""
    with suppress(OSError):
        return os.path.samefile(path, f"/proc/{process}/root{path}")
    return False


def runc_roots(config: Mapping[str, Any]) -> set[Path]:
    """Where runc keeps a folder of each container, by containerd's configuration; nowhere if it is another engine."""
    if "stateDir" not in config:
        return set()
    handlers = (config.get("containerd") or {}).get("runtimes") or {}
    told = [(each.get("options") or {}).get("Root") for each in handlers.values()]
    return {Path(each or _RUNC, NAMESPACE) for each in told}
