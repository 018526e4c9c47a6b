"""How many pods of a class a node has room for at most: what other pods have to do with it is not asked."""

from collections.abc import Iterable

from app.plans.scheduling import filters
from app.plans.scheduling.room import Room
from app.plans.scheduling.wish import Wish


def slots(room: Room, wish: Wish) -> int:
    """By what is left; of pods that take a port of the node, one."""
    free = room.free
    least = min(max(0, free.get(name, 0)) // count for name, count in wish.needs.items())
    return min(1, least) if wish.ports else least


def most_slots(room: Room, wishes: Iterable[Wish]) -> int:
    """For pods of several classes: no more of them than this."""
    return max((slots(room, each) for each in wishes if not filters.barred(each.pod, room.node)), default=0)
