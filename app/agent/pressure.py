"""Whether this machine runs short of something, and what of it pods may not have: readings, and the kubelet's thresholds.

Asked by `node` for each status. What a platform does not tell is taken for plenty.
"""

import os
from dataclasses import dataclass
from pathlib import Path

from app.kinds.node import NodeCondition

MEMORY = 100 << 20  # bytes that must be available: memory.available<100Mi
DISK, INODES = 0.10, 0.05  # shares that must be free: nodefs.available<10%, nodefs.inodesFree<5%
PIDS = 0.05  # the same of process ids; a kubelet has no threshold of its own for them


@dataclass(frozen=True)
class Readings:
    """Bytes of memory, and the shares of disk, inodes and process ids that are free."""

    memory: int
    disk: float
    inodes: float
    pids: float


def read(disk: Path, proc: Path = Path("/proc")) -> Readings:
    """`disk`: a path on the file system that pods fill."""
    found = os.statvfs(disk)
    return Readings(
        memory=_available(proc / "meminfo"),
        disk=found.f_bavail / found.f_blocks if found.f_blocks else 1.0,
        inodes=found.f_favail / found.f_files if found.f_files else 1.0,  # some file systems have none to run out of
        pids=_free_pids(proc),
    )


def _available(meminfo: Path) -> int:
    for line in _text(meminfo).splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) * 1024
    return MEMORY


def _free_pids(proc: Path) -> float:
    """Threads take ids, too; both limits count."""
    limits = [int(text) for name in ("pid_max", "threads-max") if (text := _text(proc / "sys" / "kernel" / name))]
    taken = _text(proc / "loadavg").split()  # 0.01 0.02 0.03 2/345 6789
    return 1 - int(taken[3].partition("/")[2]) / min(limits) if limits and len(taken) > 3 else 1.0


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def conditions(now: Readings) -> tuple[NodeCondition, ...]:
    """MemoryPressure, DiskPressure and PIDPressure, in a kubelet's words."""
    return (
        _condition("MemoryPressure", now.memory < MEMORY, "{}Memory", "{} memory available"),
        _disk(now.disk < DISK or now.inodes < INODES),
        _condition("PIDPressure", now.pids < PIDS, "{}PID", "{} PID available"),
    )


def _condition(kind: str, short: bool, reason: str, message: str) -> NodeCondition:
    return NodeCondition(
        type=kind,
        status="True" if short else "False",
        reason="KubeletHas" + reason.format("Insufficient" if short else "Sufficient"),
        message="kubelet has " + message.format("insufficient" if short else "sufficient"),
    )


def _disk(short: bool) -> NodeCondition:
    return NodeCondition(
        type="DiskPressure",
        status="True" if short else "False",
        reason="KubeletHasDiskPressure" if short else "KubeletHasNoDiskPressure",
        message="kubelet has disk pressure" if short else "kubelet has no disk pressure",
    )
