"""Removes what a Docker Engine has lost track of, for it was killed as it made or removed it. The docker runtime asks.

For a container that is not in its list and has no configuration, or is one of ours, nobody will ever ask again: its folders
go, its shim, and what may run of it; without a shim its cgroups, and what runc has noted down of it, go in any case. So do
files for networks that are not mounted there, and mounts of the moment in which a container is made. What is younger than the
engine itself is left alone: it may be just about to be made.
"""

import asyncio
import ctypes
import json
import os
import re
import shutil
import signal
from collections.abc import Collection, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from app.runtimes.docker import orphan_processes
from app.runtimes.docker.engine import Engine
from app.runtimes.docker.orphan_networks import Links
from app.runtimes.docker.outputs import Bundles
from app.runtimes.engine.config import NODE
from app.runtimes.engine.orphan_cgroups import Rubbish
from app.runtimes.engine.shims import is_older, shims
from app.runtimes.process import process_table
from app.structured_logging import Logger

CONFIG = "config.v2.json"
_DETACH = 2
_ID = re.compile(r"[0-9a-f]{64}")

logger = Logger(__name__)


class Leftovers:
    """Looked for once after each start of the engine, as far as its folders are seen; shims, links and cgroups more often."""

    def __init__(self, engine: Engine, bundles: Bundles, node: str) -> None:
        self._engine, self._bundles, self._node = engine, bundles, node
        self._cleared = 0.0
        self._links, self._bridge, self._rubbish = Links(), "", Rubbish()
        self._place: tuple[str, str] | None = None  # of the engine's shims

    async def remove(self, root: Path) -> None:
        """`root`: the engine's folder."""
        started, containers = self._bundles.engine_started_at(), root / "containers"
        if not started or not os.access(containers, os.R_OK | os.W_OK | os.X_OK):
            return
        known = {str(one["Id"]) for one in await self._engine.ask("containers/json", all=1)}
        await asyncio.to_thread(self._end_shims, known, started)
        await self._remove_rubbish(known, started)
        if links := await asyncio.to_thread(self._links.remove_lost, await self._bridge_name()):
            logger.warning("removed orphaned network interfaces of the container engine", names=", ".join(links))
        if started == self._cleared:
            return
        bundles = self._bundles.path("")
        lost = {path.name for folder in (containers, bundles) for path in _older(folder, started)} - known
        lost = {id_ for id_ in lost if _ID.fullmatch(id_) and is_nobodys(containers / id_ / CONFIG, self._node)}
        await asyncio.to_thread(_remove, (containers, bundles), lost)
        await asyncio.to_thread(_remove_networks, bundles.parent / "netns", started)
        await asyncio.to_thread(_unmount, root / "overlay2", started)
        self._cleared = started
        if lost:
            logger.warning("removed orphaned containers of the container engine", count=len(lost))

    async def _remove_rubbish(self, known: Collection[str], started: float) -> None:
        if self._place is None:  # without its shims its processes are not seen, either
            return
        roots = self._bundles.kept_by_runc(self._place[1])
        if lost := await asyncio.to_thread(self._rubbish.remove, roots, known, started):
            logger.warning("removed orphaned cgroups of the container engine", count=len(lost))

    async def _bridge_name(self) -> str:
        if not self._bridge:
            found = await self._engine.ask("networks/bridge")
            self._bridge = str((found.get("Options") or {}).get("com.docker.network.bridge.name") or "docker0")
        return self._bridge

    def _end_shims(self, known: Collection[str], started: float) -> None:
        """Time and again: containerd may have been about to start one when the engine died, and may be slow."""
        found = [*shims()]
        self._place = next(((each.address, each.namespace) for each in found if each.id in known), self._place)
        for each in found:
            if (each.address, each.namespace) == self._place and each.id not in known and is_older(each.pid, started):
                process_table.kill(each.pid, signal.SIGKILL)


def is_nobodys(config: Path, node: str) -> bool:
    """Whether a container that the engine does not know has no configuration, or was made for this node."""
    try:
        return bool(json.loads(config.read_bytes())["Config"]["Labels"][NODE] == node)
    except FileNotFoundError:
        return True
    except (OSError, ValueError, KeyError, TypeError):
        return False


def _remove(folders: Sequence[Path], ids: Collection[str]) -> None:
    for id_ in ids:
        orphan_processes.kill(id_)
        for folder in folders:
            shutil.rmtree(folder / id_, ignore_errors=True)


def _remove_networks(folder: Path, started: float) -> None:
    for path in _older(folder, started):
        if path.stat().st_dev == folder.stat().st_dev:
            path.unlink(missing_ok=True)


def _older(folder: Path, moment: float) -> Iterator[Path]:
    with suppress(FileNotFoundError):
        for path in [*folder.iterdir()]:
            if path.lstat().st_mtime < moment:
                yield path


def _unmount(layers: Path, started: float) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    for path in _older(layers, started):
        if path.name.endswith("-init") and os.path.ismount(path / "merged"):
            libc.umount2(os.fsencode(path / "merged"), _DETACH)
