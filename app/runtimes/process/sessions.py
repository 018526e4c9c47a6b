"""Exec and port-forward of the process runtime: commands inside containers that are processes, and connections to their ports.

A command gets what its container has: environment, working directory, namespaces, user, rights and cgroup, read from the
container's own processes. It runs in a session of its own, which ends with the client, with the container, or when the
next agent finds it (its pid is in the container's folder meanwhile).
"""

import asyncio
import fcntl
import os
import select
import shutil
import struct
import termios
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from app.open_files import limit_restored
from app.runtimes.base import StartError, Unsupported
from app.runtimes.linux import process_table
from app.runtimes.process import environment as command_environment
from app.runtimes.process import launch
from app.runtimes.process.files import Folder

PIECE = 64 * 1024
LOOKS, NOT_YET = 1000, 0.005  # seconds between looks
END_OF_INPUT = b"\x04"  # what a terminal has in place of an end
_SHELL = "/bin/sh"
_NAMESPACES = {"mnt": "-m", "pid": "-p", "net": "-n", "ipc": "-i", "uts": "-u", "user": "-U"}
# By the file of threads where there is one, as the shim does.
_JOIN = 'for f in $1; do [ -e "$f/tasks" ] && f=$f/tasks || f=$f/cgroup.procs; echo 0 >"$f" || exit 126; done; shift; exec "$@"'
_ENTER = 'cd "$1" || exit 126; shift; exec "$@"'
_RECORD = "session-"

Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, kw_only=True)
class ExecTarget:
    """A running container as a command needs it. `pid` is its command's, `env` what that was started with."""

    folder: Folder
    pid: int
    env: Mapping[str, str]
    working_dir: str
    cgroups: Sequence[str] = ()


def environment(pid: int) -> dict[str, str]:
    """Return what a process was started with. Raises OSError."""
    entries = Path(f"/proc/{pid}/environ").read_bytes().decode(errors="surrogateescape").split("\0")
    return dict(entry.split("=", 1) for entry in entries if "=" in entry)


async def wait_until_settled(pid: int, outer: int) -> None:
    """Wait until a process that bubblewrap, `outer`, has started is the command, with all its mounts."""
    for _ in range(LOOKS):
        try:
            # Not by its path, which changes while bubblewrap goes from one root to another.
            if not os.path.samefile(f"/proc/{pid}/exe", f"/proc/{outer}/exe"):
                return
        except OSError:
            return
        await asyncio.sleep(NOT_YET)


async def wait_until_runs_as(pid: int, user: int) -> None:
    """Wait until a process has given up the agent's rights: else a command would get these. Raises StartError."""
    for _ in range(LOOKS):
        uid, gid, groups, bounds, no_new = _credentials(pid)
        if (uid, gid, groups, int(bounds, 16), no_new) == (str(user), str(user), "", 0, "1"):
            return
        await asyncio.sleep(NOT_YET)
    raise StartError(f"the container does not run as user {user}")


class ExecSession:
    """One command: see `base.Session`."""

    def __init__(self, pid: int, folder: Folder, files: "CommandFiles") -> None:
        self._pid, self._folder, self._files = pid, folder, files
        self._loop = asyncio.get_running_loop()
        self._pidfd = os.pidfd_open(pid)
        self._ended = asyncio.Event()
        self._code = 0
        self.when_ended: Callable[[], None] = lambda: None
        process = process_table.look(pid)
        folder.write(f"{_RECORD}{pid}", b"%d %d\n" % (pid, process.start if process else 0))
        self._loop.add_reader(self._pidfd, self._reap)

    async def write(self, data: bytes) -> None:
        """It may stop reading, close its input, or end meanwhile: then the rest goes nowhere."""
        rest = memoryview(data)
        while rest and self._files.input >= 0 and not self._ended.is_set():
            try:
                rest = rest[os.write(self._files.input, rest) :]
            except BlockingIOError:
                await self._until(self._loop.add_writer, self._loop.remove_writer, [self._files.input])
            except OSError:
                return

    async def end_input(self) -> None:
        if self._files.is_terminal:
            await self.write(END_OF_INPUT)
        else:
            self._files.close_input()

    async def resize(self, width: int, height: int) -> None:
        if self._files.is_terminal:
            with suppress(OSError, struct.error):
                fcntl.ioctl(self._files.input, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    async def output(self) -> AsyncIterator[tuple[Stream, bytes]]:
        """Ends with the command: processes that it left running are not read any more."""
        outputs = dict(self._files.outputs)
        while outputs:
            ended = self._ended.is_set()
            ready = _readable(outputs)
            for fd in ready:
                data = _read(fd)
                if data:
                    yield outputs[fd], data
                else:
                    del outputs[fd]
            if not ready and ended:
                return
            if not ready:
                await self._until(self._loop.add_reader, self._loop.remove_reader, list(outputs))
        await self._ended.wait()

    async def exit_code(self) -> int:
        await self._ended.wait()
        return self._code

    async def close(self) -> None:
        if not self._ended.is_set():
            self.end_all(self._pid)
            await self._ended.wait()
        self._files.close()

    def kill(self) -> None:
        """Its container has ended."""
        if not self._ended.is_set():
            self.end_all(self._pid)

    @staticmethod
    def end_all(pid: int) -> None:
        """SIGKILL to a command of this process, and to all that it started."""
        process_table.kill_group(pid)
        process_table.kill_session(pid)

    async def _until(
        self, add: Callable[[int, Callable[[], None]], None], remove: Callable[[int], object], fds: Sequence[int]
    ) -> None:
        """Wait until one of the files is ready, or the command has ended."""
        ready = asyncio.Event()
        for fd in fds:
            add(fd, ready.set)
        waiting = [asyncio.create_task(ready.wait()), asyncio.create_task(self._ended.wait())]
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waiting:
                task.cancel()
            for fd in fds:
                remove(fd)

    def _reap(self) -> None:
        found = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOHANG)
        if found is None:
            return
        self._code = found.si_status if found.si_code == os.CLD_EXITED else 128 + found.si_status
        self._loop.remove_reader(self._pidfd)
        os.close(self._pidfd)
        with suppress(OSError), self._folder.open_folder() as folder:
            os.unlink(f"{_RECORD}{self._pid}", dir_fd=folder)
        self._ended.set()
        self.when_ended()


