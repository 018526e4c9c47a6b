"""Diverts what containers of containerd write (see engine_outputs): while they are being started. The cri runtime asks.

CRI-O's own log files survive it, and are the logs.
"""

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from app.runtimes.base import ContainerKey
from app.runtimes.cri.engine import Engine
from app.runtimes.engine.outputs import Outputs
from app.runtimes.logs.log_format import STREAMS
from app.runtimes.process.logs import FILES

ASIDE, LINK = ".aside", ".link"


class Diversion:
    """Of FIFOs, to `outputs`."""

    def __init__(self, engine: Engine, outputs: Outputs) -> None:
        self._engine, self._outputs = engine, outputs
        self._state: Path | None = None  # containerd's; empty: it has none that we see

    async def places(self, id_: str) -> list[Path]:
        """The FIFOs of a container that was made; none if it has a terminal, or if they are out of reach."""
        if self._state is None:
            self._state = await self._found_state()
        names = [f"{id_}-{stream}" for stream in STREAMS]
        # After a restart of containerd there are new ones beside the old.
        folders = [each for each in self._io(id_) if all(os.path.lexists(each / name) for name in names)]
        return [folder / name for folder in folders for name in names]

    @contextmanager
    def diverted(self, key: ContainerKey, places: Sequence[Path]) -> Iterator[None]:
        """While it is being started."""
        try:
            self._divert(key, places)
            yield
        finally:
            for place in places:
                with suppress(OSError):  # for containerd, which opens it again should it be restarted
                    os.rename(_beside(place, ASIDE), place)

    def _divert(self, key: ContainerKey, places: Sequence[Path]) -> None:
        if not places:
            self._outputs.unmake(key)
            return
        self._outputs.make(key)
        folder = self._outputs.folder(key).path
        for stream, name in FILES.items():
            for place in [each for each in places if each.name.endswith(f"-{stream}")]:
                _put_aside(place, folder / name)

    async def _found_state(self) -> Path:
        """Where the CRI part of containerd keeps what does not outlive the machine."""
        found = Path((await self._engine.config()).get("stateDir", ""), "containers")
        return found if found.is_absolute() and os.access(found, os.R_OK | os.W_OK | os.X_OK) else Path()

    def _io(self, id_: str) -> list[Path]:
        if self._state is None or not self._state.is_absolute():
            return []
        return [*(self._state / id_ / "io").glob("*")]


def _put_aside(place: Path, file: Path) -> None:
    """A link to the file instead of the FIFO, at no moment nothing."""
    if not stat.S_ISFIFO(place.lstat().st_mode):
        return  # an earlier agent did, and died
    aside, link = _beside(place, ASIDE), _beside(place, LINK)
    for old in (aside, link):
        old.unlink(missing_ok=True)
    os.link(place, aside)
    os.symlink(file, link)
    os.rename(link, place)


def _beside(place: Path, ending: str) -> Path:
    return place.with_name(place.name + ending)
