"""Starts that were cut short by an end of the engine: whether the container began all the same. The docker runtime asks.

A restarted engine says of such a container that it never ran, and has forgotten it if it has ended by then. But while the
engine is dead, what runc keeps of the container tells: a FIFO that goes when the command begins. So it is looked at until
then. What has not begun never will, and is made anew: started again, it would find leftovers, and the engine would clear
away our links with them. Of what has begun nobody would ever know the end, so it is killed. If the agent was killed as well,
nobody knows, and nothing is started twice.
"""

import asyncio
import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from app.runtimes.base import ContainerKey
from app.runtimes.docker import orphan_processes
from app.runtimes.docker.outputs import Bundles
from app.runtimes.engine.files import Files
from app.runtimes.engine.outputs import Outputs

LOOKS, PAUSE = 40, 0.025  # seconds between looks: an engine takes longer to start
SURE = 2  # looks that agree: runc does not remove its files at once
# By what a start left that was cut short, and with another id all is well.
_CUT_SHORT = ("failed to start shim: mkdir", "id already in use", "already exists")


def was_cut_short(message: str) -> bool:
    """Whether the engine could not start it for what an earlier start had left, and so it may be made anew."""
    return any(text in message for text in _CUT_SHORT)


class CutStarts:
    """As far as the engine's folders are seen from here."""

    def __init__(self, files: Files, outputs: Outputs, bundles: Bundles) -> None:
        self._files, self._outputs, self._bundles = files, outputs, bundles
        self._busy: set[ContainerKey] = set()

    @contextmanager
    def busy(self, key: ContainerKey) -> Iterator[None]:
        """While it is being started by us."""
        self._busy.add(key)
        try:
            yield
        finally:
            self._busy.discard(key)

    async def watch(self, key: ContainerKey, id_: str, config: Path) -> None:
        """Once the engine has died. `config`: what it keeps of the container on disk."""
        if self._bundles.runs(id_) is None:
            return
        seen = 0
        for _ in range(LOOKS):
            seen = seen + 1 if self._bundles.runs(id_) else 0
            if seen == SURE:
                break
            await asyncio.sleep(PAUSE)
        if not seen and not self._outputs.has_some(key):
            self._files.make_void(key)
        elif is_known(config):
            return
        await asyncio.to_thread(orphan_processes.kill, id_)

    async def is_lost(self, key: ContainerKey, found: Mapping[str, Any]) -> bool:
        """Whether one of which the engine says that it never ran may have. `found`: what the engine tells of it."""
        if key in self._busy or not self._files.has_begun(key) or self._files.is_void(key):
            return False
        sandbox_id = str(found["HostConfig"]["NetworkMode"]).removeprefix("container:")
        return await self._bundles.find(sandbox_id) and self._bundles.engine_started_at() > self._files.begun_at(key)


def is_known(config: Path) -> bool:
    """Whether the engine had noted down that the container runs, and so goes on with it when it is back."""
    try:
        return bool(json.loads(config.read_bytes())["State"]["Running"])
    except (OSError, ValueError, KeyError, TypeError):
        return True
