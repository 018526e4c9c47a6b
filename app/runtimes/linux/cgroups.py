"""Cgroup of each container, where the host allows it: keeps limits, reports OOM kills, ends processes that left their session.

The process runtime makes one for each start in the folders that `cgroup_roots` found: one folder in version 2, in version 1
one in each hierarchy that has something to do. The kernel's files are all that is remembered.
"""

import asyncio
import os
import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from app.runtimes.base import ContainerKey, ResourceLimits
from app.runtimes.linux.process_table import kill
from app.structured_logging import Logger

PERIOD = 100_000  # microseconds over which CPU time is shared out
LEAST_QUOTA, LEAST_SHARES, MOST_SHARES = 1000, 2, 262_144  # what the kernel takes
LIMITING = ("memory", "cpu")  # without these no limits are kept
TRIES, PAUSE = 100, 0.005  # seconds: to remove one whose processes were killed
KILLING = ("pids", "freezer", "cpu", "memory")  # of version 1: the first that is there holds who has no limits

logger = Logger(__name__)


@dataclass(frozen=True, kw_only=True)
class Cgroups:
    """Folders of the agent's own, by controller; in version 2 all are the same. `pids`: most processes a container; 0: any."""

    folders: Mapping[str, Path]
    is_unified: bool
    pids: int = 0

    @property
    def limits(self) -> bool:
        return all(controller in self.folders for controller in LIMITING)

    def paths(self, key: ContainerKey) -> list[Path]:
        """Return where a container may have cgroups."""
        name = f"{key.pod_uid}-{key.name}-{key.attempt}"
        return [folder / name for folder in dict.fromkeys(self.folders.values())]

    def names(self, made: Sequence[Path]) -> dict[str, Path]:
        """Return cgroups that a container was given by what their hierarchy is called; that of version 2 has no name."""
        if self.is_unified:
            return {"": made[0]} if made else {}
        return {name: each for name, folder in self.folders.items() for each in made if each.parent == folder}

    def make(self, key: ContainerKey, limits: ResourceLimits) -> list[Path]:
        """Those that the container is to join, with its limits. Raises OSError."""
        name = f"{key.pod_uid}-{key.name}-{key.attempt}"
        settings = dict(
            _unified_settings(limits, self.pids) if self.is_unified else _separate_settings(limits, self.pids)
        )
        used = [controller for controller in self.folders if any(file.startswith(controller) for file in settings)]
        used = used or [next(each for each in KILLING if each in self.folders)]
        made = list(dict.fromkeys(self.folders[controller] / name for controller in used))
        for folder in made:
            folder.mkdir(exist_ok=True)
        for file, value in settings.items():
            controller = file.partition(".")[0]
            if controller in self.folders:
                _set(self.folders[controller] / name / file, value)
        return made

    def sweep(self, pods: Iterable[str]) -> None:
        """Removes what earlier agents left of pods that are gone."""
        known = tuple(f"{uid}-" for uid in pods)
        for folder in dict.fromkeys(self.folders.values()):
            for name in _names(folder):
                if not name.startswith(known or ("/",)):
                    kill_all([folder / name])
                    remove([folder / name])

    def close(self) -> None:
        """Containers and their cgroups stay; without any, nothing does."""
        for folder in dict.fromkeys(self.folders.values()):
            remove([folder])


