"""Node registration and status: this machine as a Node, one for each node name; a simulated fleet has many.

Every ten seconds (less often for a fleet) the API's copy is compared with the machine; a difference is written at once,
and the same again every five minutes. So a node that was declared Unknown while it was cut off is soon Ready.
"""

import asyncio
import os
import platform
import shutil
import socket
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec.structs import replace

from app.agent.clock import Clock
from app.agent.node.pressure import THRESHOLDS, Pressures, Threshold, Thresholds
from app.agent.tasks import level_of
from app.client.api import MERGE_PATCH, Api
from app.kinds.core.node import ContainerImage, Node, NodeAddress, NodeCondition, NodeStatus, NodeSystemInfo
from app.machinery import quantity
from app.machinery.base import ObjectMeta, Quantity
from app.machinery.errors import ApiError
from app.runtimes.base import RuntimeInfo
from app.structured_logging import Logger

logger = Logger(__name__)

NODES = "/api/v1/nodes"
CHECK = 10.0
RETRY = 0.25  # the first time; then twice as long each time, until it is the period
CHECKS_PER_SECOND = 5  # of a whole fleet, at most
REFRESH = timedelta(minutes=5)
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm"}


@dataclass(frozen=True, kw_only=True)
class NodeFacts:
    """What an agent says of each of its nodes. `capacity` overrides what the machine has."""

    ip: str
    disk: Path
    runtime: RuntimeInfo
    pressures: Pressures
    capacity: Mapping[str, Quantity] = field(default_factory=dict)
    labels: Mapping[str, str] = field(default_factory=dict)
    conditions: Callable[[], Sequence[NodeCondition]] = tuple


Images = Callable[[], Awaitable[tuple[ContainerImage, ...]]]


class Nodes:
    """All nodes of one agent. `images` tells which ones are there, if they mean anything."""

    def __init__(
        self, api: Api, names: Sequence[str], facts: NodeFacts, clock: Clock, images: Images | None = None
    ) -> None:
        self._api, self._names, self._facts, self._clock = api, names, facts, clock
        self._images = images
        self._is_ending = False

    async def run(self) -> None:
        period = max(CHECK, len(self._names) / CHECKS_PER_SECOND)
        async with asyncio.TaskGroup() as group:
            for position, name in enumerate(self._names):
                group.create_task(self._keep(name, period, period * position / len(self._names)))

    async def _keep(self, name: str, period: float, offset: float) -> None:
        """Check every `period` seconds. What has failed is tried again sooner: an agent often starts before its API listens."""
        pause = RETRY
        while not await self.check(name):
            await self._clock.sleep(pause)
            pause = min(2 * pause, period)
        await self._clock.sleep(offset)
        while True:
            await self._clock.sleep(period)
            await self.check(name)

    async def shut_down(self) -> None:
        """Says that they are not ready; nothing else from now on."""
        self._is_ending = True
        await asyncio.gather(*map(self.check, self._names))

    async def check(self, name: str) -> bool:
        """Register the node if it is not there, and write its status if that differs. Return whether the API has it."""
        try:
            now = self._clock.now().replace(microsecond=0)
            found = await self._find_or_register(name, now)
            images = await self._list_images(found.status)
            status = replace(self._status(name, found.status, now), images=images)
            if _differs(status, found.status):
                body = {"status": _merge_patch(status, found.status)}
                await self._api.request("PATCH", f"{NODES}/{name}/status", body, content_type=MERGE_PATCH)
        except (ApiError, OSError) as error:
            logger.at(level_of(error), "cannot write the status of a node; retrying", node=name, error=error)
            return False
        return True

    async def _list_images(self, old: NodeStatus) -> tuple[ContainerImage, ...]:
        if self._images is None:
            return ()
        try:
            return await self._images()
        except Exception as error:  # engines come and go
            logger.warning("cannot list images; the node's status keeps the last ones", error=error)
            return old.images

    def _status(self, name: str, old: NodeStatus, now: datetime) -> NodeStatus:
        return node_status(name, self._facts, old, now, SHUTTING_DOWN if self._is_ending else READY)

    async def _find_or_register(self, name: str, now: datetime) -> Node:
        """The node as the API has it; registers it, with its status, if the API has none."""
        labels = node_labels(name, self._facts)
        try:
            found = await self._api.read(f"{NODES}/{name}", Node)
        except ApiError as error:
            if error.code != 404:
                raise
            status = self._status(name, NodeStatus(), now)
            node = Node(api_version="v1", kind="Node", metadata=ObjectMeta(name=name, labels=labels), status=status)
            return msgspec.json.decode(await self._api.request("POST", NODES, node), type=Node)
        if not labels.items() <= found.metadata.labels.items():
            patch = {"metadata": {"labels": labels}}
            await self._api.request("PATCH", f"{NODES}/{name}", patch, content_type=MERGE_PATCH)
        return found


def node_labels(name: str, facts: NodeFacts) -> dict[str, str]:
    return {
        "kubernetes.io/arch": architecture(),
        "kubernetes.io/os": platform.system().lower(),
        "kubernetes.io/hostname": name,
        **facts.labels,
    }


