"""What runs on this machine, and on whose behalf. Reads /proc: a process of a cluster is one that names its folder."""

import os
import signal
from collections.abc import Iterator
from typing import NamedTuple


class Process(NamedTuple):
    """A living process, as it is shown when it should not be there."""

    pid: int
    parent: int
    command: str


def naming(folder: str) -> list[Process]:
    """Every process but this one with the folder in its command, its environment or its working directory."""
    return [process for process in living() if process.pid != os.getpid() and _names(process, folder)]


def containers(folder: str) -> list[Process]:
    """Shims and what they watch over, of the agent of this folder; not what deletes the folders of pods that are gone."""
    return [each for each in naming(f"{folder}/") if not each.command.startswith("rm -rf ")]


def living() -> Iterator[Process]:
    for entry in os.listdir("/proc"):
        if entry.isdecimal():
            try:
                stat = _read(entry, "stat")
                state, parent = stat.rpartition(")")[2].split()[:2]
                command = _read(entry, "cmdline").replace("\0", " ").strip()
            except OSError:  # it has just ended
                continue
            if state != "Z":
                yield Process(int(entry), int(parent), command)


def children(parent: int) -> list[Process]:
    return [each for each in living() if each.parent == parent]


def child(parent: int, *words: str) -> int | None:
    """The child of a process whose command holds all the words."""
    found = [each.pid for each in children(parent) if all(word in each.command for word in words)]
    return found[0] if found else None


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


def _names(process: Process, folder: str) -> bool:
    if folder in process.command:
        return True
    try:
        return folder in _read(str(process.pid), "environ") or folder in os.readlink(f"/proc/{process.pid}/cwd")
    except OSError:  # it has just ended, or is somebody else's
        return False


def _read(pid: str, name: str) -> str:
    with open(f"/proc/{pid}/{name}", "rb") as file:  # in half the time of a Path: tests look by the hundred
        return file.read().decode(errors="replace")
