"""The shims that containerd starts, one or more a pod, and what moment processes are from. The runtimes with engines ask."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from app.runtimes import process_table

_NAME = "containerd-shim"


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
    """As a file's time; None if it does not live."""
    process = process_table.look(pid)
    if process is None:
        return None
    return time.time() - time.clock_gettime(time.CLOCK_BOOTTIME) + process.start / os.sysconf("SC_CLK_TCK")


def is_older(pid: int, moment: float) -> bool:
    """False of one that does not live."""
    started = started_at(pid)
    return started is not None and started < moment
