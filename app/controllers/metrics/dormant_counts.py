"""Dormant counts: how many dormant objects there are, by kind, namespace and result. Read by the metrics of the state.

The database counts them once, as of one revision. What the mirror tells of them is added; until the database has answered it is
remembered, as some of it is counted already. The manager calls `read` when the mirror follows the feed.
"""

from typing import NamedTuple

from app.machinery.base import Object
from app.plans.jobs.dormancy import read_summary, summarize
from app.store import Key, Mirror, Store


class Group(NamedTuple):
    """result: `Complete` or `Failed` of Jobs, the phase of pods."""

    kind: str
    namespace: str
    result: str


class Numbers(NamedTuple):
    """Objects of a group, and the pods that they have counted if they are Jobs."""

    objects: int
    succeeded: int
    failed: int


_NONE = Numbers(0, 0, 0)


class DormantCounts:
    def __init__(self, mirror: Mirror) -> None:
        self._mirror = mirror
        self._early: list[tuple[int, Group, Numbers]] = []  # with revisions, until the database has counted
        self.is_complete = False
        self.numbers: dict[Group, Numbers] = {}

    def add(self, key: Key, obj: Object, sign: int) -> None:
        """Count an object that has become dormant, or no longer (-1)."""
        result, succeeded, failed = read_summary(summarize(obj))
        group = Group(key.kind, key.namespace, result)
        change = Numbers(sign, sign * succeeded, sign * failed)
        self._count(group, change)
        if not self.is_complete:
            self._early.append((self._mirror.revision, group, change))

    def _count(self, group: Group, change: Numbers) -> None:
        sums = zip(self.numbers.pop(group, _NONE), change, strict=True)
        numbers = Numbers(*(one + other for one, other in sums))
        if numbers != _NONE:
            self.numbers[group] = numbers

    async def read(self, store: Store) -> None:
        """Have the database count what was dormant before, and go on from there."""
        counts = await store.dormant.counts()
        await store.feed.reach(counts.revision)
        self.numbers = {Group(*group): Numbers(*numbers) for group, numbers in counts.numbers.items()}
        for revision, group, change in self._early:
            if revision > counts.revision:
                self._count(group, change)
        self._early.clear()
        self.is_complete = True
