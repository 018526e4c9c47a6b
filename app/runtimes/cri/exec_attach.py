"""Exec and attach in containers of a CRI engine: commands, sessions with containers, and their streams. Called by `runtime`.

Engines do not end a command whose client has gone, and do not tell its process. So it is found and killed here: by its parent,
which is none of the container's, and by its arguments; of commands with the same arguments, by the order of their starts.

Streams go over the URLs that an engine gives out. Engines speak SPDY/3.1 and WebSocket there. SPDY it is: with the older ones
standard input can be ended by it alone, and `cat` in a container would wait for ever.
"""

import asyncio
import itertools
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal, NamedTuple
from urllib.parse import urlsplit
from weakref import WeakValueDictionary

import msgspec

from app.runtimes.base import ContainerKey, Session, StartError, Unsupported
from app.runtimes.cri.containers import CriContainers
from app.runtimes.cri.engine import CriEngine
from app.runtimes.cri.messages import pb
from app.runtimes.engine import config as engine_config
from app.runtimes.engine.errors import EngineError, start_code
from app.runtimes.engine.outputs import DivertedSession
from app.runtimes.linux import process_table
from app.runtimes.linux.process_table import Process
from app.runtimes.spdy import Data, Decoder, Encoder, GoAway, Ping, Reset

KILLED_WITHIN = (0.0, 0.05, 0.1, 0.2, 0.4)  # seconds between looks for a process that is only about to begin


class _CommandKey(NamedTuple):
    """A command, and which of all it was."""

    key: ContainerKey
    argv: tuple[str, ...]
    number: int


class CriCommands:
    """Sessions, each with one connection to the engine."""

    def __init__(self, engine: CriEngine, containers: CriContainers) -> None:
        self._engine, self._containers = engine, containers
        self._numbers = itertools.count()
        self._sessions: WeakValueDictionary[_CommandKey, CriStreamSession] = WeakValueDictionary()

    async def execute(self, key: ContainerKey, argv: Sequence[str], *, tty: bool) -> Session:
        known = await self._containers.find(key)
        if known is None:
            raise StartError(f'container "{key.name}" is not there')
        request = pb.ExecRequest(container_id=known.id, cmd=argv, tty=tty, stdin=True, stdout=True, stderr=not tty)
        command = _CommandKey(key, tuple(argv), next(self._numbers))
        try:
            url = (await self._engine.ask(request, pb.ExecResponse)).url
        except EngineError as error:
            raise StartError(error.details) from error
        session = await connect(url, stdin=True, tty=tty)
        self._sessions[command] = session
        session.hang_up = lambda: self._kill(command, known.id)
        return session

    async def attach(self, key: ContainerKey) -> Session:
        known = await self._containers.find(key)
        if known is None:
            raise Unsupported(f'container "{key.name}" is not there')
        try:
            found = (await self._containers.ask(known.id)).status
            tty, stdin = (found.annotations.get(name) == "True" for name in (engine_config.TTY, engine_config.STDIN))
            request = pb.AttachRequest(container_id=known.id, tty=tty, stdin=stdin, stdout=True, stderr=not tty)
            url = (await self._engine.ask(request, pb.AttachResponse)).url
        except EngineError as error:
            raise Unsupported(error.details) from error
        session = await connect(url, stdin=stdin, tty=tty)
        session.ended_with = lambda: self._exit_code_of_container(key)
        outputs = self._containers.outputs
        return DivertedSession(session, outputs.folder(key)) if outputs.is_diverted(key) else session

    async def _exit_code_of_container(self, key: ContainerKey) -> int:
        status = await self._containers.wait_until_ended(key)
        return (status.exit_code or 0) if status else 0

    async def _kill(self, command: _CommandKey, container_id: str) -> None:
        try:
            main = await self._containers.pid(container_id)
        except (EngineError, ConnectionError):
            return  # with the container its commands have ended, or the engine is away
        if not main:
            return
        for pause in KILLED_WITHIN:
            await asyncio.sleep(pause)
            older = [each for each in self._sessions if each[:2] == command[:2] and each.number < command.number]
            rank = sum(self._sessions[each].is_open for each in older)
            if await asyncio.to_thread(_kill_command, main, command.argv, rank):
                return


def _kill_command(main: int, argv: Sequence[str], rank: int) -> bool:
    """Kills the command's whole session. `main`: the container's own process; `rank`: how many alike are older.

    False if there is none such (yet).
    """
    entered = _find_entered(main)
    alike = [each for each in entered if _argv(each.pid) == [*argv]] or entered[:1]
    if rank >= len(alike):
        return False
    process_table.kill(alike[rank].pid, signal.SIGKILL)
    if alike[rank].session == alike[rank].pid:
        process_table.kill_session(alike[rank].pid)
    return True


def _find_entered(main: int) -> list[Process]:
    """Processes in the container's cgroup, but its own, that came from outside; oldest first."""
    group = _cgroup(main)
    inside = {
        pid: process for pid in process_table.pids() if _cgroup(pid) == group and (process := process_table.look(pid))
    }
    found = [each for each in inside.values() if group and each.parent not in inside and each.pid != main]
    return sorted(found, key=lambda each: (each.start, each.pid))


def _cgroup(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cgroup").read_bytes()
    return b""


def _argv(pid: int) -> list[str]:
    with suppress(OSError):
        return [os.fsdecode(word) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]]
    return []


PROTOCOL = "v4.channel.k8s.io"
RESENT_AFTER = 0.2, 1.0  # seconds; containerd forgets the size of a terminal whose command has not begun yet
_CHUNK = 64 * 1024
_NAMES = ("error", "stdin", "stdout", "stderr", "resize")