@dataclass(kw_only=True)
class CommandFiles:
    """Our ends of a command's standard streams; of a terminal, all are the same. `input` is -1 once it is closed."""

    input: int
    outputs: Mapping[int, Stream]
    is_terminal: bool = False

    def close_input(self) -> None:
        if self.input >= 0 and not self.is_terminal:
            os.close(self.input)
            self.input = -1

    def close(self) -> None:
        self.close_input()
        for fd in self.outputs:
            os.close(fd)
        self.input, self.outputs = -1, {}


def start(place: ExecTarget, argv: Sequence[str], *, tty: bool) -> ExecSession:
    """Run it. Raises StartError, Unsupported."""
    env = command_environment.without_loading(place.env)
    if tty:
        env.setdefault("TERM", "xterm")
    root = f"/proc/{place.pid}/root"
    launch.check_program(argv[0], env.get("PATH", launch.PATH), place.working_dir, lambda path: root + path)
    whole = command_environment.with_odd_names(command_environment.with_held(argv, env), env)
    inside = [_SHELL, "-c", _ENTER, "sh", place.working_dir, *whole]
    command = [*joining(place.cgroups), *_nsenter(place.pid), *_setpriv(place.pid), *inside]
    try:
        pid, files = spawn(command, env, tty=tty)
    except (OSError, ValueError) as error:
        raise StartError(f'exec: "{argv[0]}": {error}') from error
    return ExecSession(pid, place.folder, files)


def joining(cgroups: Sequence[str]) -> list[str]:
    """Words before a command that runs in these cgroups."""
    return [_SHELL, "-c", _JOIN, "sh", " ".join(cgroups)]


def spawn(command: Sequence[str], env: Mapping[str, str], *, tty: bool) -> tuple[int, CommandFiles]:
    """Start a command in a session of its own; its pid, and our ends of its streams. Raises OSError, ValueError."""
    return (_on_terminal if tty else _on_pipes)(command, env)


def end_leftovers(folder: Folder, end_all: Callable[[int], None] = ExecSession.end_all) -> None:
    """Kill commands of an agent that is dead: they have no client any more."""
    with suppress(OSError):
        for name in [each for each in os.listdir(folder.path) if each.startswith(_RECORD)]:
            content = folder.read(name)
            with suppress(ValueError):
                pid, started = map(int, content.data.split() if content else ())
                process = process_table.look(pid)
                if process and process.start == started:
                    end_all(pid)
            with folder.open_folder() as opened, suppress(OSError):
                os.unlink(name, dir_fd=opened)


def _nsenter(pid: int) -> list[str]:
    """The command that joins the namespaces of a process, as far as they are not ours. Raises Unsupported."""
    flags = [flag for name, flag in _NAMESPACES.items() if not _same_namespace(pid, name)]
    if not flags:
        return []
    program = shutil.which("nsenter")
    if program is None:
        raise Unsupported("this node cannot enter its containers: it lacks the program nsenter (package util-linux)")
    kept = ["--preserve-credentials"] if "-U" in flags else []
    return [program, "-t", str(pid), *flags, *kept, "--"]


