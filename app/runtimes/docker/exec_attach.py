"""Exec and attach in containers of a Docker Engine: commands, sessions with containers, and their streams. Called by `runtime`.

The engine does not end a command whose client has gone, so its process is killed here. Streams go over a connection that the
engine gives away. Input goes in as it is. Output comes as it is from a terminal, and else in frames: the stream's number, three
zeros, four bytes of length, big-endian.
"""

import asyncio
import signal
import struct
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Literal

from app.runtimes.base import ContainerKey, Session, StartError, Unsupported
from app.runtimes.docker.containers import DockerContainers
from app.runtimes.docker.engine import DockerEngine
from app.runtimes.engine.containers import CHASE
from app.runtimes.engine.errors import MISSING, NOT_EXECUTABLE, NOT_STARTED, EngineError, start_code
from app.runtimes.engine.outputs import DivertedSession
from app.runtimes.engine.recovery import belongs_to
from app.runtimes.linux import process_table

# Keys that are never typed: else the engine would take Ctrl-P Ctrl-Q for itself.
DETACH = "ctrl-@,ctrl-_,ctrl-@,ctrl-^,ctrl-@,ctrl-_"


class DockerCommands:
    """Sessions, each with one connection to the engine."""

    def __init__(self, engine: DockerEngine, containers: DockerContainers) -> None:
        self._engine, self._containers = engine, containers

    async def execute(self, key: ContainerKey, argv: Sequence[str], *, tty: bool) -> Session:
        known = await self._containers.find(key)
        if known is None:
            raise StartError(f'container "{key.name}" is not there')
        body = {
            "AttachStdin": True,
            "AttachStdout": True,
            "AttachStderr": True,
            "DetachKeys": DETACH,
            "Tty": tty,
            "Cmd": [*argv],
        }
        try:
            made = await self._engine.ask(f"containers/{known.id}/exec", "POST", body)
            path = f"exec/{made['Id']}"
            streams = await self._engine.upgrade(f"{path}/start", {"Detach": False, "Tty": tty})
        except EngineError as error:
            raise StartError(error.details, start_code(error.details)) from error
        session = DockerStreamSession(*streams, tty=tty)
        session.resized = lambda width, height: self._resize(path, width, height)
        session.ended_with = lambda failure: self._exit_code(path, failure)
        session.hang_up = lambda: self._kill(path, known.id)
        return session

    async def attach(self, key: ContainerKey) -> Session:
        known = await self._containers.find(key)
        if known is None:
            raise Unsupported(f'container "{key.name}" is not there')
        path = f"containers/{known.id}"
        try:
            about = (await self._containers.ask(known.id))["Config"]
            wanted = f"stream=1&stdout=1&stderr=1&stdin={int(about['OpenStdin'])}&detachKeys={DETACH}"
            streams = await self._engine.upgrade(f"{path}/attach?{wanted}")
        except EngineError as error:
            raise Unsupported(error.details) from error
        session = DockerStreamSession(*streams, tty=about["Tty"])
        session.resized = lambda width, height: self._resize(path, width, height)
        session.ended_with = lambda _: self._exit_code_of_container(key)
        outputs = self._containers.outputs
        return DivertedSession(session, outputs.folder(key)) if outputs.is_diverted(key) else session

    async def _resize(self, path: str, width: int, height: int) -> None:
        """A command that has only just begun may not have its terminal yet."""
        for pause in CHASE:
            await asyncio.sleep(pause)
            with suppress(EngineError):
                await self._engine.ask(f"{path}/resize", "POST", w=width, h=height)
                return

    async def _exit_code(self, path: str, failure: bytes) -> int:
        found = await self._wait_until_ended(path)
        code = int(found.get("ExitCode") or 0)
        if code in (MISSING, NOT_EXECUTABLE, NOT_STARTED) and failure and not found.get("Pid"):
            text = failure.decode(errors="replace").strip()
            raise StartError(text, start_code(text))
        return code

    async def _wait_until_ended(self, path: str) -> Mapping[str, Any]:
        """Answer about a command that has ended, once the engine itself knows so."""
        found: Mapping[str, Any] = {}
        for pause in CHASE:
            await asyncio.sleep(pause)
            try:
                found = await self._engine.ask(f"{path}/json")
            except EngineError as error:  # with its container, the command was forgotten
                raise ConnectionError(f"the container engine: {error.details}") from error
            if not found["Running"] and found.get("ExitCode") is not None:
                return found
        raise ConnectionError("the container engine hung up before the command ended")

    async def _exit_code_of_container(self, key: ContainerKey) -> int:
        status = await self._containers.wait_until_ended(key)
        return (status.exit_code or 0) if status else 0

    async def _kill(self, path: str, container_id: str) -> None:
        for pause in CHASE:
            await asyncio.sleep(pause)
            try:
                found = await self._engine.ask(f"{path}/json")
            except (EngineError, ConnectionError):
                return  # with the container its commands have ended, or the engine is away
            if pid := found.get("Pid"):
                await asyncio.to_thread(_kill, pid, container_id)
            if pid or not found["Running"]:
                return


