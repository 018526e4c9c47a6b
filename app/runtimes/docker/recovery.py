"""Recovery of a Docker Engine's containers: starts that were cut short, exit codes, and output. Called by the docker runtime.

A restarted engine says of a container whose start was cut short that it never ran, and has forgotten it if it has ended by then.
But while the engine is dead, runc's files of the container tell: a FIFO goes when the command begins. So they are looked at
until then. What has not begun never will, and is made anew: started again, it would find leftovers, and the engine would clear
away the links to files of the agent with them. Of what has begun the end would never be known, so it is killed. If the agent was
killed as well, nothing tells, and nothing is started twice.

Output: for each container that it starts the engine makes a folder, the bundle, and FIFOs in it, unless they are there. So
links to files of the agent are put there first. The engine reads from them, too, which is why its own logging is off.
"""

import asyncio
import json
import os
import shutil
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

from app.runtimes.base import ContainerKey, ContainerStatus
from app.runtimes.docker.engine import DockerEngine
from app.runtimes.docker.logs import EngineLogs
from app.runtimes.docker.status import exact_time, reason_of, unknown
from app.runtimes.engine.errors import EngineError
from app.runtimes.engine.files import Files
from app.runtimes.engine.outputs import Outputs
from app.runtimes.engine.recovery import StartRefusal, kill_processes, shims
from app.runtimes.linux import process_table
from app.runtimes.logs.log_format import STREAMS
from app.runtimes.process.logs import FILES

LOSSES = 20  # of the engine, that are remembered: a container may be asked about after the next one only
LOST_CODE = 255  # also what the engine says of what ended while it was away, and could not be asked how
MARGIN = timedelta(seconds=2)  # what an engine notes down last may be a moment old when it dies
RESTORED_WITHIN = timedelta(seconds=60)  # of its start, an engine has found out what became of its containers
LOOKS, PAUSE = 40, 0.025  # seconds between looks: an engine takes longer to start
SURE = 2  # looks that agree: runc does not remove its files at once
CONFIG = "config.v2.json"
# Left by a start that was cut short; with another id all is well.
_CUT_SHORT = ("failed to start shim: mkdir", "id already in use", "already exists")


class EngineLoss(NamedTuple):
    """The engine went away, or started, at this moment. What it lost by that ended for it until then, if that is known."""

    at: datetime
    until: datetime | None = None


class ReportedEnd(NamedTuple):
    """An event at this moment reported the end of a container, perhaps with its code."""

    at: datetime
    code: int | None = None


class Bundles:
    """Folders of containers at the engine, as far as they are seen from here: found by where its networks are."""

    def __init__(self, engine: DockerEngine) -> None:
        self._engine = engine
        self._root: Path | None = None

    async def find(self, sandbox_id: str) -> bool:
        """Return whether we may write there. `sandbox_id`: a container that runs."""
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

    def has_begun(self, id_: str) -> bool | None:
        """Whether a container's command has begun, as runc's files tell: a FIFO goes when it does. None: they are not seen."""
        if not (folders := self._runc_folders()):
            return None
        return any((each / id_ / "state.json").exists() and not (each / id_ / "exec.fifo").exists() for each in folders)

    def _runc_folders(self) -> Sequence[Path]:
        """Return where runc has a folder for each container that was started."""
        return [] if self._root is None else [*self._root.parent.glob("runtime-*/*")]

    def engine_started_at(self) -> float:
        """As a file's time, for it makes a socket then; 0 if that is not known."""
        if self._root is None:
            return 0.0
        return max((path.stat().st_mtime for path in self._root.parent.glob("libnetwork/*.sock")), default=0.0)

    async def remove(self, id_: str) -> None:
        """Of a container that is gone. The engine does not know of it if it never started that."""
        if self._root is not None:
            await asyncio.to_thread(shutil.rmtree, self.path(id_), ignore_errors=True)


class DockerDiversion:
    """Of output, to files of the agent (`outputs`)."""

    def __init__(self, outputs: Outputs, bundles: Bundles) -> None:
        self._outputs, self._bundles = outputs, bundles

    async def decide(self, key: ContainerKey, sandbox_id: str, *, is_possible: bool) -> bool:
        """Return whether a container that is about to be made will be diverted. Later agents find it so."""
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