def _same_namespace(pid: int, name: str) -> bool:
    try:
        return os.readlink(f"/proc/{pid}/ns/{name}") == os.readlink(f"/proc/self/ns/{name}")
    except OSError as error:
        raise StartError(f"the container's namespaces cannot be seen: {error}") from error


def _setpriv(pid: int) -> list[str]:
    """The command that takes on user, groups and capabilities of a process, as far as they are not ours."""
    theirs, ours = _credentials(pid), _credentials(os.getpid())
    if theirs == ours:
        return []
    program = shutil.which("setpriv")
    if program is None:
        raise Unsupported("this node cannot take on its containers' users: it lacks the program setpriv")
    uid, gid, groups, bounds, no_new = theirs
    result = [program]
    if (uid, gid, groups) != ours[:3]:
        result += ["--reuid", uid, "--regid", gid, *(["--groups", groups] if groups else ["--clear-groups"])]
    if bounds != ours[3]:
        kept = [f"+cap_{bit}" for bit in range(64) if int(bounds, 16) >> bit & 1]
        result += ["--inh-caps", "-all", "--bounding-set", ",".join(["-all", *kept])]
    return [*result, *(["--no-new-privs"] if no_new == "1" else []), "--"]


def _credentials(pid: int) -> tuple[str, str, str, str, str]:
    """User, group, supplementary groups, capabilities that can be had, and whether there can be new ones."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError as error:
        raise StartError("the container has just ended") from error
    fields = {name: value.split() for name, _, value in (line.partition(":") for line in lines)}
    return (
        fields["Uid"][1],
        fields["Gid"][1],
        ",".join(fields["Groups"]),
        fields["CapBnd"][0],
        fields.get("NoNewPrivs", ["0"])[0],
    )


def _on_pipes(command: Sequence[str], env: Mapping[str, str]) -> tuple[int, CommandFiles]:
    pipes = [os.pipe() for _ in range(3)]
    theirs = [pipes[0][0], pipes[1][1], pipes[2][1]]
    ours = [pipes[0][1], pipes[1][0], pipes[2][0]]
    try:
        pid = _spawn(command, env, [(os.POSIX_SPAWN_DUP2, fd, number) for number, fd in enumerate(theirs)])
    except BaseException:
        _close(ours)
        raise
    finally:
        _close(theirs)
    _unblock(ours)
    return pid, CommandFiles(input=ours[0], outputs={ours[1]: "stdout", ours[2]: "stderr"})


def _on_terminal(command: Sequence[str], env: Mapping[str, str]) -> tuple[int, CommandFiles]:
    """Open the terminal first in a new session: what its first process opens first becomes its terminal."""
    master, slave = os.openpty()
    actions = [
        (os.POSIX_SPAWN_OPEN, 0, os.ttyname(slave), os.O_RDWR, 0),
        (os.POSIX_SPAWN_DUP2, 0, 1),
        (os.POSIX_SPAWN_DUP2, 0, 2),
    ]
    try:
        pid = _spawn(command, env, actions)
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)
    _unblock([master])
    return pid, CommandFiles(input=master, outputs={master: "stdout"}, is_terminal=True)


def _spawn(command: Sequence[str], env: Mapping[str, str], actions: Sequence[tuple[Any, ...]]) -> int:
    reset = launch.RESET
    with limit_restored():
        return os.posix_spawn(
            command[0], list(command), env, file_actions=actions, setsid=True, setsigmask=[], setsigdef=reset
        )


def _close(fds: Sequence[int]) -> None:
    for fd in fds:
        os.close(fd)


def _unblock(fds: Sequence[int]) -> None:
    for fd in fds:
        os.set_blocking(fd, False)


def _readable(fds: Collection[int]) -> list[int]:
    poll = select.poll()
    for fd in fds:
        poll.register(fd, select.POLLIN)
    return [fd for fd, _ in poll.poll(0)]


def _read(fd: int) -> bytes:
    """Nothing at the end; a terminal has an error there."""
    try:
        return os.read(fd, PIECE)
    except OSError:
        return b""


class PortConnection:
    """To a port: see `base.Pipe`."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    async def read(self) -> bytes:
        return await self._reader.read(PIECE)

    async def write(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def end(self) -> None:
        with suppress(OSError):
            self._writer.write_eof()

    async def close(self) -> None:
        self._writer.close()
        with suppress(OSError):
            await self._writer.wait_closed()


async def dial(port: int) -> PortConnection:
    """To a port on this host's loopback, which pods share. Raises ConnectionError."""
    refused: OSError = ConnectionRefusedError(f"connection to port {port} refused")
    for address in ("127.0.0.1", "::1"):
        try:
            return PortConnection(*await asyncio.open_connection(address, port))
        except OSError as error:
            refused = refused if address == "::1" else error
    raise ConnectionError(str(refused)) from refused
