"""Shims that containerd starts, one or more a pod, and the start times of processes. Called by the runtimes with engines."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from app.runtimes.process import process_table

_NAME = "containerd-shim"
_TICK = 1 / os.sysconf("SC_CLK_TCK")  # seconds


class Shim(NamedTuple):
    """`id`: whom it was made for; `address`: containerd's socket, without links."""

    pid: int
    id: str
    address: str
    namespace: str


def shims() -> Iterator[Shim]:
    """All of this machine."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError, ValueError):
                words = Path("/proc", name, "cmdline").read_bytes().decode(errors="replace").split("\0")
                if os.path.basename(words[0]).startswith(_NAME):
                    id_, address, namespace = (words[words.index(f"-{each}") + 1] for each in Shim._fields[1:])
                    yield Shim(int(name), id_, os.path.realpath(address), namespace)


def started_at(pid: int) -> float | None:
    """As a file's time, but not before what was there already; None if it does not live.

    The kernel tells whole clock ticks (proc_pid_stat(5)), and this is the end of one. No engine makes anything in its first.
    """
    began = _tick_of(pid)
    return None if began is None else began + _TICK


def is_older(pid: int, moment: float) -> bool:
    """Whether it may be. False of one that does not live."""
    began = _tick_of(pid)
    return began is not None and began < moment


def _tick_of(pid: int) -> float | None:
    """When the clock tick began in which it started."""
    process = process_table.look(pid)
    if process is None:
        return None
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + process.start * _TICK
