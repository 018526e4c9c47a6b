"""Container usage, summed over processes from one look at /proc. Called by the process runtime.

A container's processes are those in the session of its first one, and their descendants in sessions of their own. What
ended children have used counts with the parent that took note of their end; one that no parent noted is lost.
"""

import os
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import NamedTuple

from app.runtimes.base import ContainerKey, ContainerUsage
from app.runtimes.linux import cgroups as cgroup

PODS_OWN = (".home", ".tmp")  # folders of isolated pods


class Used(NamedTuple):
    """CPU time in nanoseconds, bytes of memory, and the pid of the process that has most of these."""

    cpu: int
    memory: int
    largest: int


class ProcessUsage(NamedTuple):
    """What counts of a line of /proc/PID/stat: clock ticks and pages of memory, and who is responsible."""

    parent: int
    session: int
    ticks: int
    pages: int


class Running(NamedTuple):
    """A container, the pid of its first process, its cgroups, and the folder with its output."""

    key: ContainerKey
    pid: int
    cgroups: Sequence[Path]
    folder: Path


def of_containers(running: Sequence[Running]) -> Sequence[ContainerUsage]:
    """Return each container's usage: by its cgroup, where that counts, else by its processes."""
    found = of_sessions(each.pid for each in running)
    used = []
    pods: set[Path] = set()
    for key, pid, cgroups, folder in running:
        if pid in found:
            cpu, memory = cgroup.usage(cgroups)
            each = found[pid]
            now = memory or each.memory
            folders = () if folder.parent in pods else _folders(folder.parent)
            pods.add(folder.parent)
            used.append(ContainerUsage(key, cpu or each.cpu, now, _disk(folder), _peak(each.largest), folders))
    return used


def _folders(pod: Path) -> tuple[Path, ...]:
    """A pod's own, which count once, whatever number of containers it has."""
    return tuple(each for name in PODS_OWN if (each := pod / name).is_dir())


def _peak(pid: int) -> int:
    """Bytes that a process had in memory at most, as the kernel remembers; 0 if it has just gone."""
    with suppress(OSError, ValueError), open(f"/proc/{pid}/status", "rb", buffering=0) as file:
        for line in file.read(4096).splitlines():
            if line.startswith(b"VmHWM:"):
                return int(line.split()[1]) * 1024
    return 0


def _disk(folder: Path) -> int:
    """Of the files in it; containers have no folders there."""
    try:
        with os.scandir(folder) as entries:
            return sum(each.stat(follow_symlinks=False).st_blocks * 512 for each in entries)
    except OSError:  # it has just gone
        return 0


def of_sessions(sessions: Iterable[int]) -> dict[int, Used]:
    """Return what each of these sessions and its offspring use; those of which nothing lives are left out."""
    wanted = set(sessions)
    return add_up(wanted, _processes()) if wanted else {}


def add_up(wanted: AbstractSet[int], processes: Mapping[int, ProcessUsage]) -> dict[int, Used]:
    belongs: dict[int, int] = {}  # a process's pid, and the wanted session that it counts for, or 0

    def session_of(pid: int) -> int:
        passed: list[int] = []
        while pid in processes and pid not in belongs and processes[pid].session not in wanted:
            belongs[pid] = 0  # should a process seem to be its own ancestor
            passed.append(pid)
            pid = processes[pid].parent
        process = processes.get(pid)
        found = belongs.get(pid, process.session if process else 0)
        belongs.update(dict.fromkeys(passed, found))
        return found

    ticks, pages = dict.fromkeys(wanted, 0), dict.fromkeys(wanted, 0)
    largest: dict[int, tuple[int, int]] = {}  # pages and pid
    for pid, process in processes.items():
        session = session_of(pid)
        if session:
            largest[session] = max(largest.get(session, (0, 0)), (process.pages, pid))
            ticks[session] += process.ticks
            pages[session] += process.pages
    size = os.sysconf("SC_PAGE_SIZE")
    return {each: Used(ticks[each] * _tick(), pages[each] * size, pid) for each, (_, pid) in largest.items()}


@cache
def _tick() -> int:
    return 1_000_000_000 // os.sysconf("SC_CLK_TCK")


def _processes() -> dict[int, ProcessUsage]:
    """All that live, by pid. One that ends meanwhile may be missing."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            with suppress(OSError, ValueError, IndexError), open(f"/proc/{name}/stat", "rb", buffering=0) as file:
                found[int(name)] = _parse(file.read(1024))
    return found


def _parse(line: bytes) -> ProcessUsage:
    """Of a stat line: parent, session, the times in user and kernel mode, its own and its ended children's, memory."""
    fields = line.rpartition(b") ")[2].split()
    return ProcessUsage(int(fields[1]), int(fields[3]), sum(map(int, fields[11:15])), int(fields[21]))