class DockerRecovery:
    """See `engine.recovery.Recovery`. As far as the engine's folders are seen from here."""

    def __init__(
        self, engine: DockerEngine, files: Files, outputs: Outputs, bundles: Bundles, logs: EngineLogs
    ) -> None:
        self._engine, self._files, self._outputs, self._bundles, self._logs = engine, files, outputs, bundles, logs
        self._starting: set[ContainerKey] = set()
        self._shims_of: tuple[str, str] | None = (
            None  # containerd's address and namespace, as the engine's shims have them
        )
        self._losses: deque[EngineLoss] = deque(maxlen=LOSSES)  # that this agent saw

    def is_void(self, key: ContainerKey) -> bool:
        return self._files.is_void(key)

    @contextmanager
    def starting(self, key: ContainerKey) -> Iterator[None]:
        """While this agent starts it."""
        self._starting.add(key)
        try:
            yield
        finally:
            self._starting.discard(key)

    async def has_begun_unanswered(self, key: ContainerKey, id_: str) -> bool:
        """The engine is dead: before it is back, find out whether the command began. False: the start is repeated, or void."""
        await self.settle_start(key, id_, await self._logs.root() / "containers" / id_ / CONFIG)
        return False

    async def settle_start(self, key: ContainerKey, id_: str, config: Path) -> None:
        """`config`: the engine's own record of the container."""
        if self._bundles.has_begun(id_) is None:
            return
        seen = 0
        for _ in range(LOOKS):
            seen = seen + 1 if self._bundles.has_begun(id_) else 0
            if seen == SURE:
                break
            await asyncio.sleep(PAUSE)
        if not seen and not self._outputs.has_some(key):
            self._files.make_void(key)
        elif is_noted_as_running(config):
            return
        await asyncio.to_thread(kill_processes, id_)

    async def judge_refusal(self, key: ContainerKey, id_: str, message: str) -> StartRefusal:  # noqa: ARG002 - the id is enough
        """It may have begun when the engine died, and the engine does not know."""
        has_begun = self._bundles.has_begun(id_)
        await asyncio.to_thread(kill_processes, id_)
        return StartRefusal.VOID if has_begun is False and was_cut_short(message) else StartRefusal.FAILED

    def keep_end(self, key: ContainerKey, code: int | None, at: float | None = None) -> None:
        """The first report counts: an engine that is back reports an end again, and knows less."""
        if not self._files.exit_reported_at(key):
            self._files.write_exit(key, code, at)

    async def clear(self, id_: str) -> None:
        await asyncio.to_thread(kill_processes, id_)

    async def kill_lost(self) -> None:
        """Kill what runs of containers that the engine does not know. Repeated: containerd may carry out late what the engine
        asked for before it died, and the container may have been made anew meanwhile. Raises EngineError, OSError.
        """
        if started_at := self._bundles.engine_started_at():
            listed = await self._engine.ask("containers/json", all=1)
            await asyncio.to_thread(self._kill_unlisted, {str(one["Id"]) for one in listed}, started_at)

    def _kill_unlisted(self, listed: Collection[str], engine_started_at: float) -> None:
        """What is younger than the engine is left alone: it may be about to be listed."""
        found = [*shims()]
        self._shims_of = next(((each.address, each.namespace) for each in found if each.id in listed), self._shims_of)
        for each in found:
            if (each.address, each.namespace) != self._shims_of or each.id in listed:
                continue
            began_at = process_table.started_at(each.pid)
            if began_at is not None and began_at < engine_started_at:
                kill_processes(each.id)

    def note_loss(self) -> None:
        """The engine went away just now."""
        self._losses.append(EngineLoss(datetime.now(UTC)))

    async def correct(self, key: ContainerKey, status: ContainerStatus, found: Mapping[str, Any]) -> ContainerStatus:
        """Put right what a killed engine answers (`found`), and so `status` says, of a container that has ended."""
        if status.state == "created" and await self._may_have_run(key, found):
            await self.clear(str(found["Id"]))
            status = unknown(replace(status, state="exited"))
        if status.state != "exited":
            return status
        at = self._files.exit_reported_at(key)
        end = ReportedEnd(datetime.fromtimestamp(at, UTC), self._files.exit_code(key)) if at else None
        if is_lost(status, found["State"], end, self._all_losses()):
            return unknown(status)
        return with_reported_end(status, found["State"], end) if end else status

    async def _may_have_run(self, key: ContainerKey, found: Mapping[str, Any]) -> bool:
        """Return whether a container that never ran, by the engine's answer, may have."""
        if key in self._starting or not self._files.has_begun(key) or self._files.is_void(key):
            return False
        sandbox_id = str(found["HostConfig"]["NetworkMode"]).removeprefix("container:")
        return await self._bundles.find(sandbox_id) and self._bundles.engine_started_at() > self._files.begun_at(key)

    def _all_losses(self) -> Sequence[EngineLoss]:
        started = self._engine.started_at()  # there may have been no agent that saw the one before go
        return [*self._losses, *([losses_before(started)] if started else ())]


