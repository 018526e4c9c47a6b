"""Which machine the figures are from; without that they mean little."""

import platform
from dataclasses import dataclass
from pathlib import Path

from benchmarks import processes


@dataclass(frozen=True, kw_only=True)
class Machine:
    cpu: str
    cores: int
    memory_gib: float
    kernel: str
    python: str
    postgres: str
    load_at_start: tuple[float, float, float]


def described(postgres: str, load: tuple[float, float, float]) -> Machine:
    return Machine(
        cpu=_field("/proc/cpuinfo", "model name") or platform.machine(),
        cores=processes.CORES,
        memory_gib=round(int(_field("/proc/meminfo", "MemTotal").split()[0]) / (1 << 20), 1),
        kernel=platform.release(),
        python=platform.python_version(),
        postgres=postgres,
        load_at_start=load,
    )


def _field(file: str, name: str) -> str:
    for line in Path(file).read_text().splitlines():
        key, _, value = line.partition(":")
        if key.strip() == name:
            return value.strip()
    return ""
