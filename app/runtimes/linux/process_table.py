"""Process table of the kernel: which processes live, since when, in which session or cgroup. Called by all runtimes.

A pid alone identifies no process, because pids are used again: (pid, start, boot) does. A zombie counts as dead.
"""

import os
import signal
import socket
import struct
import time
from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

PATIENCE = 1.0  # seconds for a listener to take a connection
_TICK = 1 / os.sysconf("SC_CLK_TCK")  # seconds
_CREDENTIALS = struct.Struct("3i")  # process, user, group


class Process(NamedTuple):
    """One line of /proc/PID/stat."""

    pid: int
    state: str
    parent: int
    session: int
    start: int  # clock ticks since boot


class Identity(NamedTuple):
    """A process that cannot be mistaken for a later one of the same pid."""

    pid: int
    start: int
    boot: str


def boot_id() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()


def parse(line: bytes) -> Process:
    """Reads a stat line; the name in it may hold spaces and brackets. Raises ValueError."""
    pid, _, rest = line.partition(b" (")
    fields = rest.rpartition(b") ")[2].split()
    if len(fields) < 20:
        raise ValueError("not a stat line")
    return Process(int(pid), fields[0].decode(), int(fields[1]), int(fields[3]), int(fields[19]))


def look(pid: int) -> Process | None:
    """The process of this pid, unless it is dead."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            process = parse(file.read(1024))
    except (OSError, ValueError):
        return None
    return None if process.state in "ZX" else process


def is_running(process: Process) -> bool:
    """Return whether one of this boot is not dead so far."""
    now = look(process.pid)
    return now is not None and now.start == process.start


def lives(identity: Identity, boot: str) -> bool:
    process = look(identity.pid)
    return identity.boot == boot and process is not None and process.start == identity.start


def first_child(pid: int) -> int | None:
    """The oldest child of a process; None if it has none. Orphans that it has been given are younger, or their pids higher."""
    try:
        listed = list(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_bytes().split()))
    except OSError:  # a kernel without it, or nothing is left
        listed = list(pids())
    children = [process for each in listed if (process := look(each)) and process.parent == pid]
    return min(children, key=lambda each: (each.start, each.pid)).pid if children else None


def descendants(pid: int) -> list[int]:
    """Children of a process, and theirs."""
    parents = {process.pid: process.parent for each in pids() if (process := look(each))}
    found, new = [], [pid]
    while new:
        new = [child for child, parent in parents.items() if parent in new and child not in found]
        found += new
    return found


def pids() -> Iterator[int]:
    return (int(name) for name in os.listdir("/proc") if name.isdecimal())


def started_at(pid: int) -> float | None:
    """As a file's time, but not before what was there already; None if it does not live.

    The kernel counts whole clock ticks (proc_pid_stat(5)), and this is the end of one. No engine makes anything in its first.
    """
    process = look(pid)
    if process is None:
        return None
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + (process.start + 1) * _TICK


def peer(connection: socket.socket) -> int:
    """Process at the other end of a Unix socket; 0 if it is not seen from here."""
    pid: int = _CREDENTIALS.unpack(connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size))[0]
    return pid


def listener_started_at(path: str) -> datetime | None:
    """Start of the process that listens on a Unix socket, to a few hundredths of a second; None if it is not seen."""
    with socket.socket(socket.AF_UNIX) as connection, suppress(OSError):
        connection.settimeout(PATIENCE)
        connection.connect(path)
        started = started_at(peer(connection))
        return datetime.fromtimestamp(started, UTC) if started is not None else None
    return None


def kill_session(session: int) -> None:
    """SIGKILL to all in a session, whatever process groups they made. A process that left the session by setsid escapes."""
    for pid in pids():
        process = look(pid)
        if process is not None and process.session == session:
            kill(process.pid, signal.SIGKILL)


def kill(pid: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if pid > 1:
            os.kill(pid, number)


def kill_group(group: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        if group > 1:
            os.killpg(group, signal.SIGKILL)
