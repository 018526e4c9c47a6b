"""Exec of the oci runtime: commands in running containers, by crun. Called by the runtime.

A command gets what its container has: user, rights, seccomp, environment, cgroups. It ends with the client, with the container,
or when the next agent finds it. crun sends the terminal of one that has any to a socket in the container's folder: where crun
copies what a terminal shows, it loses the output of a command that ends at once.
"""

import os
import secrets
import socket
from collections.abc import Sequence
from contextlib import suppress

import msgspec

from app.runtimes.base import StartError
from app.runtimes.engine.errors import start_code
from app.runtimes.linux import process_table
from app.runtimes.oci import container as oci_container
from app.runtimes.process import sessions
from app.runtimes.process.files import Folder
from app.runtimes.process.sessions import CommandFiles, ExecSession

PREFIX = "exec-"
_NAME_OF_TERMINAL = 256  # bytes that come with it, at most


class OciCommand(ExecSession):
    """See `base.Session`. Its process is crun's; the command is another, in the container."""

    def __init__(
        self, pid: int, folder: Folder, files: CommandFiles, name: str, console: socket.socket | None = None
    ) -> None:
        """`console`: where its terminal comes to, if it has one."""
        super().__init__(pid, folder, files)
        self._name, self._container, self._console = name, folder, console

    async def take_terminal(self) -> None:
        """Wait until the terminal is here, if there is to be one, or crun has failed, which `exit_code` tells."""
        if self._console is None:
            return
        with self._console, suppress(OSError, IndexError):
            await self._readable_or_ended(self._console)
            sender, _ = self._console.accept()
            with sender:
                sender.setblocking(False)
                await self._readable_or_ended(sender)
                _, received, _, _ = socket.recv_fds(sender, _NAME_OF_TERMINAL, 1, socket.MSG_CMSG_CLOEXEC)
                os.set_blocking(received[0], False)
            self._files.close()
            self._files = CommandFiles(input=received[0], outputs={received[0]: "stdout"}, is_terminal=True)

    async def _readable_or_ended(self, file: socket.socket) -> None:
        await self._until(self._loop.add_reader, self._loop.remove_reader, [file.fileno()])

    async def exit_code(self) -> int:
        code = await super().exit_code()
        message = oci_container.read_failure(self._container, f"{self._name}.log") if code else ""
        _remove(self._container, self._name)
        if message:
            raise StartError(message, start_code(message))
        return code

    async def close(self) -> None:
        await super().close()
        if self._console:
            self._console.close()
        _remove(self._container, self._name)

    @staticmethod
    def end_all(pid: int) -> None:
        """SIGKILL to crun, and to the sessions of its descendants: they are the command's, which crun put into one of its own."""
        sessions_of_it = {
            process.session for each in process_table.descendants(pid) if (process := process_table.look(each))
        }
        for session in sessions_of_it:
            process_table.kill_group(session)  # at once, even what is just being forked
            process_table.kill_session(session)
        process_table.kill_group(pid)


def start(folder: Folder, crun: Sequence[str], argv: Sequence[str], cgroups: Sequence[str], *, tty: bool) -> OciCommand:
    """Run it. `crun`: the command before its own words, which are `exec` and what follows. Raises StartError.

    With a terminal, `take_terminal` comes before anything else. crun runs in the container's folder.
    """
    name = f"{PREFIX}{secrets.token_hex(4)}"
    try:
        content = folder.read("config.json", 1 << 20)
        process = msgspec.json.decode(content.data if content else b"")["process"]
    except (ValueError, KeyError, TypeError) as error:
        raise StartError("the container is not running") from error
    process |= {"args": [*argv], "terminal": tty}
    if tty and not any(each.startswith("TERM=") for each in process["env"]):
        process["env"].append("TERM=xterm")
    folder.write(f"{name}.json", msgspec.json.encode(process))
    path = folder.path
    command = [
        *sessions.joining([*cgroups]),
        *crun,
        f"--log=file:{path}/{name}.log",
        "exec",
        f"--process={path}/{name}.json",
        *([f"--console-socket={name}.sock"] if tty else []),
        oci_container.ID,
    ]
    console = None
    try:
        console = _listen(folder, f"{name}.sock") if tty else None
        pid, files = sessions.spawn(command, dict(os.environ), tty=False)
    except (OSError, ValueError) as error:
        if console:
            console.close()
        _remove(folder, name)
        raise StartError(f'exec: "{argv[0]}": {error}') from error
    return OciCommand(pid, folder, files, name, console)


def _listen(folder: Folder, name: str) -> socket.socket:
    """By way of the open folder: the path itself may be longer than a socket's may be. Raises OSError."""
    listener = socket.socket(socket.AF_UNIX)
    try:
        with folder.open_folder() as opened:
            listener.bind(f"/proc/self/fd/{opened}/{name}")
        listener.listen(1)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def end_leftovers(folder: Folder) -> None:
    """Kill commands of an agent that is dead: they have no client any more."""
    sessions.end_leftovers(folder, OciCommand.end_all)
    with suppress(OSError):
        for name in {each.partition(".")[0] for each in os.listdir(folder.path) if each.startswith(PREFIX)}:
            _remove(folder, name)


def _remove(folder: Folder, name: str) -> None:
    for kind in ("json", "log", "sock"):
        with suppress(OSError):
            os.unlink(folder.path / f"{name}.{kind}")