def was_cut_short(message: str) -> bool:
    """Return whether a start failed because of what an earlier start had left, so that the container may be made anew."""
    return any(text in message for text in _CUT_SHORT)


def is_noted_as_running(config: Path) -> bool:
    """Return whether the engine has noted down that the container runs, and so goes on with it when it is back."""
    try:
        return bool(json.loads(config.read_bytes())["State"]["Running"])
    except (OSError, ValueError, KeyError, TypeError):
        return True


def losses_before(started: datetime) -> EngineLoss:
    """Return what an engine may have lost before it started."""
    return EngineLoss(started, started + RESTORED_WITHIN)


def may_be_lost(state: Mapping[str, Any], loss: EngineLoss) -> bool:
    """Return whether a container that ended with LOST_CODE ran when the engine was lost."""
    started, ended = exact_time(state.get("StartedAt", "")), exact_time(state.get("FinishedAt", ""))
    if started is None or ended is None:
        return False
    return started <= loss.at and loss.at - MARGIN <= ended and (loss.until is None or ended <= loss.until)


def is_lost(
    status: ContainerStatus, state: Mapping[str, Any], end: ReportedEnd | None, losses: Iterable[EngineLoss]
) -> bool:
    """Return whether the exit code is unknown, for the engine was lost. What it reported before, it knew."""
    if status.exit_code != LOST_CODE or status.reason != "Error":
        return False
    if end and end.code not in (None, LOST_CODE):
        return False
    return any(may_be_lost(state, loss) for loss in losses if end is None or loss.at <= end.at)


def end_in(event: Mapping[str, Any]) -> ReportedEnd:
    """Return what an event says of the end of a container. Podman has another name for the code."""
    attributes = event["Actor"].get("Attributes") or {}
    codes = [str(attributes.get(name, "")) for name in ("exitCode", "containerExitCode")]
    code = next((int(each) for each in codes if each.isdecimal()), None)
    nanoseconds = event.get("timeNano") or event["time"] * 1_000_000_000
    return ReportedEnd(datetime.fromtimestamp(nanoseconds / 1_000_000_000, UTC), code)


def with_reported_end(status: ContainerStatus, state: Mapping[str, Any], end: ReportedEnd) -> ContainerStatus:
    """Return how a container ended that is over, as the engine reported it before it may have been killed.

    It reports an end, and notes it down a moment later. Killed in between, it says when it is back that the container has
    ended just now, with LOST_CODE or with 0. LOST_CODE is also what it reports, at times, and then notes down a better one.
    """
    ended = exact_time(state.get("FinishedAt", ""))
    was_noted = ended is not None and ended <= end.at
    if end.code is None or status.reason == "StartError" or (end.code == LOST_CODE and was_noted):
        return status
    finished_at = end.at.replace(microsecond=0)
    if was_noted and status.finished_at:
        finished_at = status.finished_at
    return replace(
        status,
        finished_at=max(finished_at, status.started_at or finished_at),
        exit_code=end.code,
        reason=reason_of(end.code, is_oom=bool(state.get("OOMKilled"))),
        message="",
    )
