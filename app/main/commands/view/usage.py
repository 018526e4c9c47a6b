"""Sums of quantities: capacity of nodes, requests of pods, and usage. Pure; used by `top` and `nodes`."""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from typing import Any, NamedTuple

from app.machinery.quantity import parse

CPU, MEMORY = "cpu", "memory"
_GPU = "/gpu"  # nvidia.com/gpu, amd.com/gpu
_UNITS = ("", "Ki", "Mi", "Gi", "Ti", "Pi")
_STEP = 1024


class Amounts(NamedTuple):
    """CPUs, bytes of memory, GPUs."""

    cpu: Fraction = Fraction(0)
    memory: Fraction = Fraction(0)
    gpus: Fraction = Fraction(0)

    def plus(self, other: "Amounts") -> "Amounts":
        return Amounts(self.cpu + other.cpu, self.memory + other.memory, self.gpus + other.gpus)


def read_amounts(quantities: Mapping[str, str]) -> Amounts:
    """Read a list of resources, such as that of a node or of a container."""
    gpus = (parse(value) for name, value in quantities.items() if name.endswith(_GPU))
    return Amounts(parse(quantities.get(CPU, "0")), parse(quantities.get(MEMORY, "0")), sum(gpus, Fraction(0)))


def add_up(amounts: Iterable[Amounts]) -> Amounts:
    total = Amounts()
    for each in amounts:
        total = total.plus(each)
    return total


def requests_of(pod: Mapping[str, Any]) -> Amounts:
    """Add up what the containers of a pod ask for."""
    asked = ((each.get("resources") or {}) for each in pod["spec"]["containers"])
    return add_up(read_amounts((each.get("limits") or {}) | (each.get("requests") or {})) for each in asked)


def format_cpus(cpus: Fraction) -> str:
    """Format CPUs: 0.25, 12."""
    return f"{float(cpus):.3g}" if cpus < 100 else f"{float(cpus):.0f}"


def format_bytes(count: Fraction) -> str:
    """Format bytes: 512Mi, 7.5Gi."""
    size = float(count)
    for unit in _UNITS:
        if size < _STEP or unit == _UNITS[-1]:
            return f"{size:.3g}{unit}" if size < _STEP - 25 else f"{size:.0f}{unit}"
        size /= _STEP
    raise AssertionError


def format_share(used: Fraction, whole: Fraction) -> str:
    """Format a share as percent; - where there is nothing to share."""
    return f"{float(100 * used / whole):.0f}%" if whole else "-"
