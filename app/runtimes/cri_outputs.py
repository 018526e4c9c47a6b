"""What containers write, past containerd: its shims append it to files of ours. The cri runtime diverts it so at a start.

By itself containerd reads what containers write from FIFOs, and notes it down in log files. When it is killed, what it has
read and not noted down is lost, and with a container that ends before containerd is back all that waits in its FIFO. The
shims, which write to the FIFOs, survive it; and where an ordinary file stands in a FIFO's place, a shim appends to that. So
a link to such a file stands there while a container is being started. From the files a log is made as in the process runtime.

With terminals, CRI-O, and a containerd whose folders are not seen from here, the engine's own log file is the log.
"""

import json
import logging
import os
import shutil
import stat
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from cri_api.v1 import api_pb2 as pb

from app.runtimes.base import ContainerKey
from app.runtimes.cri_engine import Engine
from app.runtimes.engine_errors import EngineError
from app.runtimes.log_files import LogFiles
from app.runtimes.log_format import STREAMS
from app.runtimes.process_files import Folder, open_ordinary
from app.runtimes.process_logs import FILES, SHARE, Follower, Log

ASIDE, LINK = ".aside", ".link"

logger = logging.getLogger(__name__)


class Outputs(LogFiles):
    """Tells `grown` whose log has grown, be it the engine's file or made of what was diverted. `root`: as in engine_files."""

    def __init__(self, engine: Engine, root: Path, grown: Callable[[ContainerKey], None]) -> None:
        super().__init__(grown)
        self._engine, self._root = engine, root
        self._follower = Follower(grown)
        self._made: dict[ContainerKey, Log] = {}
        self._watched_over: set[ContainerKey] = set()
        self._state: Path | None = None  # containerd's; empty: it has none that we see

    def follow(self, key: ContainerKey, path: Path) -> None:
        log = self._log(key)
        if log is None:
            super().follow(key, path)
        elif key not in self._watched_over:
            self._watched_over.add(key)
            self._follower.follow(self.folder(key), log)

    def forget(self, key: ContainerKey) -> None:
        super().forget(key)
        if key in self._watched_over:
            self._watched_over.discard(key)
            self._follower.forget(key)
        self._made.pop(key, None)

    def close(self) -> None:
        super().close()
        self._follower.close()

    def folder(self, key: ContainerKey) -> Folder:
        return Folder(self._root, key)

    def is_diverted(self, key: ContainerKey) -> bool:
        return os.path.isdir(self.folder(key).path)

    def has_some(self, key: ContainerKey) -> bool:
        """Whether anything was written."""
        folder = self.folder(key).path
        return any((folder / name).exists() and (folder / name).stat().st_size for name in FILES.values())

    def read(self, key: ContainerKey, offset: int, limit: int, *, over: bool) -> bytes | None:
        """None if it was not diverted. Raises OSError."""
        log = self._log(key)
        if log is None:
            return None
        data = log.read(offset, limit)
        if not data and log.drain(SHARE, last=over):
            data = log.read(offset, limit)
        return data

    def taken(self, key: ContainerKey, offset: int) -> bool:
        """False if it was not diverted."""
        log = self._log(key)
        with suppress(OSError):
            log.taken(offset) if log else None
        return log is not None

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
        folder = self.folder(key)
        if not places:
            shutil.rmtree(folder.path, ignore_errors=True)  # of a start that came to nothing
            return
        folder.create()
        for stream, name in FILES.items():
            with folder.opened() as opened:
                os.close(open_ordinary(name, os.O_WRONLY | os.O_CREAT, opened))
            for place in [each for each in places if each.name.endswith(f"-{stream}")]:
                _put_aside(place, folder.path / name)

    def _log(self, key: ContainerKey) -> Log | None:
        if key not in self._made and self.is_diverted(key):
            self._made[key] = Log(self.folder(key))
        return self._made.get(key)

    async def _found_state(self) -> Path:
        """Where the CRI part of containerd keeps what does not outlive the machine."""
        try:
            request = pb.StatusRequest(verbose=True)
            told = (await self._engine.ask(request, pb.StatusResponse)).info.get("config", "{}")
            found = Path(json.loads(told).get("stateDir", ""), "containers")
            return found if found.is_absolute() and os.access(found, os.R_OK | os.W_OK | os.X_OK) else Path()
        except (EngineError, ValueError, AttributeError, TypeError) as error:
            logger.info("the container engine does not say where its files are: %s", error)
            return Path()

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
