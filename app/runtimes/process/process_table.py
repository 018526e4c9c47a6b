"""Process table of the kernel: which processes live, since when, in which session. Called by the process runtime.

A pid alone names nobody, because pids are used again: (pid, start, boot) does. A zombie counts as dead.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


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


def lives(identity: Identity, boot: str) -> bool:
    process = look(identity.pid)
    return identity.boot == boot and process is not None and process.start == identity.start


def kill_session(session: int) -> None:
    """SIGKILL to all in a session, whatever process groups they made. Who left the session by setsid escapes."""
    for name in os.listdir("/proc"):
        process = look(int(name)) if name.isdigit() else None
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
