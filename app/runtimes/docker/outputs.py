"""Diverts what containers of a Docker Engine write (see engine_outputs): before they are started. The docker runtime asks.

For each container that it starts the engine makes a folder, the bundle, and FIFOs in it, unless they are there. So links to
our files are there first. The engine reads from them, too, which is why it is told to log nothing; what it finds when it is
started again is as little use to it.
"""

import asyncio
import os
import shutil
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.runtimes.base import ContainerKey
from app.runtimes.docker.engine import Engine
from app.runtimes.engine.errors import EngineError
from app.runtimes.engine.outputs import Outputs
from app.runtimes.logs.log_format import STREAMS
from app.runtimes.process.logs import FILES


class Bundles:
    """Where the engine keeps them, as far as that is seen from here. It does not say so, but where its networks are."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._root: Path | None = None

    async def find(self, sandbox_id: str) -> bool:
        """Whether we may write there. `sandbox_id`: a container that runs."""
        if self._root is None:
            with suppress(EngineError):  # it is gone
                self.learn(await self._engine.ask(f"containers/{sandbox_id}/json"))
        return self._root is not None

    def learn(self, found: Mapping[str, Any]) -> None:
        """`found`: what the engine tells of a container that runs."""
        network = Path(found.get("NetworkSettings", {}).get("SandboxKey") or "")
        root = network.parent.parent / "containerd"
        bundle = root / str(found["Id"])
        with suppress(OSError):
            names = {name.partition("-")[2] for name in os.listdir(bundle)}
            if network.is_absolute() and names >= {*STREAMS} and os.access(root, os.W_OK | os.X_OK):
                self._root = root

    def path(self, id_: str) -> Path:
        """ConnectionError before one was found."""
        if self._root is None:
            raise ConnectionError("the container engine's folder is not seen any more")
        return self._root / id_

    def runs(self, id_: str) -> bool | None:
        """Whether a container's command has begun, as runc's files tell: a FIFO goes when it does. None: they are not seen."""
        if not (kept := self.kept_by_runc()):
            return None
        return any((each / id_ / "state.json").exists() and not (each / id_ / "exec.fifo").exists() for each in kept)

    def kept_by_runc(self, namespace: str = "*") -> Sequence[Path]:
        """Where runc has a folder for each container that was started."""
        return [] if self._root is None else [*self._root.parent.glob(f"runtime-*/{namespace}")]

    def engine_started_at(self) -> float:
        """As a file's time, for it makes a socket then; 0 if that is not known."""
        if self._root is None:
            return 0.0
        return max((path.stat().st_mtime for path in self._root.parent.glob("libnetwork/*.sock")), default=0.0)

    async def remove(self, id_: str) -> None:
        """Of a container that is gone. The engine does not know of it if it never started that."""
        if self._root is not None:
            await asyncio.to_thread(shutil.rmtree, self.path(id_), ignore_errors=True)


class Diversion:
    """To `outputs`."""

    def __init__(self, outputs: Outputs, bundles: Bundles) -> None:
        self._outputs, self._bundles = outputs, bundles

    async def decide(self, key: ContainerKey, sandbox_id: str, *, is_possible: bool) -> bool:
        """Whether a container that is about to be made will be diverted. Later agents find it so."""
        if is_possible and await self._bundles.find(sandbox_id):
            await asyncio.to_thread(self._outputs.make, key)
            return True
        await asyncio.to_thread(self._outputs.unmake, key)
        return False

    def divert(self, key: ContainerKey, id_: str) -> None:
        """Raises ConnectionError, OSError."""
        bundle, folder = self._bundles.path(id_), self._outputs.folder(key).path
        bundle.mkdir(exist_ok=True)
        for stream, name in FILES.items():
            for place in (f"init-{stream}", f"{id_}-{stream}"):  # Docker 20, and later ones
                _link(bundle / place, folder / name)


def _link(place: Path, file: Path) -> None:
    """Whatever is there already."""
    link = place.with_name(f"{place.name}.link")
    link.unlink(missing_ok=True)
    os.symlink(file, link)
    os.rename(link, place)
