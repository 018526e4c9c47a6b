"""Ends shims that containerd has lost track of: it was killed while it made or removed their sandbox. The cri runtime asks.

A shim that is older than containerd itself has to be one of those that containerd found when it started. If none of its
sandboxes and containers is the shim's, it never will be again, and would stay for ever. When it is killed, containerd clears
away what it knows of it.
"""

import os
import signal
from collections.abc import Collection, Iterator
from contextlib import suppress
from pathlib import Path

from app.runtimes import process_table

_NAME, _NAMESPACE = "containerd-shim", "k8s.io"


def end_lost(engine: int, address: str, known: Collection[str]) -> int:
    """How many there were. `engine`: containerd's process; `known`: ids of all its sandboxes and containers."""
    started = process_table.look(engine)
    if started is None:
        return 0
    lost = [pid for pid, id_ in _shims(address) if id_ not in known and _is_older(pid, started.start)]
    for pid in lost:
        process_table.kill(pid, signal.SIGKILL)
    return len(lost)


def _is_older(pid: int, start: int) -> bool:
    found = process_table.look(pid)
    return found is not None and found.start < start


def _shims(address: str) -> Iterator[tuple[int, str]]:
    """Their processes, and the ids that they were made for."""
    for name in os.listdir("/proc"):
        if name.isdecimal():
            with suppress(OSError, ValueError):
                words = Path("/proc", name, "cmdline").read_bytes().decode(errors="replace").split("\0")
                if os.path.basename(words[0]).startswith(_NAME) and _serves(words, address):
                    yield int(name), _after(words, "-id")


def _serves(words: list[str], address: str) -> bool:
    same = os.path.realpath(_after(words, "-address")) == os.path.realpath(address)
    return same and _after(words, "-namespace") == _NAMESPACE


def _after(words: list[str], flag: str) -> str:
    """ValueError if it is not there."""
    return words[words.index(flag) + 1]
