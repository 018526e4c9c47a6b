"""A node, what there is on it, and what is left."""

from dataclasses import dataclass

from app.kinds.core.node import Node
from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_resources import Amounts
from app.scheduler.pod_info import HostPort, PodInfo

Ports = dict[tuple[str, int], dict[str, int]]
"""Taken host ports: by protocol and number, how many pods have it at which address."""


@dataclass(slots=True, eq=False)
class Placed:
    """A pod on a node, as it was last seen; or one that is to be there."""

    pod: Pod
    node: str
    info: PodInfo


class NodeInfo:
    """`size` and `free` count resources as `pod_resources` does, and `pods`.

    Nodes are compared by CPU and memory: `spare_...` is what is left if a pod that says nothing counts for something, and
    `per_...` the part, of 100, that one of it is.
    """

    __slots__ = (
        "eased_at",
        "free",
        "node",
        "per_cpu",
        "per_memory",
        "pods",
        "ports",
        "shaped_at",
        "size",
        "spare_cpu",
        "spare_memory",
        "touched_at",
    )

    def __init__(self, node: Node, size: Amounts, pods: dict[str, Placed]) -> None:
        self.node = node
        self.size = size
        self.free = dict(size)
        self.spare_cpu, self.spare_memory = size.get("cpu", 0), size.get("memory", 0)
        self.per_cpu = 100 / self.spare_cpu if self.spare_cpu else 0.0
        self.per_memory = 100 / self.spare_memory if self.spare_memory else 0.0
        self.ports: Ports = {}
        self.pods = pods  # by UID
        self.touched_at = self.eased_at = self.shaped_at = 0  # when anything changed; when it grew; when the node did
        for each in pods.values():
            self._count(each.info, 1)

    def put(self, uid: str, placed: Placed) -> None:
        self.pods[uid] = placed
        self._count(placed.info, 1)

    def take(self, uid: str, placed: Placed) -> None:
        del self.pods[uid]
        self._count(placed.info, -1)

    def _count(self, info: PodInfo, sign: int) -> None:
        free = self.free
        for name, count in info.needs.items():
            free[name] = free.get(name, 0) - sign * count
        self.spare_cpu -= sign * info.cpu
        self.spare_memory -= sign * info.memory
        if info.ports:
            take_ports(info.ports, self.ports, sign)


def are_taken(ports: tuple[HostPort, ...], taken: Ports) -> bool:
    """A port is taken at every address if somebody has it at all of them, and the other way round."""
    for protocol, port, ip in ports:
        there = taken.get((protocol, port))
        if there and (not ip or ip in there or "" in there):
            return True
    return False


def take_ports(ports: tuple[HostPort, ...], taken: Ports, sign: int) -> None:
    for protocol, port, ip in ports:
        there = taken.setdefault((protocol, port), {})
        there[ip] = there.get(ip, 0) + sign
        if not there[ip]:
            del there[ip]
        if not there:
            del taken[protocol, port]
