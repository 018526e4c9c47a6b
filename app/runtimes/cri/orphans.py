"""Removes what containerd has lost track of, for it was killed as it made or removed it. The cri runtime asks, time and again.

What is younger than containerd itself is left alone: it may be just about to be made. Of an engine whose process is not seen
from here, or that does not tell where it keeps what, nothing is removed that this has to be known for.
"""

import asyncio
import logging
import os
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.runtimes.base import Unsupported
from app.runtimes.cri import orphan_networks, orphan_shims
from app.runtimes.cri.containers import Containers
from app.runtimes.cri.engine import Engine
from app.runtimes.cri.sandboxes import Sandboxes
from app.runtimes.engine.errors import EngineError
from app.runtimes.engine.orphan_cgroups import Rubbish
from app.runtimes.engine.shims import started_at

_BUNDLES = "io.containerd.runtime.v2.task"  # below containerd's own folder
_RUNC = "/run/containerd/runc"  # unless it is configured otherwise; whatever containerd's own folder is

logger = logging.getLogger(__name__)


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
        if lost := await asyncio.to_thread(orphan_shims.end_lost, started, path, known):
            logger.warning("ended %d shims that the container engine had lost track of when it was killed", lost)
        if self._config is None:
            self._config = await self._engine.config()
        await self._remove_networks(started, orphan_networks.folder(self._config))
        await self._remove_rubbish(process, started, known, self._config)

    async def _remove_networks(self, started: float, folder: Path) -> None:
        older = await asyncio.to_thread(orphan_networks.older, folder, started)
        unclear = older - self._known_networks
        if not unclear:
            return
        with suppress(Unsupported, EngineError):  # it does not say which it knows, or we may not look into them
            for path in unclear - await self._sandboxes.networks():
                if await asyncio.to_thread(orphan_networks.remove_unused, path):
                    logger.warning("removed %s, which the container engine had lost track of when it was killed", path)
            self._known_networks = older

    async def _remove_rubbish(
        self, process: int, started: float, known: Collection[str], config: Mapping[str, Any]
    ) -> None:
        roots = {root for root in runc_roots(config) if is_seen_by(process, root)}
        if not roots:
            return
        bundles = Path(config["stateDir"]).parent / _BUNDLES / orphan_shims.NAMESPACE
        if lost := await asyncio.to_thread(self._rubbish.remove, roots, known, started, bundles):
            logger.warning("removed cgroups of %d containers that the container engine had lost track of", len(lost))


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
    return {Path(each or _RUNC, orphan_shims.NAMESPACE) for each in told}
