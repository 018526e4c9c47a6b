"""The keeper of a terminal that is sent to it, as crun does."""

import os
import socket
import sys
from pathlib import Path

import pytest

from app.runtimes.process import keeper


@pytest.fixture
def console() -> socket.socket:
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("")  # any name that no file has
    listener.listen(1)
    return listener


def send_terminal(console: socket.socket, shown: bytes) -> None:
    """One that shows this, and that nothing has open any more."""
    master, slave = os.openpty()
    os.write(slave, shown)
    os.close(slave)
    with socket.socket(socket.AF_UNIX) as sender:
        sender.connect(console.getsockname())
        socket.send_fds(sender, [b"/dev/ptmx"], [master])
    os.close(master)


def run_keeper(folder: Path, console: socket.socket) -> bytes:
    """What it has written once it has ended."""
    with console, (folder / "out").open("w+b") as out:
        command = [sys.executable, "-IS", keeper.__file__, str(folder), "console"]
        actions = [(os.POSIX_SPAWN_DUP2, fd, number) for fd, number in ((out.fileno(), 1), (console.fileno(), 6))]
        pid = os.posix_spawn(command[0], command, os.environ, file_actions=actions)
        assert os.waitpid(pid, 0)[1] == 0
    return (folder / "out").read_bytes()


def test_a_terminal_is_read_to_its_end_though_its_container_has_ended_first(
    tmp_path: Path, console: socket.socket
) -> None:
    send_terminal(console, b"last words\n")
    (tmp_path / "over").touch()

    assert run_keeper(tmp_path, console) == b"last words\r\n"


def test_a_container_that_never_started_has_no_terminal(tmp_path: Path, console: socket.socket) -> None:
    (tmp_path / "over").touch()

    assert run_keeper(tmp_path, console) == b""
