"""Node pressure: readings of memory, disk and pids against a kubelet's thresholds.

`node` asks for conditions, `eviction_manager` for what is short, `starts` whether to take a pod. What a platform does not
tell is taken for plenty.
"""

import os
import re
from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from app.agent.clock import Clock
from app.kinds.core.node import NodeCondition
from app.machinery import quantity
from app.plans.kubelet.node_pressure_eviction import DISK, MEMORY, PIDS, SIGNALS, Shortage, format_bytes

HELD = timedelta(minutes=5)  # for which a condition stays after it was last true, so that it does not flutter


class ThresholdsError(Exception):
    """Thresholds that cannot be read."""


class Reading(NamedTuple):
    """How much is free, and of how much."""

    available: int
    total: int


class Threshold(NamedTuple):
    """An amount, or a share of the total."""

    amount: int = 0
    share: float = 0.0

    def of(self, total: int) -> int:
        return self.amount or int(total * self.share)


Thresholds = Mapping[str, Threshold]
Readings = Mapping[str, Reading]

# A kubelet's, and one for process ids, for which it has none.
THRESHOLDS: Thresholds = {
    "memory.available": Threshold(amount=100 << 20),
    "nodefs.available": Threshold(share=0.10),
    "nodefs.inodesFree": Threshold(share=0.05),
    "pid.available": Threshold(share=0.05),
}
_FORM = re.compile(r"([A-Za-z.]+)<([0-9.]+)(%|[A-Za-z]*)")


def eviction_thresholds(text: str) -> Thresholds:
    """Like a kubelet's evictionHard, `memory.available<100Mi,nodefs.available<10%`; empty: the defaults.

    Raises ThresholdsError.
    """
    if not text:
        return THRESHOLDS
    found = {}
    for part in filter(None, text.split(",")) if text != "none" else ():
        form = _FORM.fullmatch(part.strip())
        if form is None or form[1] not in SIGNALS:
            raise ThresholdsError(
                f"{part!r} is not a threshold such as memory.available<100Mi or <5%, with one of {', '.join(SIGNALS)}"
            )
        try:
            found[form[1]] = _threshold(form[2], form[3])
        except ValueError as error:
            raise ThresholdsError(f"{part!r}: {error}") from error
    return found


def _threshold(number: str, unit: str) -> Threshold:
    return Threshold(share=float(number) / 100) if unit == "%" else Threshold(amount=quantity.value(number + unit))


class Pressures:
    """Of one machine. `disk`: a path on the file system that pods fill."""

    def __init__(self, disk: Path, clock: Clock, limits: Thresholds = THRESHOLDS, proc: Path = Path("/proc")) -> None:
        self._disk, self._clock, self.limits, self._proc = disk, clock, limits, proc
        self._last: dict[str, datetime] = {}

    def shortages(self) -> list[Shortage]:
        """Read anew."""
        found = short(read(self._disk, self._proc), self.limits)
        self._last |= {SIGNALS[each.signal][0]: self._clock.now() for each in found}
        return found

    def under(self) -> set[str]:
        """Types of conditions that are true, by the last reading."""
        return {condition for condition, at in self._last.items() if self._clock.now() - at < HELD}

    def conditions(self) -> tuple[NodeCondition, ...]:
        self.shortages()
        return conditions(self.under())


def short(now: Readings, limits: Thresholds) -> list[Shortage]:
    """In the order in which something is done about it."""
    found = []
    for signal in SIGNALS:
        left, threshold = now.get(signal), limits.get(signal)
        if left is not None and threshold is not None and left.available < (least := threshold.of(left.total)):
            write = str if signal in ("nodefs.inodesFree", "pid.available") else format_bytes
            found.append(Shortage(signal, write(least), write(left.available)))
    return found


def read(disk: Path, proc: Path = Path("/proc")) -> Readings:
    found: dict[str, Reading] = {}
    if memory := _memory(proc / "meminfo"):
        found["memory.available"] = memory
    files = os.statvfs(disk)
    if files.f_blocks:
        found["nodefs.available"] = Reading(files.f_bavail * files.f_frsize, files.f_blocks * files.f_frsize)
    if files.f_files:  # some file systems have none to run out of
        found["nodefs.inodesFree"] = Reading(files.f_favail, files.f_files)
    if pids := _pids(proc):
        found["pid.available"] = pids
    return found


def _memory(meminfo: Path) -> Reading | None:
    sizes = {name: rest.split() for name, _, rest in (line.partition(":") for line in _text(meminfo).splitlines())}
    if "MemAvailable" not in sizes or "MemTotal" not in sizes:
        return None
    return Reading(int(sizes["MemAvailable"][0]) * 1024, int(sizes["MemTotal"][0]) * 1024)


def _pids(proc: Path) -> Reading | None:
    """Threads take ids, too; both limits count."""
    limits = [int(text) for name in ("pid_max", "threads-max") if (text := _text(proc / "sys" / "kernel" / name))]
    taken = _text(proc / "loadavg").split()  # 0.01 0.02 0.03 2/345 6789
    if not limits or len(taken) <= 3:
        return None
    return Reading(min(limits) - int(taken[3].partition("/")[2]), min(limits))


def _text(path: Path) -> str:
    try:
        return path.read_text().strip()
    except OSError:
        return ""


def conditions(under: Collection[str]) -> tuple[NodeCondition, ...]:
    """MemoryPressure, DiskPressure and PIDPressure, in a kubelet's words."""
    return (
        _condition(MEMORY, MEMORY in under, "{}Memory", "{} memory available"),
        _disk(DISK in under),
        _condition(PIDS, PIDS in under, "{}PID", "{} PID available"),
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
        type=DISK,
        status="True" if short else "False",
        reason="KubeletHasDiskPressure" if short else "KubeletHasNoDiskPressure",
        message="kubelet has disk pressure" if short else "kubelet has no disk pressure",
    )
