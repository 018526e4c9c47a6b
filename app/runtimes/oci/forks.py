"""Client of the fork server: new processes for the oci runtime, for less than a millisecond each. Called by it and its sandboxes.

The server is started when it is first needed, and again if it has died. What it has made goes on without it.
"""

import asyncio
import marshal
import os
import socket
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from app.open_files import limit_restored
from app.runtimes.process.files import Folder
from app.runtimes.process.launch import PATH, RESET, SHIM, Launch

PROGRAM = Path(__file__).with_name("fork_server.py")
CONSOLE = "console"  # socket in a container's folder, to which crun sends its terminal
PADDING = "-" * 1000  # what a copy may show of itself
INHERITED = ("PATH", "LD_LIBRARY_PATH")  # of the environment; the rest may hold secrets
TRIES = 3
FULL = 0.005  # seconds until a server that is behind takes more


def holder(pod: Path, flags: int, shm: Path) -> dict[str, Any]:
    """An order: hold new namespaces. `flags`: which, as of unshare(2); `shm`: an empty folder, for that of mounts."""
    return {"title": os.fsencode(f"jobplane-holder {pod}"), "flags": flags, "shm": os.fsencode(shm)}


def shim(
    folder: Folder,
    layers: Path,
    names: Sequence[str],
    launch: Launch,
    namespaces: Sequence[tuple[str, int]],
    shm: tuple[str, str] | None = None,
) -> dict[str, Any]:
    """An order: run a container.

    names:      of its layers, lowest first.
    namespaces: where its mounts are made, if not here.
    shm:        namespace of mounts whose root is the pod's shared memory, and where to mount that.
    """
    lower = ":".join(f"{each}/fs" for each in reversed(names))
    options = f"lowerdir={lower},upperdir={folder.path}/upper,workdir={folder.path}/work"
    return {
        "title": os.fsencode(f"jobplane-shim {folder.path}"),
        "folder": str(folder.path),
        "layers": str(layers),
        "overlay": f"{options},userxattr" if namespaces else options,
        "enter": [*namespaces],
        "shm": shm,
        "cgroups": [str(each) for each in launch.cgroups],
        "keeps": launch.keeps,
        "console": CONSOLE,
        "programs": str(SHIM.parent),
        "command": launch.command,
        "env": launch.env,
    }


class ForkServer:
    """Used inside one running event loop."""

    def __init__(self) -> None:
        self._socket: socket.socket | None = None
        self._pid = 0
        self._is_closed = False

    async def fork(self, order: Mapping[str, Any], files: Sequence[int]) -> int:
        """Pid of a new process, which waits for a line on the first of the files. See `fork_server`. Raises OSError."""
        message = marshal.dumps(dict(order))
        for _ in range(TRIES):
            reading, report = os.pipe()
            try:
                try:
                    await self._send(message, [report, *files])
                finally:
                    os.close(report)
                said = (await _read(reading)).strip()
            finally:
                os.close(reading)
            if said.isdigit():
                return int(said)
            if said:
                raise OSError(said.decode(errors="replace"))
        raise OSError("the fork server of the oci runtime died")

    async def close(self) -> None:
        """End the server; what it has made goes on. Nothing else is made."""
        self._is_closed = True
        await self._end()

    async def _end(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
            await asyncio.to_thread(_reap, self._pid)

    async def _send(self, message: bytes, files: Sequence[int]) -> None:
        for _ in range(TRIES):
            if self._is_closed:
                raise OSError("the agent ends")
            if self._socket is None:
                self._socket, self._pid = _start()
            server = self._socket
            while server is self._socket:
                try:
                    socket.send_fds(server, [message], files)
                except BlockingIOError:
                    await asyncio.sleep(FULL)
                except ConnectionError:
                    await self._end()
                else:
                    return
        raise OSError("the fork server of the oci runtime does not start")


def _start() -> tuple[socket.socket, int]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-IS", str(PROGRAM), PADDING]
    with theirs, limit_restored():
        pid = os.posix_spawn(
            command[0],
            command,
            {"PATH": PATH, **{name: os.environ[name] for name in INHERITED if name in os.environ}},
            file_actions=[(os.POSIX_SPAWN_DUP2, theirs.fileno(), 0)],
            setsid=True,
            setsigmask=[],
            setsigdef=RESET,
        )
    ours.setblocking(False)
    return ours, pid


def _reap(pid: int) -> None:
    with suppress(ChildProcessError):
        os.waitpid(pid, 0)


async def _read(pipe: int) -> bytes:
    """What is written to it first; nothing if it is closed."""
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(pipe, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(pipe)
    return os.read(pipe, 256)
