"""Pods that wait and can be treated alike, or are to be placed together: what the queue holds of them."""

from bisect import bisect_left, insort
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from app.scheduler.gangs import Group
from app.scheduler.pod_info import Order, PodInfo

_FEW = 16  # that are moved one by one; more cost less together
Entry = tuple[Order, str]
"""A pod, by its UID, and where it stands in line."""


@dataclass(slots=True, eq=False)
class Bucket:
    """Pods for which a look at one says what a look at all would say; or, with a group, pods to be placed together."""

    key: Hashable
    info: PodInfo
    group: Group | None
    fresh: list[Entry] = field(default_factory=list)  # to be looked at, in order, by UID
    vain: list[Entry] = field(default_factory=list)  # looked at already
    eased_at: int = 0  # how many events it knows of
    moved_at: int = 0
    looked_at: datetime | None = None  # when last in vain
    attempts: int = 0  # in vain, though something had happened that might have helped
    ready_at: datetime | None = None

    @property
    def first(self) -> Order:
        return min(each[0][0] for each in (self.fresh, self.vain) if each)

    @property
    def is_choosy(self) -> bool:
        """It may help it when pods come to nodes."""
        return is_choosy(self.info)


def is_choosy(info: PodInfo) -> bool:
    return bool(info.near or info.spreads)


def moved(orders: Mapping[str, Order], left: list[Entry], joined: list[Entry]) -> tuple[list[Entry], list[Entry]]:
    """From one list to the other, as far as they are in it."""
    if not left:
        return left, joined
    if len(orders) < _FEW:
        for uid, order in orders.items():
            if drop(left, (order, uid)):
                insort(joined, (order, uid))
        return left, joined
    moving = [each for each in left if each[1] in orders]
    return [each for each in left if each[1] not in orders], sorted((*joined, *moving))


def is_in(entries: list[Entry], entry: Entry, start: int = 0) -> bool:
    at = bisect_left(entries, entry, start)
    return at < len(entries) and entries[at] == entry


def drop(entries: list[Entry], entry: Entry) -> bool:
    at = bisect_left(entries, entry)
    if at == len(entries) or entries[at] != entry:
        return False
    del entries[at]
    return True
