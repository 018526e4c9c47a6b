"""Which machine the figures are from; without that they mean little."""

import os
import platform
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

from benchmarks import processes


@dataclass(frozen=True, kw_only=True)
class Machine:
    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    data_on: str
    python: str
    postgres: str
    load_at_start: tuple[float, float, float]


def described(postgres: str, load: tuple[float, float, float]) -> Machine:
    return Machine(
        cpu=_field("/proc/cpuinfo", "model name") or platform.machine(),
        cores=processes.CORES,
        memory_gib=round(int(_field("/proc/meminfo", "MemTotal").split()[0]) / (1 << 20), 1),
        kernel=platform.release(),
        data_on=_filesystem(tempfile.gettempdir()),
        python=f"{platform.python_version()} in {sys.base_prefix}",
        postgres=postgres,
        load_at_start=load,
    )


def _filesystem(folder: str) -> str:
    """Of a folder. An ext4 without a journal makes new files the slower the more were deleted in the last minutes."""
    device = os.stat(folder).st_dev
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        mount, _, mounted = line.partition(" - ")
        if mount.split()[2] == f"{os.major(device)}:{os.minor(device)}":
            kind, source = mounted.split()[:2]
            has_journal = any(Path("/proc/fs/jbd2").glob(f"{Path(source).name}-*"))
            return kind if kind != "ext4" or has_journal else "ext4 without a journal"
    return "unknown"


def _field(file: str, name: str) -> str:
    for line in Path(file).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
