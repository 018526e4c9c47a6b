"""Device assignments: which pod has which of the node's devices. On disk, so that no device has two pods after a restart.

Pinned before a pod's first container starts, for all of its containers; let go when nothing of the pod runs any more.
Used by `starts` and `container_config`; `pods` and `pod_termination` let go.
"""

import os
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec

from app.agent.node.device_sources import EMPTY, GPU, Inventory
from app.kinds.pod.pod import Pod
from app.plans.kubelet import device_allocation as device_plan
from app.plans.kubelet.device_allocation import Allocation, InsufficientDevicesError, requested_devices
from app.structured_logging import Logger

logger = Logger(__name__)

# What programs read to find their devices, and what they find where there are none for them.
_VISIBLE = {GPU: ("NVIDIA_VISIBLE_DEVICES", "void"), "amd.com/gpu": ("AMD_VISIBLE_DEVICES", "none")}
_VISIBLE_TO_PROCESSES = {GPU: "CUDA_VISIBLE_DEVICES", "amd.com/gpu": "ROCR_VISIBLE_DEVICES"}


class DevicesInUseError(Exception):
    """The devices that are missing belong to pods that are being removed."""


class DeviceAllocation(NamedTuple):
    """Device files of a container, and variables that name its devices."""

    files: tuple[str, ...] = ()
    env: Mapping[str, str] = {}


NOTHING = DeviceAllocation()


class DeviceManager:
    """All of one node's.

    record:  the file that remembers pins; a node without devices needs none.
    isolated: containers see only the device files that they are given.
    """

    def __init__(self, inventory: Inventory = EMPTY, record: Path | None = None, *, isolated: bool = False) -> None:
        self._inventory, self._record, self._isolated = inventory, record, isolated
        self._pins: dict[str, Allocation] = _read(record) if record else {}
        self._leaving: set[str] = set()

    def pin(self, pod: Pod) -> None:
        """Unless it has them already. Raises TooFewError, SoonError, and OSError if it cannot be remembered."""
        uid = pod.metadata.uid
        if uid in self._pins or not self._is_asked(pod):
            return
        try:
            pins = device_plan.allocate(pod, self._free(self._pins.keys()))
        except InsufficientDevicesError as error:
            device_plan.allocate(pod, self._free(self._pins.keys() - self._leaving))
            raise DevicesInUseError(str(error)) from error
        self._remember({**self._pins, uid: pins})

    def allocation_of(self, uid: str, container: str) -> DeviceAllocation:
        if not self._inventory.devices:
            return NOTHING
        pins = self._pins.get(uid, {}).get(container, {})
        files = [file for resource, ids in pins.items() for file in self._files(resource, ids)]
        env = {name: value for resource in self._inventory.devices for name, value in self._env(resource, pins)}
        return DeviceAllocation(tuple(dict.fromkeys(files)), env)

    def leave(self, uid: str) -> None:
        """The pod is being removed: others may wait for what it has."""
        if uid in self._pins:
            self._leaving.add(uid)

    def release(self, uid: str) -> None:
        """Nothing of the pod runs any more."""
        self._leaving.discard(uid)
        if uid in self._pins:
            self._remember({other: pins for other, pins in self._pins.items() if other != uid})

    def uids(self) -> set[str]:
        """Pods that have some."""
        return set(self._pins)

    def _is_asked(self, pod: Pod) -> bool:
        containers = (*pod.spec.init_containers, *pod.spec.containers)
        return any(requested_devices(each, resource) for each in containers for resource in self._inventory.devices)

    def _free(self, uids: Collection[str]) -> dict[str, list[str]]:
        """Without what these pods have."""
        taken = {
            (resource, one)
            for uid in uids
            for pins in self._pins[uid].values()
            for resource, ids in pins.items()
            for one in ids
        }
        return {
            resource: [each.id for each in devices if (resource, each.id) not in taken]
            for resource, devices in self._inventory.devices.items()
        }

    def _files(self, resource: str, ids: Collection[str]) -> Iterator[str]:
        for each in self._inventory.devices.get(resource, ()):
            if each.id in ids:
                yield from each.files
        yield from self._inventory.shared.get(resource, ())

    def _env(self, resource: str, pins: Mapping[str, tuple[str, ...]]) -> Iterator[tuple[str, str]]:
        """Also for containers without: images may say that they want to see all, and processes would."""
        ids = ",".join(pins.get(resource, ()))
        if resource in _VISIBLE:
            name, nothing = _VISIBLE[resource]
            yield name, ids or nothing
        if resource in _VISIBLE_TO_PROCESSES and not self._isolated:
            yield _VISIBLE_TO_PROCESSES[resource], ids

    def _remember(self, pins: dict[str, Allocation]) -> None:
        """On disk first: what is not remembered is not given."""
        if self._record is not None:
            fresh = self._record.with_name(f"{self._record.name}.new")
            with fresh.open("wb") as file:
                file.write(msgspec.json.encode(pins))
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._record)
        self._pins = pins


def _read(record: Path) -> dict[str, Allocation]:
    try:
        return msgspec.json.decode(record.read_bytes(), type=dict[str, Allocation])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        logger.error("cannot read which pods have which devices; starting anew", path=str(record), error=error)
        return {}