def _unified_settings(limits: ResourceLimits, pids: int) -> Iterator[tuple[str, str]]:
    """Files and what to write, for version 2."""
    if limits.memory is not None:
        yield "memory.max", str(limits.memory)
        yield "memory.swap.max", "0"
        yield "memory.oom.group", "1"
    if limits.cpu is not None:
        yield "cpu.max", f"{_quota(limits.cpu)} {PERIOD}"
    if limits.cpu_request is not None:
        yield "cpu.weight", str(1 + (_shares(limits.cpu_request) - LEAST_SHARES) * 9999 // (MOST_SHARES - LEAST_SHARES))
    if pids:
        yield "pids.max", str(pids)


def _separate_settings(limits: ResourceLimits, pids: int) -> Iterator[tuple[str, str]]:
    """The same for version 1. Memory with swap may not be less than memory, so it comes second."""
    if limits.memory is not None:
        yield "memory.limit_in_bytes", str(limits.memory)
        yield "memory.memsw.limit_in_bytes", str(limits.memory)
    if limits.cpu is not None:
        yield "cpu.cfs_period_us", str(PERIOD)
        yield "cpu.cfs_quota_us", str(_quota(limits.cpu))
    if limits.cpu_request is not None:
        yield "cpu.shares", str(_shares(limits.cpu_request))
    if pids:
        yield "pids.max", str(pids)


_OPTIONAL = frozenset({"memory.swap.max", "memory.memsw.limit_in_bytes", "memory.oom.group"})  # not in every kernel


def _quota(thousandths: int) -> int:
    return max(thousandths * PERIOD // 1000, LEAST_QUOTA)


def _shares(thousandths: int) -> int:
    return min(max(thousandths * 1024 // 1000, LEAST_SHARES), MOST_SHARES)


def _set(file: Path, value: str) -> None:
    if file.name in _OPTIONAL:
        with suppress(OSError):
            _write(file, value)
    else:
        _write(file, value)


def _write(file: Path, value: str) -> None:
    file.write_text(value, encoding="ascii")


def kill_all(folders: Sequence[Path]) -> None:
    """SIGKILL to all in it. In v1 a process that forks at that moment may be missed: call until `remove` is true."""
    for folder in folders:
        try:
            fd = os.open(folder / "cgroup.kill", os.O_WRONLY | os.O_CLOEXEC)
        except OSError:
            _kill_each(folder)
            continue
        try:
            os.write(fd, b"1")
        finally:
            os.close(fd)


def _kill_each(folder: Path) -> None:
    with suppress(OSError):
        for pid in (folder / "cgroup.procs").read_text(encoding="ascii").split():
            kill(int(pid), signal.SIGKILL)


def usage(folders: Iterable[Path]) -> tuple[int | None, int | None]:
    """CPU time in nanoseconds and bytes of memory that it uses; None for what these hierarchies do not count."""
    cpu, memory = None, None
    for folder in folders:
        cpu = _cpu(folder) if cpu is None else cpu
        memory = _memory(folder) if memory is None else memory
    return cpu, memory


def _cpu(folder: Path) -> int | None:
    used = _number(folder / "cpuacct.usage")
    if used is None and (micros := _entry(folder / "cpu.stat", "usage_usec")) is not None:
        used = micros * 1000
    return used


def _memory(folder: Path) -> int | None:
    used = _number(folder / "memory.current")
    if used is None:
        used = _number(folder / "memory.usage_in_bytes")
    if used is not None:
        used -= min(used, _entry(folder / "memory.stat", "inactive_file") or 0)  # a cache that gives way
    return used


def _number(file: Path) -> int | None:
    try:
        return int(file.read_bytes())
    except (OSError, ValueError):
        return None


def _entry(file: Path, name: str) -> int | None:
    """One number of a file of lines such as `usage_usec 123`."""
    with suppress(OSError, ValueError):
        for line in file.read_text(encoding="ascii").splitlines():
            word, _, number = line.partition(" ")
            if word == name:
                return int(number)
    return None


def _names(folder: Path) -> list[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        return [entry.name for entry in entries if entry.is_dir(follow_symlinks=False)]
    return []


def remove(folders: Iterable[Path]) -> bool:
    """False while a process is in one."""
    left = [folder for folder in folders if not _remove_one(folder)]
    return not left


async def remove_until_gone(folders: Sequence[Path]) -> None:
    """Remove them soon; processes in them are killed."""
    for _ in range(TRIES):
        if remove(folders):
            return
        kill_all(folders)
        await asyncio.sleep(PAUSE)
    logger.warning("cannot remove cgroups; leaving them", names=", ".join(map(str, folders)))


def _remove_one(folder: Path) -> bool:
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