def _kill(pid: int, container_id: str) -> None:
    """Unless the number means another process here: the engine may be in a machine of its own."""
    process = process_table.look(pid)
    if not belongs_to(pid, container_id):
        return
    process_table.kill(pid, signal.SIGKILL)
    if process and process.session == pid:
        process_table.kill_session(pid)


Named = Literal["stdout", "stderr"]

_HEAD = struct.Struct(">BxxxI")
_CHUNK = 64 * 1024
# Beginning of the message of Docker, and of Podman with either runtime, in place of a command that cannot be run.
FAILED = (b"OCI runtime exec failed: ", b"Error: runc: ", b"Error: crun: ")


class DockerStreamSession:
    """A `base.Session`.

    resized:    tells the engine of a terminal's size.
    ended_with: the exit code, given the engine's message in place of the command's output.
    hang_up:    what `close` does first if the command has not ended.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, tty: bool) -> None:
        self._reader, self._writer, self._tty = reader, writer, tty
        self._is_open = True
        self._input_ended = False
        self._failure = b""
        self.resized: Callable[[int, int], Awaitable[None]] | None = None
        self.ended_with: Callable[[bytes], Awaitable[int]] | None = None
        self.hang_up: Callable[[], Awaitable[None]] | None = None

    async def write(self, data: bytes) -> None:
        if data and not self._input_ended:
            with suppress(OSError):  # it has ended, and nothing is read any more
                self._writer.write(data)
                await self._writer.drain()

    async def end_input(self) -> None:
        if not self._input_ended:
            self._input_ended = True
            with suppress(OSError):
                self._writer.write_eof()

    async def resize(self, width: int, height: int) -> None:
        if self._tty and self._is_open and self.resized:
            await self.resized(width, height)

    async def output(self) -> AsyncIterator[tuple[Named, bytes]]:
        pieces = self._read_raw() if self._tty else self._read_frames()
        first = True
        async for name, data in pieces:
            if first and data.startswith(FAILED):
                self._failure = data  # whether it is the command's own output is clear only when it has ended
            elif data:
                yield name, data
            first = False
        self._is_open = False

    async def exit_code(self) -> int:
        return await self.ended_with(self._failure) if self.ended_with else 0

    async def close(self) -> None:
        if self._is_open and self.hang_up:
            await self.hang_up()
        self._is_open = False
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()

    async def _read_raw(self) -> AsyncIterator[tuple[Named, bytes]]:
        with suppress(OSError):
            while data := await self._reader.read(_CHUNK):
                yield "stdout", data

    async def _read_frames(self) -> AsyncIterator[tuple[Named, bytes]]:
        with suppress(OSError, asyncio.IncompleteReadError):
            while True:
                stream, length = _HEAD.unpack(await self._reader.readexactly(_HEAD.size))
                yield ("stderr" if stream == 2 else "stdout"), await self._reader.readexactly(length)