Named = Literal["stdout", "stderr"]


class _Details(msgspec.Struct):
    causes: tuple[dict[str, str], ...] = ()


class _RemoteStatus(msgspec.Struct):
    """The last word on the error stream."""

    status: str = ""
    reason: str = ""
    message: str = ""
    details: _Details | None = None


class CriStreamSession:
    """A `base.Session` over one SPDY connection.

    hang_up:    what `close` does first if the command has not ended.
    ended_with: where the exit code comes from if not from the engine's last word.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, streams_of: frozenset[str]) -> None:
        self._reader, self._writer = reader, writer
        self._pack, self._unpack = Encoder(), Decoder()
        self._streams = {name: 2 * number + 1 for number, name in enumerate(_NAMES) if name in streams_of}
        self._names = {stream: name for name, stream in self._streams.items()}
        self._open = set(self._streams) - {"stdin", "resize"}
        self._input_ended = "stdin" not in streams_of
        self._last_status = self._size = b""
        self.hang_up: Callable[[], Awaitable[None]] | None = None
        self.ended_with: Callable[[], Awaitable[int]] | None = None

    @property
    def is_open(self) -> bool:
        return bool(self._open)

    async def begin(self) -> None:
        for name, stream in self._streams.items():
            self._writer.write(self._pack.open(stream, {"streamtype": name}))
        await self._writer.drain()

    async def write(self, data: bytes) -> None:
        if data and not self._input_ended:
            await self._send(self._pack.data(self._streams["stdin"], data))

    async def end_input(self) -> None:
        if not self._input_ended:
            self._input_ended = True
            await self._send(self._pack.data(self._streams["stdin"], b"", end=True))

    async def resize(self, width: int, height: int) -> None:
        if "resize" in self._streams:
            size = msgspec.json.encode({"Width": width, "Height": height})
            self._size = self._pack.data(self._streams["resize"], size)
            await self._send(self._size)
            for seconds in RESENT_AFTER:
                asyncio.get_running_loop().call_later(seconds, self._repeat, self._size)

    async def output(self) -> AsyncIterator[tuple[Named, bytes]]:
        while self._open and (data := await self._read()):
            for frame in self._unpack.feed(data):  # Malformed would be the engine's fault, and is raised as it is
                match frame:
                    case Data():
                        name = self._names.get(frame.stream, "")
                        if frame.end:
                            self._open.discard(name)
                        if name == "error":
                            self._last_status += frame.data
                        elif frame.data:
                            yield ("stderr" if name == "stderr" else "stdout"), frame.data
                    case Reset():
                        self._open.discard(self._names.get(frame.stream, ""))
                    case Ping():
                        await self._send(self._pack.ping(frame.number))
                    case GoAway():
                        self._open.clear()
        self._open.clear()

    async def exit_code(self) -> int:
        if not self._last_status and self.ended_with is None:
            raise ConnectionError("the container engine hung up before the command ended")
        status = self._status()
        if status.status == "Success" or not self._last_status:
            return await self.ended_with() if self.ended_with else 0
        if status.reason == "NonZeroExitCode" and status.details:
            codes = [cause.get("message", "") for cause in status.details.causes if cause.get("reason") == "ExitCode"]
            return int(codes[0]) if codes and codes[0].isdecimal() else 1
        raise StartError(status.message, start_code(status.message))

    async def close(self) -> None:
        if self._open and self.hang_up:
            await self.hang_up()
        self._open.clear()
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    def _repeat(self, size: bytes) -> None:
        if size is self._size and self._open and not self._writer.is_closing():
            self._writer.write(size)

    def _status(self) -> _RemoteStatus:
        try:
            return msgspec.json.decode(self._last_status, type=_RemoteStatus)
        except msgspec.MsgspecError:
            return _RemoteStatus(message=self._last_status.decode(errors="replace"))

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(_CHUNK)
        except OSError:
            return b""

    async def _send(self, data: bytes) -> None:
        with suppress(OSError):  # it has ended, and nothing is read any more
            self._writer.write(data)
            await self._writer.drain()


async def connect(url: str, *, stdin: bool, tty: bool) -> CriStreamSession:
    """Raises ConnectionError, Unsupported."""
    where = urlsplit(url)
    if where.scheme != "http" or not where.hostname:
        raise Unsupported(f"streams of the container engine at {url.partition('?')[0]}: only plain http is supported")
    try:
        reader, writer = await asyncio.open_connection(where.hostname, where.port or 80)
    except OSError as error:
        raise ConnectionError(f"the container engine's streams: {error}") from error
    session = CriStreamSession(reader, writer, streams_of(stdin=stdin, tty=tty))
    try:
        writer.write(
            f"POST {where.path}{'?' if where.query else ''}{where.query} HTTP/1.1\r\nHost: {where.netloc}\r\n"
            f"Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {PROTOCOL}\r\n"
            "Content-Length: 0\r\n\r\n".encode()
        )
        head = await reader.readuntil(b"\r\n\r\n")
        if not head.startswith(b"HTTP/1.1 101"):
            raise ConnectionError(f"the container engine's streams: {head.decode(errors='replace').splitlines()[0]}")
        await session.begin()
    except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
        writer.close()
        raise ConnectionError(f"the container engine's streams: {error}") from error
    return session


def streams_of(*, stdin: bool, tty: bool) -> frozenset[str]:
    """A terminal has no standard error of its own, but a size."""
    return frozenset({"error", "stdout", "resize" if tty else "stderr", *(["stdin"] if stdin else [])})
