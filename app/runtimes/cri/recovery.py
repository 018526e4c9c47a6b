"""Recovery of containerd's containers: starts that were cut short, exit codes, output, and half-written network results.

containerd notes down late what it does, and forgets the rest when it is killed. What is decided here is decided by files of
the agent (`engine.files`), by what the container has written, and by containerd's messages. Called by the cri runtime. CRI-O
needs none of it: its containers and its log files survive it.
"""

import asyncio
import json
import os
import re
import stat
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from app.runtimes.base import ContainerKey, ContainerStatus
from app.runtimes.cri.engine import CriEngine
from app.runtimes.cri.messages import pb
from app.runtimes.engine.containers import CHASE
from app.runtimes.engine.errors import UNKNOWN
from app.runtimes.engine.files import Files
from app.runtimes.engine.outputs import Outputs
from app.runtimes.engine.recovery import StartRefusal
from app.runtimes.linux import process_table
from app.runtimes.logs.log_format import STREAMS
from app.runtimes.process.logs import FILES

MAY_BE_UNBEGUN = (None, 137)  # exit codes; a restarted containerd kills what it had made and not started
LAGS = (*CHASE, *[1.0] * 8)  # seconds between questions, until a slow engine has noted down that a container runs
RESULTS = Path("/var/lib/cni/results")  # of CNI plugins, for the removal of networks, which works without them, too
_TORN = "cached result"
_NEVER_RAN = (UNKNOWN, "StartError")
ASIDE, LINK = ".aside", ".link"
_NOT_CREATED = "failed to create containerd task"  # so it was not started
# Because containerd or its client was killed.
_KILLED = (
    "already exists",
    "context canceled",
    "failed to start io pipe copy",
    "failed to start shim: mkdir",  # which is there
    "signal: killed",
    "ttrpc: closed",
)
# Written by runc in the container's place, if the process that was to release it is killed at that moment.
_NOT_RELEASED = re.compile(rb"write exec fifo[^\n]*: broken pipe\n")
_SANDBOX_ENDED = re.compile(r'sandbox container "\w+" is not running')
OUTPUT_LIMIT = 1024  # bytes that hold this message


def never_began(message: str) -> bool:
    """Return whether a start failed because the engine was killed, so that the container may be made anew."""
    is_uncreated = _NOT_CREATED in message and any(text in message for text in _KILLED)
    is_uncreated = is_uncreated or _SANDBOX_ENDED.fullmatch(message) is not None
    return is_uncreated or _NOT_RELEASED.search(message.encode() + b"\n") is not None


def was_not_released(output: bytes) -> bool:
    """Return whether all output of a container, up to OUTPUT_LIMIT, is a message of runc."""
    return _NOT_RELEASED.fullmatch(output) is not None


def was_started(message: str) -> bool:
    """Return whether a start failed because the container has been started: by an agent that died."""
    return "container is in CONTAINER_" in message


class CriRecovery:
    """See `engine.recovery.Recovery`. `look`: asks the engine for a container's status."""

    def __init__(
        self,
        engine: CriEngine,
        files: Files,
        outputs: Outputs,
        look: Callable[[ContainerKey], Awaitable[ContainerStatus | None]],
    ) -> None:
        self._engine, self._files, self._outputs, self._look = engine, files, outputs, look
        self._void: set[ContainerKey] = set()

    def is_void(self, key: ContainerKey) -> bool:
        return key in self._void

    def forget(self, key: ContainerKey) -> None:
        self._void.discard(key)

    async def has_begun_unanswered(self, key: ContainerKey, id_: str) -> bool:  # noqa: ARG002 - the key is enough
        """An agent that died may have asked for the start, too: it is waited for."""
        for pause in CHASE:
            await asyncio.sleep(pause)
            status = await self._look(key)
            if status and status.state != "created":
                return True
        return False

    async def judge_refusal(self, key: ContainerKey, id_: str, message: str) -> StartRefusal:  # noqa: ARG002 - as above
        if never_began(message):
            return StartRefusal.VOID
        return StartRefusal.STARTED if was_started(message) else StartRefusal.FAILED

    def keep_end(self, key: ContainerKey, code: int | None, at: float | None = None) -> None:
        if code is not None:
            self._files.write_exit(key, code, at)

    async def clear(self, id_: str) -> None:
        """containerd kills it itself, when it is removed."""

    async def answer(
        self, key: ContainerKey, ask: Callable[[], Awaitable[pb.ContainerStatusResponse]]
    ) -> pb.ContainerStatus:
        """The engine's answer, once it has noted down that the container runs: its output may be there before."""
        found = (await ask()).status
        for pause in LAGS:
            if not self._ran_unnoted(key, found) or self._is_engine_newer(key):
                break
            await asyncio.sleep(pause)
            found = (await ask()).status
        return found

    def is_unusable(self, key: ContainerKey, found: pb.ContainerStatus) -> bool:
        """Return whether the container is void, by the engine's answer."""
        if not self._is_unusable(key, found):
            return False
        self._void.add(key)
        return True

    def correct(self, key: ContainerKey, found: pb.ContainerStatus) -> None:
        """Put right what a killed engine answers of a container that has run."""
        if self._ran_unnoted(key, found):
            found.state = pb.CONTAINER_UNKNOWN
        elif found.state == pb.CONTAINER_EXITED and not found.started_at and reason_of(found) not in _NEVER_RAN:
            # A restarted engine has not seen when it started.
            found.started_at = int(self._files.begun_at(key) * 1_000_000_000)

    def _is_unusable(self, key: ContainerKey, found: pb.ContainerStatus) -> bool:
        if found.state == pb.CONTAINER_UNKNOWN:
            return not self._files.has_begun(key)
        if found.reason == "StartError" and never_began(found.message):
            return True
        if found.state == pb.CONTAINER_RUNNING or found.started_at or not self._outputs.is_diverted(key):
            return False
        return was_not_released(self._outputs.beginning(key, OUTPUT_LIMIT))

    def _ran_unnoted(self, key: ContainerKey, found: pb.ContainerStatus) -> bool:
        """Return whether it has run, and the engine answers that it was only made."""
        if found.state != pb.CONTAINER_CREATED or self._files.failure(key) or self._is_unusable(key, found):
            return False
        return self._files.exit_code(key) not in MAY_BE_UNBEGUN or self._outputs.has_some(key)

    def _is_engine_newer(self, key: ContainerKey) -> bool:
        """Return whether the engine was restarted since the start was requested: what it does not know then, it never will."""
        started = process_table.started_at(self._engine.process)
        return started is not None and started > self._files.begun_at(key)


def reason_of(found: pb.ContainerStatus) -> str:
    if found.state == pb.CONTAINER_UNKNOWN or found.reason == "Unknown":
        return UNKNOWN  # containerd was stopped before it had noted down the exit: it says 255
    if found.exit_code < 0:
        return UNKNOWN  # as CRI-O puts it
    return found.reason or ("Error" if found.exit_code else "Completed")


def remove_torn_result(sandbox_id: str, message: str) -> bool:
    """Return whether a sandbox cannot be stopped because of a half-written result of its network, which is removed. Blocks."""
    found = False
    for path in RESULTS.glob(f"*-{sandbox_id}-*") if _TORN in message else ():
        try:
            json.loads(path.read_bytes())
        except ValueError:
            path.unlink(missing_ok=True)
            found = True
    return found


class CriDiversion:
    """Links files of the agent (`outputs`) in the place of the FIFOs from which containerd reads output, during a start."""

    def __init__(self, engine: CriEngine, outputs: Outputs) -> None:
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
        """Return where the CRI part of containerd keeps what does not outlive the machine."""
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
