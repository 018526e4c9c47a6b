"""Processes of this machine that are a container's, known by the name of their cgroup. The docker runtime asks.

An engine that dies while it starts a container may have begun it and not know so: what runs of it then is nobody's.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

from app.runtimes.engine.shims import shims
from app.runtimes.process import process_table


def is_of(pid: int, container_id: str) -> bool:
    """Never of an engine in a machine of its own, whose numbers mean nothing here."""
    with suppress(OSError):
        return container_id in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
    return False


def kill(container_id: str) -> None:
    """All of a container that, as far as its engine knows, does not run; its shim, too."""
    found = [int(name) for name in os.listdir("/proc") if name.isdigit() and is_of(int(name), container_id)]
    for pid in (*found, *(each.pid for each in shims() if each.id == container_id)):
        process_table.kill(pid, signal.SIGKILL)
