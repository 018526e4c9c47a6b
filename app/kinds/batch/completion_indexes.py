"""Sets of completion indexes, as Jobs write them: `1,3-5`.

Kept as intervals: 100,000 finished indexes in a row cost what one costs. Used by Job validation and by the Job plan.
"""

import re
from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice

Interval = tuple[int, int]  # first and last, both included

_BEYOND = float("inf")
_PLAIN = re.compile(r"\d{1,18}(?:-\d{1,18})?(?:,\d{1,18}(?:-\d{1,18})?)*", re.ASCII)


class IndexListError(ValueError):
    """A text that is no index list; says why in Kubernetes' words."""


@dataclass(frozen=True, slots=True)
class Indexes:
    """An immutable set of indexes. Its intervals ascend and never touch, so equal sets are equal objects."""

    intervals: tuple[Interval, ...] = ()

    @classmethod
    def of(cls, indexes: Iterable[int]) -> "Indexes":
        return cls(_merge_intervals((each, each) for each in sorted(indexes)))

    @classmethod
    def parse(cls, text: str, below: int | None = None) -> "Indexes":
        """The set that a list stands for. Raises IndexListError, also for an index that is not less than `below`."""
        if _PLAIN.fullmatch(text) and (plain := _plain(text, below)) is not None:
            return cls(_merge_intervals(plain))
        intervals: list[Interval] = []
        previous: int | None = None
        for fragment in text.split(",") if text else ():
            parts = fragment.split("-")
            if len(parts) > 2:
                raise IndexListError(
                    f'the fragment "{fragment}" violates the requirement that an index interval can have '
                    "at most two parts separated by '-'"
                )
            for part in parts:
                previous = _next(part, previous, below)
            intervals.append((int(parts[0]), int(parts[-1])))
        return cls(_merge_intervals(intervals))

    def __contains__(self, index: int) -> bool:
        place = bisect_right(self.intervals, (index, _BEYOND)) - 1
        return place >= 0 and index <= self.intervals[place][1]

    def __len__(self) -> int:
        return sum(last - first + 1 for first, last in self.intervals)

    def __iter__(self) -> Iterator[int]:
        return chain.from_iterable(range(first, last + 1) for first, last in self.intervals)

    def __str__(self) -> str:
        return ",".join(map(_format_interval, self.intervals))

    def add(self, indexes: Iterable[int]) -> "Indexes":
        return self.union(Indexes.of(indexes))

    def union(self, other: "Indexes") -> "Indexes":
        if not (self.intervals and other.intervals):
            return self if self.intervals else other
        return Indexes(_merge_intervals(sorted((*self.intervals, *other.intervals))))

    def intersection(self, other: "Indexes") -> "Indexes":
        return Indexes(tuple(_intersect(self.intervals, other.intervals)))

    def clip(self, below: int) -> "Indexes":
        """Without the indexes that a Job of `below` completions does not have."""
        if not self.intervals or self.intervals[-1][1] < below:
            return self
        kept = ((first, min(last, below - 1)) for first, last in self.intervals if first < below)
        return Indexes(tuple(kept))

    def missing(self, below: int) -> "Indexes":
        """Return what it lacks of 0 to `below` - 1."""
        starts = [0, *(last + 1 for _, last in self.intervals)]
        ends = [*(first - 1 for first, _ in self.intervals), below - 1]
        gaps = ((start, min(end, below - 1)) for start, end in zip(starts, ends, strict=True))
        return Indexes(tuple((start, end) for start, end in gaps if start <= end))

    def first_missing(self, count: int, below: int, taken: Collection[int] = ()) -> list[int]:
        """The lowest `count` indexes below `below` that are neither here nor in `taken`."""
        return list(islice((each for each in self.missing(below) if each not in taken), max(count, 0)))


def _plain(text: str, below: int | None) -> list[Interval] | None:
    """The intervals of a list that is in order, as all are that a Job has written; None for any other."""
    intervals = []
    previous = -1
    for fragment in text.split(","):
        start, dash, end = fragment.partition("-")
        first = int(start)
        last = int(end) if dash else first
        if first <= previous or last < first or (dash and last == first):
            return None
        previous = last
        intervals.append((first, last))
    return None if below is not None and previous >= below else intervals


def _next(text: str, previous: int | None, below: int | None) -> int:
    index = _number(text)
    if below is not None and index >= below:
        raise IndexListError(f'too large index: "{text}"')
    if previous is not None and previous >= index:
        raise IndexListError(f"non-increasing order, previous: {previous}, current: {index}")
    return index


def _number(text: str) -> int:
    # 18 digits fit the 64 bits that upstream reads; int() would also take blanks and underscores.
    if not (text.isascii() and text.isdigit() and len(text) <= 18):
        raise IndexListError(f'cannot convert string to integer for index: "{text}"')
    return int(text)


def _format_interval(interval: Interval) -> str:
    first, last = interval
    if first == last:
        return str(first)
    return f"{first},{last}" if first + 1 == last else f"{first}-{last}"


def _merge_intervals(intervals: Iterable[Interval]) -> tuple[Interval, ...]:
    """Ascending intervals, with those that overlap or touch made one."""
    result: list[Interval] = []
    for first, last in intervals:
        if result and first <= result[-1][1] + 1:
            result[-1] = (result[-1][0], max(result[-1][1], last))
        else:
            result.append((first, last))
    return tuple(result)


def _intersect(ours: tuple[Interval, ...], theirs: tuple[Interval, ...]) -> Iterator[Interval]:
    """The common parts of two ascending sequences, walking along both once."""
    here = there = 0
    while here < len(ours) and there < len(theirs):
        first = max(ours[here][0], theirs[there][0])
        last = min(ours[here][1], theirs[there][1])
        if first <= last:
            yield first, last
        if ours[here][1] < theirs[there][1]:
            here += 1
        else:
            there += 1
