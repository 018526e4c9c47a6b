"""Processes of this machine that are a container's, known by the name of their cgroup. The docker runtime asks.

An engine that dies while it starts a container may have begun it and not know so: what runs of it then is nobody's.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

from app.runtimes import process_table


def is_of(pid: int, container_id: str) -> bool:
    """Never of an engine in a machine of its own, whose numbers mean nothing here."""
    with suppress(OSError):
        return container_id in Path(f"/proc/{pid}/cgroup").read_text(encoding="utf-8")
    return False


def kill(container_id: str) -> None:
    """All of a container that, as far as its engine knows, does not run; its shim, too."""
    for name in os.listdir("/proc"):
        if name.isdigit() and (is_of(int(name), container_id) or _watches(int(name), container_id)):
            process_table.kill(int(name), signal.SIGKILL)


def _watches(pid: int, container_id: str) -> bool:
    with suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b"containerd-shim" in words[0] and container_id.encode() in words
    return False
