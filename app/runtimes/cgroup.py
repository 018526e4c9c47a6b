"""A cgroup for each container, where the host allows it: the one way to end processes that have left their session.

The process runtime makes one below a folder that it was given, in a v1 or v2 hierarchy that we may write to.
"""

import os
import signal
from contextlib import suppress
from pathlib import Path

from app.runtimes.base import ContainerKey
from app.runtimes.process_table import kill


def path(parent: Path, key: ContainerKey) -> Path:
    return parent / f"jobplane-{key.pod_uid}-{key.name}-{key.attempt}"


def make(folder: Path) -> None:
    folder.mkdir(exist_ok=True)


def kill_all(folder: Path) -> None:
    """SIGKILL to all in it. In v1 a process that forks at that moment may be missed: call until `remove` is true."""
    with suppress(OSError):
        (folder / "cgroup.kill").write_text("1", encoding="ascii")
        return
    with suppress(OSError):
        for pid in (folder / "cgroup.procs").read_text(encoding="ascii").split():
            kill(int(pid), signal.SIGKILL)


def usage(folder: Path) -> tuple[int | None, int | None]:
    """CPU time in nanoseconds and bytes of memory that it uses; None for what this hierarchy does not count."""
    cpu = _number(folder / "cpuacct.usage")
    if cpu is None and (micros := _entry(folder / "cpu.stat", "usage_usec")) is not None:
        cpu = micros * 1000
    memory = _number(folder / "memory.current")
    if memory is None:
        memory = _number(folder / "memory.usage_in_bytes")
    if memory is not None:
        memory -= min(memory, _entry(folder / "memory.stat", "inactive_file") or 0)  # a cache that gives way
    return cpu, memory


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


def remove(folder: Path) -> bool:
    """False while somebody is in it."""
    try:
        os.rmdir(folder)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True
