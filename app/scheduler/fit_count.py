"""How many pods of a class a node has room for at most: what other pods have to do with it is not asked."""

from collections.abc import Iterable

from app.kinds.pod.pod_resources import Amounts
from app.scheduler import filters
from app.scheduler.node_info import NodeInfo
from app.scheduler.pod_info import PodInfo


def slots(node_info: NodeInfo, info: PodInfo, free: Amounts | None = None) -> int:
    """By what is left, or would be; of pods that take a port of the node, one."""
    left = node_info.free if free is None else free
    least = min(max(0, left.get(name, 0)) // count for name, count in info.needs.items())
    return min(1, least) if info.ports else least


def most_slots(node_info: NodeInfo, infos: Iterable[PodInfo], free: Amounts | None = None) -> int:
    """For pods of several classes: no more of them than this."""
    return max(
        (slots(node_info, each, free) for each in infos if not filters.barred(each.pod, node_info.node)), default=0
    )