READY = NodeCondition(type="Ready", status="True", reason="KubeletReady", message="kubelet is posting ready status")
SHUTTING_DOWN = NodeCondition(type="Ready", status="False", reason="KubeletNotReady", message="node is shutting down")


def node_status(
    name: str, facts: NodeFacts, old: NodeStatus, now: datetime, ready: NodeCondition = READY
) -> NodeStatus:
    """Status now; what others have written into `old` stays."""
    # In the form that the API keeps, or it would seem to differ for ever.
    has = {name: quantity.canonical(each) for name, each in {**capacity(facts.disk), **facts.capacity}.items()}
    gives = allocatable(facts.disk, facts.capacity, facts.pressures.limits)
    ours = (
        *facts.pressures.conditions(),
        *facts.conditions(),
        ready,
    )
    types = {each.type for each in ours}
    before = {each.type: each for each in old.conditions}
    return replace(
        old,
        capacity=has,
        allocatable={name: quantity.canonical(each) for name, each in gives.items()},
        conditions=(
            *(each for each in old.conditions if each.type not in types),
            *(_with_times(each, before.get(each.type), now) for each in ours),
        ),
        addresses=(NodeAddress(type="InternalIP", address=facts.ip), NodeAddress(type="Hostname", address=name)),
        node_info=system(facts.runtime),
    )


def _with_times(new: NodeCondition, old: NodeCondition | None, now: datetime) -> NodeCondition:
    same = old is not None and old.status == new.status
    return replace(new, last_heartbeat_time=now, last_transition_time=old.last_transition_time if same and old else now)


def _differs(new: NodeStatus, old: NodeStatus) -> bool:
    """Heartbeats count only once they are old."""
    fresh = {each.type: each.last_heartbeat_time for each in new.conditions}
    return (
        replace(new, conditions=()) != replace(old, conditions=())
        or any(_is_stale(each.last_heartbeat_time, fresh[each.type]) for each in old.conditions if each.type in fresh)
        or [_without_heartbeat(each) for each in new.conditions]
        != [_without_heartbeat(each) for each in old.conditions]
    )


def _merge_patch(new: NodeStatus, old: NodeStatus) -> dict[str, Any]:
    """Return what a merge patch says to make the new status of the old: what is no longer there has to be named."""
    body: dict[str, Any] = msgspec.to_builtins(new)
    for part in ("capacity", "allocatable"):
        body[part] = dict.fromkeys(getattr(old, part), None) | body.get(part, {})
    return body | {"images": body.get("images", [])}


def _is_stale(old: datetime | None, new: datetime | None) -> bool:
    return old is not None and new is not None and new - old >= REFRESH


def _without_heartbeat(condition: NodeCondition) -> NodeCondition:
    return replace(condition, last_heartbeat_time=None)


def allocatable(disk: Path, given: Mapping[str, Quantity], limits: Thresholds = THRESHOLDS) -> dict[str, Quantity]:
    """What pods may have: all but what must stay free, or the machine is under pressure. What was given is theirs whole."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    left = {
        "memory": _remaining(memory, limits.get("memory.available")),
        "ephemeral-storage": _remaining(shutil.disk_usage(existing(disk)).total, limits.get("nodefs.available")),
    }
    return {**capacity(disk), **left, **given}


def _remaining(total: int, threshold: Threshold | None) -> Quantity:
    return f"{max(0, total - (threshold.of(total) if threshold else 0)) // 1024}Ki"


def capacity(disk: Path) -> dict[str, Quantity]:
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": str(os.cpu_count() or 1),
        "memory": f"{memory // 1024}Ki",
        "ephemeral-storage": f"{shutil.disk_usage(existing(disk)).total // 1024}Ki",
        "pods": "110",
    }


def existing(path: Path) -> Path:
    """The path, or the nearest folder above that is there."""
    return next(each for each in (path, *path.absolute().parents) if each.exists())


def architecture() -> str:
    return ARCHITECTURES.get(platform.machine(), platform.machine())


@cache
def system(runtime: RuntimeInfo) -> NodeSystemInfo:
    return NodeSystemInfo(
        machine_id=_read("/etc/machine-id"),
        boot_id=_read("/proc/sys/kernel/random/boot_id"),
        kernel_version=platform.release(),
        os_image=_os_image(),
        container_runtime_version=f"{runtime.name}://{runtime.version}",
        kubelet_version=_version(),
        operating_system=platform.system().lower(),
        architecture=architecture(),
    )


def _version() -> str:
    try:
        return f"v{metadata.version('jobplane')}"
    except metadata.PackageNotFoundError:
        return "v0"  # a tree that was never installed


def _os_image() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        return platform.platform()


def _read(path: str) -> str:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return ""


def address_towards(server: str) -> str:
    """This machine's address as the server would see it; nothing is sent to find out."""
    url = urlsplit(server)
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
            probe.connect((url.hostname, url.port or 443))
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"
