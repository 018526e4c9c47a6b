"""Process of a command that was run in a container, so that it can be killed. Called by the cri runtime.

Engines do not say, and go on with a command whose caller has hung up. Its process is known by its parent, which is none of
the container's, and by its arguments; those of the same arguments by the order in which they were begun.
"""

import os
import signal
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from app.runtimes.process import process_table
from app.runtimes.process.process_table import Process


def kill(main: int, argv: Sequence[str], rank: int) -> bool:
    """Kills the command's whole session. `main`: the container's own process; `rank`: how many alike are older.

    False if there is none such (yet).
    """
    entered = _entered(main)
    alike = [each for each in entered if _argv(each.pid) == [*argv]] or entered[:1]
    if rank >= len(alike):
        return False
    process_table.kill(alike[rank].pid, signal.SIGKILL)
    if alike[rank].session == alike[rank].pid:
        process_table.kill_session(alike[rank].pid)
    return True


def _entered(main: int) -> list[Process]:
    """Processes in the container's cgroup, but its own, that came from outside; oldest first."""
    group = _cgroup(main)
    inside = {pid: process for pid in _pids() if _cgroup(pid) == group and (process := process_table.look(pid))}
    found = [each for each in inside.values() if group and each.parent not in inside and each.pid != main]
    return sorted(found, key=lambda each: (each.start, each.pid))


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _cgroup(pid: int) -> bytes:
    with suppress(OSError):
        return Path(f"/proc/{pid}/cgroup").read_bytes()
    return b""


def _argv(pid: int) -> list[str]:
    with suppress(OSError):
        return [os.fsdecode(word) for word in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[:-1]]
    return []
