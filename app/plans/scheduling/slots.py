"""How many pods of a class a node has room for at most: what other pods have to do with it is not asked."""

from collections.abc import Iterable

from app.kinds.pod_resources import Amounts
from app.plans.scheduling import filters
from app.plans.scheduling.room import Room
from app.plans.scheduling.wish import Wish


def slots(room: Room, wish: Wish, free: Amounts | None = None) -> int:
    """By what is left, or would be; of pods that take a port of the node, one."""
    left = room.free if free is None else free
    least = min(max(0, left.get(name, 0)) // count for name, count in wish.needs.items())
    return min(1, least) if wish.ports else least


def most_slots(room: Room, wishes: Iterable[Wish], free: Amounts | None = None) -> int:
    """For pods of several classes: no more of them than this."""
    return max((slots(room, each, free) for each in wishes if not filters.barred(each.pod, room.node)), default=0)
