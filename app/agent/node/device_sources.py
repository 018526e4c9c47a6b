"""Devices of this machine: NVIDIA's GPUs as their driver reports them, or a list that is given.

Read once, when the command line starts the agent. A list is a JSON file,

    {"devices": {"nvidia.com/gpu": [{"id": "GPU-8f1c...", "files": ["/dev/nvidia0"]}, ...]},
     "shared": {"nvidia.com/gpu": ["/dev/nvidiactl"]}, "labels": {"nvidia.com/gpu.product": "..."}}

or device files in a line: `nvidia.com/gpu=/dev/nvidia0,/dev/nvidia1;example.com/fpga=/dev/fpga0`.
"""

import re
import subprocess
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from app.machinery import name_validation

GPU = "nvidia.com/gpu"
AUTO, NONE = "auto", "none"
_SHARED = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools", "nvidia-modeset")
_PATIENCE = 20  # seconds; a driver that has to wake its GPUs takes a few


class DevicesError(Exception):
    """A list of devices that cannot be read; the text says why."""


class Device(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One device: what programs call it, and its files."""

    id: str
    files: tuple[str, ...] = ()


class Inventory(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """By resource: its devices, and the files that come with any of them. `labels`: facts about them."""

    devices: Mapping[str, tuple[Device, ...]] = {}
    shared: Mapping[str, tuple[str, ...]] = {}
    labels: Mapping[str, str] = {}

    @property
    def capacity(self) -> dict[str, str]:
        return {resource: str(len(devices)) for resource, devices in self.devices.items()}


EMPTY = Inventory()


def inventory(setting: str) -> Inventory:
    """`setting`: auto, none, a file or a line. Raises DevicesError."""
    if setting == AUTO:
        return nvidia()
    if setting in ("", NONE):
        return EMPTY
    return _check(_in_line(setting) if "=" in setting else _in_file(Path(setting)))


def _in_file(path: Path) -> Inventory:
    try:
        return msgspec.json.decode(path.read_bytes(), type=Inventory)
    except OSError as error:
        raise DevicesError(f"{path}: {error.strerror}") from error
    except msgspec.MsgspecError as error:
        raise DevicesError(f"{path}: {error}") from error


def _in_line(line: str) -> Inventory:
    devices: dict[str, tuple[Device, ...]] = {}
    for part in filter(None, line.split(";")):
        resource, _, files = part.partition("=")
        devices[resource.strip()] = tuple(_device(resource.strip(), file.strip()) for file in files.split(",") if file)
    return Inventory(devices)


def _device(resource: str, file: str) -> Device:
    """NVIDIA's programs call a GPU by the number that its file ends with."""
    number = re.search(r"\d+$", file)
    return Device(number[0] if number and resource == GPU else file, (file,))


def _check(found: Inventory) -> Inventory:
    for resource, devices in found.devices.items():
        domain, slash, _ = resource.partition("/")
        if not slash or "kubernetes.io" in domain or name_validation.qualified_name(resource):
            raise DevicesError(f"{resource!r} cannot name devices: it must be like {GPU}")
        if len({each.id for each in devices}) < len(devices):
            raise DevicesError(f"two devices of {resource} have the same id")
    files = [file for devices in found.devices.values() for each in devices for file in each.files]
    for file in (*files, *(each for shared in found.shared.values() for each in shared)):
        if not file.startswith("/"):
            raise DevicesError(f"{file!r} is not the absolute path of a device file")
    return found


# NVIDIA


def nvidia(proc: Path = Path("/proc/driver/nvidia"), dev: Path = Path("/dev")) -> Inventory:
    """Return what the driver says; nothing where there is none."""
    found = [_information(path) for path in sorted(proc.glob("gpus/*/information"))]
    found = [each for each in found if (dev / f"nvidia{each.get('Device Minor')}").exists()]
    if not found:
        return EMPTY
    devices = tuple(
        Device(each.get("GPU UUID") or each["Device Minor"], (str(dev / f"nvidia{each['Device Minor']}"),))
        for each in found
    )
    shared = tuple(str(dev / name) for name in _SHARED if (dev / name).exists())
    return Inventory({GPU: devices}, {GPU: shared}, _labels(found, _memory()))


def _information(path: Path) -> dict[str, str]:
    """Lines like `Model: 		 NVIDIA A100-SXM4-40GB`."""
    with suppress(OSError):
        lines = (line.partition(":") for line in path.read_text(errors="replace").splitlines())
        return {name.strip(): value.strip() for name, _, value in lines}
    return {}


def _memory() -> str:
    """MiB of the smallest GPU, if there is a program that tells."""
    ask = ["nvidia-smi", "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    with suppress(OSError, subprocess.SubprocessError, ValueError):
        found = subprocess.run(ask, capture_output=True, text=True, timeout=_PATIENCE, check=True).stdout
        return str(min(int(line) for line in found.split()))
    return ""


def _labels(found: Iterable[Mapping[str, str]], memory: str) -> dict[str, str]:
    """As NVIDIA's feature discovery has them. GPUs that differ have no product in common."""
    found = list(found)
    products = {re.sub(r"[^A-Za-z0-9._-]+", "-", each.get("Model", "")).strip("-._")[:63] for each in found}
    labels = {f"{GPU}.present": "true", f"{GPU}.count": str(len(found))}
    if len(products) == 1 and (product := products.pop()):
        labels[f"{GPU}.product"] = product
    return labels | ({f"{GPU}.memory": memory} if memory else {})
