"""Devices by CDI files (Container Device Interface): what containers need besides a device's file, as its vendor's tools write
it, such as the libraries of its driver. Called by the oci runtime.

An agent gives containers device files. A CDI device that has one of them brings its edits, and those of its whole file. Files are
JSON or YAML, in /etc/cdi and /var/run/cdi; of two devices of one name the later folder's counts.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from app.structured_logging import Logger

FOLDERS = (Path("/etc/cdi"), Path("/var/run/cdi"))
_KINDS = (".json", ".yaml", ".yml")

logger = Logger(__name__)


class DeviceNode(msgspec.Struct, rename="camel"):
    path: str
    host_path: str = ""


class CdiMount(msgspec.Struct, rename="camel"):
    host_path: str
    container_path: str
    options: list[str] = []


class Hook(msgspec.Struct, rename="camel"):
    hook_name: str
    path: str
    args: list[str] = []
    env: list[str] = []


class Edits(msgspec.Struct, rename="camel"):
    """Changes of a container's configuration."""

    env: list[str] = []
    device_nodes: list[DeviceNode] = []
    mounts: list[CdiMount] = []
    hooks: list[Hook] = []


class CdiDevice(msgspec.Struct, rename="camel"):
    name: str
    container_edits: Edits = msgspec.field(default_factory=Edits)


class CdiSpec(msgspec.Struct, rename="camel"):
    """A file."""

    kind: str
    devices: list[CdiDevice] = []
    container_edits: Edits = msgspec.field(default_factory=Edits)


def read(folders: Sequence[Path] = FOLDERS) -> list[CdiSpec]:
    """All that can be read. What cannot is logged, and left out."""
    return [found for folder in folders for file in sorted(_files(folder)) if (found := _read(file)) is not None]


def edits(specs: Sequence[CdiSpec], files: Sequence[str]) -> list[Edits]:
    """Those of the devices with these files, those of a whole file first. Pure.

    Of several devices with a file the smallest is meant: vendors have one more, `all`.
    """
    devices = {(spec.kind, device.name): (spec, device) for spec in specs for device in spec.devices}
    chosen = {id(found[1]): found for file in files if (found := _smallest([*devices.values()], file)) is not None}
    whole = {id(spec): spec.container_edits for spec, _ in chosen.values()}
    return [*whole.values(), *(device.container_edits for _, device in chosen.values())]


def _smallest(devices: Sequence[tuple[CdiSpec, CdiDevice]], file: str) -> tuple[CdiSpec, CdiDevice] | None:
    having = [each for each in devices if file in _sources(each[1])]
    return min(having, key=lambda each: len(_sources(each[1])), default=None)


def _sources(device: CdiDevice) -> list[str]:
    return [node.host_path or node.path for node in device.container_edits.device_nodes]


def apply(config: dict[str, Any], found: Sequence[Edits]) -> None:
    """Change an OCI configuration. Devices are bind mounts, as all of this runtime."""
    process, mounts = config["process"], config["mounts"]
    there = {each["destination"] for each in mounts}
    for each in found:
        process["env"] += each.env
        for at, source, options in _mounts(each):
            if at not in there:
                there.add(at)
                mounts.append({"destination": at, "type": "bind", "source": source, "options": options})
        for hook in each.hooks:
            entry = {"path": hook.path, "args": hook.args or [hook.path], "env": hook.env}
            config.setdefault("hooks", {}).setdefault(hook.hook_name, []).append(entry)


def _mounts(found: Edits) -> Iterator[tuple[str, str, list[str]]]:
    """Where, what and how."""
    for node in found.device_nodes:
        yield node.path, node.host_path or node.path, ["rbind", "rw"]
    for mount in found.mounts:
        yield mount.container_path, mount.host_path, [*dict.fromkeys(("rbind", *(mount.options or ["ro"])))]


def _files(folder: Path) -> list[Path]:
    try:
        return [each for each in folder.iterdir() if each.suffix in _KINDS]
    except OSError:
        return []


def _read(file: Path) -> CdiSpec | None:
    try:
        text = file.read_text(encoding="utf-8")
        return msgspec.convert(_parse(file, text), type=CdiSpec)
    except (OSError, ValueError) as error:
        logger.warning("cannot read a CDI file; containers do without it", path=str(file), error=error)
        return None


def _parse(file: Path, text: str) -> Mapping[str, Any]:
    """Raises ValueError."""
    if file.suffix == ".json":
        return dict(json.loads(text))
    import yaml  # only machines with such files need it

    try:
        return dict(yaml.safe_load(text))
    except (yaml.YAMLError, TypeError) as error:
        raise ValueError(str(error)) from error
