"""Node info: a node with its pods, its allocatable resources and what is free. kube-scheduler's `framework.NodeInfo`."""

from dataclasses import dataclass

from app.kinds.core.node import Node
from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_resources import Amounts
from app.scheduler.pod_info import HostPort, PodInfo

UsedPorts = dict[tuple[str, int], dict[str, int]]
"""Host ports in use: by protocol and number, the count of pods at each address."""


@dataclass(slots=True, eq=False)
class PlacedPod:
    """Pod on a node, as last seen; or one that the scheduler has assumed there."""

    pod: Pod
    node: str
    info: PodInfo


class NodeInfo:
    """`allocatable` and `free` count resources in the units of `pod_resources`, and pods as `pods`.

    Scores compare CPU and memory: `nonzero_free_...` is what is free if a pod without requests counts as some; `percent_per_...`
    is the part, of 100, of one unit.

    Generations (of `Cluster.generation`): `generation` of the last change, `freed_generation` of the last that left more free,
    `node_generation` of the last change of the Node object.
    """

    __slots__ = (
        "allocatable",
        "free",
        "freed_generation",
        "generation",
        "node",
        "node_generation",
        "nonzero_free_cpu",
        "nonzero_free_memory",
        "percent_per_byte",
        "percent_per_millicpu",
        "pods",
        "used_ports",
    )

    def __init__(self, node: Node, allocatable: Amounts, pods: dict[str, PlacedPod]) -> None:
        self.node = node
        self.allocatable = allocatable
        self.free = dict(allocatable)
        self.nonzero_free_cpu, self.nonzero_free_memory = allocatable.get("cpu", 0), allocatable.get("memory", 0)
        self.percent_per_millicpu = 100 / self.nonzero_free_cpu if self.nonzero_free_cpu else 0.0
        self.percent_per_byte = 100 / self.nonzero_free_memory if self.nonzero_free_memory else 0.0
        self.used_ports: UsedPorts = {}
        self.pods = pods  # by UID
        self.generation = self.freed_generation = self.node_generation = 0
        for each in pods.values():
            self._count(each.info, 1)

    def add_pod(self, uid: str, placed: PlacedPod) -> None:
        self.pods[uid] = placed
        self._count(placed.info, 1)

    def remove_pod(self, uid: str, placed: PlacedPod) -> None:
        del self.pods[uid]
        self._count(placed.info, -1)

    def _count(self, info: PodInfo, sign: int) -> None:
        free = self.free
        for name, count in info.requests.items():
            free[name] = free.get(name, 0) - sign * count
        self.nonzero_free_cpu -= sign * info.nonzero_cpu
        self.nonzero_free_memory -= sign * info.nonzero_memory
        if info.host_ports:
            update_ports(info.host_ports, self.used_ports, sign)


def has_port_conflict(ports: tuple[HostPort, ...], used: UsedPorts) -> bool:
    """Return whether a port is in use. An empty address is all addresses, so it conflicts with each."""
    for protocol, port, ip in ports:
        addresses = used.get((protocol, port))
        if addresses and (not ip or ip in addresses or "" in addresses):
            return True
    return False


def update_ports(ports: tuple[HostPort, ...], used: UsedPorts, sign: int) -> None:
    for protocol, port, ip in ports:
        addresses = used.setdefault((protocol, port), {})
        addresses[ip] = addresses.get(ip, 0) + sign
        if not addresses[ip]:
            del addresses[ip]
        if not addresses:
            del used[protocol, port]
