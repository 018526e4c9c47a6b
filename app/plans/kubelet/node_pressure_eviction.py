"""Node-pressure eviction (memory, disk, processes): which pods are evicted first, and which are not admitted. Pure.

The kubelet's rules: thresholds decide when, then pods are ranked by use beyond their requests, priority, and how much they
use beyond. A pod that exceeds its limit of ephemeral storage is evicted at once. The agent's `eviction_manager` measures
and evicts.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from app.kinds.core.node import Taint
from app.kinds.pod.container import Container, ResourceRequirements
from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_resources import amount, qos_class, requests
from app.machinery import quantity
from app.plans.admission import pod_resource_usage
from app.plans.nodes.tolerations import tolerates

MEMORY, DISK, PIDS = "MemoryPressure", "DiskPressure", "PIDPressure"
STORAGE = "ephemeral-storage"
CRITICAL = 2_000_000_000  # pods of at least this priority are never evicted
MEMORY_TAINT = Taint(key="node.kubernetes.io/memory-pressure", effect="NoSchedule")
_NONE = ResourceRequirements()


class Shortage(NamedTuple):
    """A threshold that is crossed: a signal such as nodefs.available, and its amounts as Kubernetes writes them."""

    signal: str
    threshold: str
    available: str


# By signal: the node condition that it sets, and the resource by which pods are ranked.
SIGNALS: Mapping[str, tuple[str, str]] = {
    "memory.available": (MEMORY, "memory"),
    "nodefs.available": (DISK, STORAGE),
    "nodefs.inodesFree": (DISK, "inodes"),
    "pid.available": (PIDS, "pids"),
}


class Volume(NamedTuple):
    """An emptyDir on disk or in memory: its bytes, and its sizeLimit, or ""."""

    name: str
    used: int
    limit: str
    in_memory: bool = False


@dataclass(frozen=True)
class PodUsage:
    """A pod with its use in bytes: memory and disk by container, and volumes."""

    pod: Pod
    memory: Mapping[str, int] = field(default_factory=dict)
    disk: Mapping[str, int] = field(default_factory=dict)
    volumes: tuple[Volume, ...] = ()

    def used(self, resource: str) -> int:
        if resource == "memory":
            return sum(self.memory.values())
        return sum(self.disk.values()) + sum(each.used for each in self.volumes if not each.in_memory)


# Thresholds


def select_victim(pods: Iterable[PodUsage], shortage: Shortage) -> PodUsage | None:
    """None if no pod may be evicted."""
    resource = SIGNALS[shortage.signal][1]
    return min((each for each in pods if not is_critical(each.pod)), key=lambda one: _rank(one, resource), default=None)


def _rank(measured: PodUsage, resource: str) -> tuple[bool, int, int, str]:
    pod, beyond = measured.pod, 0
    if resource != "pids":  # pods do not request processes
        beyond = measured.used(resource) - requests(pod).get(resource, 0)
    return beyond <= 0, pod.spec.priority or 0, -beyond, pod.metadata.uid


def is_critical(pod: Pod) -> bool:
    return (pod.spec.priority or 0) >= CRITICAL


def eviction_message(measured: PodUsage, shortage: Shortage) -> str:
    resource = SIGNALS[shortage.signal][1]
    low = f"The node was low on resource: {resource}. "
    amounts = f"Threshold quantity: {shortage.threshold}, available: {shortage.available}. "
    return low + amounts + "".join(_describe_excess(measured, resource))


def _describe_excess(measured: PodUsage, resource: str) -> Iterator[str]:
    used = {"memory": measured.memory, STORAGE: measured.disk}.get(resource, {})
    for container in _containers(measured.pod):
        asked = (container.resources or _NONE).requests.get(resource, "0")
        if (has := used.get(container.name, 0)) > amount(resource, asked):
            yield (
                f"Container {container.name} was using {format_bytes(has)}, request is {quantity.canonical(asked)}, "
                f"has larger consumption of {resource}. "
            )


def format_bytes(units: int) -> str:
    """An amount of bytes in Kubernetes' notation."""
    return quantity.canonical(f"{units // 1024}Ki")


def _containers(pod: Pod) -> tuple[Container, ...]:
    return (*pod.spec.init_containers, *pod.spec.containers)


# Limits


def has_storage_limit(pod: Pod) -> bool:
    return any(STORAGE in (each.resources or _NONE).limits for each in _containers(pod))


def find_exceeded_limit(measured: PodUsage) -> str:
    """Return why the pod is evicted, in the kubelet's words; empty if it exceeds no limit."""
    return next(_over_limits(measured), "")


def _over_limits(measured: PodUsage) -> Iterator[str]:
    pod = measured.pod
    for volume in measured.volumes:
        if volume.limit and volume.used > quantity.value(volume.limit) > 0:
            yield f'Usage of EmptyDir volume "{volume.name}" exceeds the limit "{volume.limit}". '
    whole = pod_resource_usage.limits(pod).get(STORAGE)
    if whole is not None and measured.used(STORAGE) > amount(STORAGE, whole):
        yield f"Pod ephemeral local storage usage exceeds the total limit of containers {quantity.canonical(whole)}. "
    for container in _containers(pod):
        limit = (container.resources or _NONE).limits.get(STORAGE)
        if limit is not None and measured.disk.get(container.name, 0) > amount(STORAGE, limit):
            yield f'Container {container.name} exceeded its local ephemeral storage limit "{quantity.canonical(limit)}". '


# Admission


def find_refusal(pod: Pod, conditions: Collection[str]) -> str:
    """Return why a node under this pressure does not admit the pod; empty if it does."""
    if not conditions or is_critical(pod):
        return ""
    if set(conditions) == {MEMORY} and (
        qos_class(pod.spec) != "BestEffort" or any(tolerates(each, MEMORY_TAINT) for each in pod.spec.tolerations)
    ):
        return ""
    return f"The node had condition: [{' '.join(sorted(conditions))}]. "
