"""Instruments: counters, gauges and histograms, whose values the parts of a process change and a scrape reads.

Made by `app.metrics.registry`, one for each name. All parts run on one event loop, so there are no locks: a change costs less
than a microsecond. Label values are passed in the order of the label names. A name has at most `MOST_SERIES` combinations of
label values: beyond them, all count as one whose values are `OTHER`.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import Literal, NamedTuple, TypeVar

MOST_SERIES = 10_000
OTHER = "other"
Labels = tuple[str, ...]
"""Label values, in the order of the instrument's label names."""
Type = Literal["counter", "gauge", "histogram"]
T = TypeVar("T")
SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Buckets for what mostly takes milliseconds."""


class Sample(NamedTuple):
    """One line of a scrape: the suffix of the name, names and values of labels, and the value."""

    suffix: str
    labels: tuple[tuple[str, str], ...]
    value: float


class Family(NamedTuple):
    """All samples of one name, with what they mean."""

    name: str
    help: str
    type: Type
    samples: Iterable[Sample]


def family(name: str, help_: str, type_: Type, samples: Iterable[tuple[dict[str, str], float]]) -> Family:
    """Make a family of what is computed at a scrape: labels by name, and the value."""
    return Family(name, help_, type_, [Sample("", tuple(labels.items()), value) for labels, value in samples])


def _key(series: dict[Labels, T], labels: Labels) -> Labels:
    """The labels, or those of the rest if there are too many."""
    return labels if labels in series or len(series) < MOST_SERIES else (OTHER,) * len(labels)


class _Instrument:
    type: Type

    def __init__(self, name: str, help_: str, labels: Labels = ()) -> None:
        self.name, self.help, self.label_names = name, help_, labels
        self._values: dict[Labels, float] = {} if labels else {(): 0.0}

    def value(self, *labels: str) -> float:
        """Return the value of one series; 0 if it was never changed."""
        return self._values.get(labels, 0.0)

    def collect(self) -> Family:
        """Return what a scrape shows."""
        names = self.label_names
        samples = [Sample("", tuple(zip(names, each, strict=True)), value) for each, value in self._values.items()]
        return Family(self.name, self.help, self.type, samples)

    def _add(self, amount: float, labels: Labels) -> None:
        values = self._values
        try:
            values[labels] += amount
        except KeyError:
            labels = _key(values, labels)
            values[labels] = values.get(labels, 0.0) + amount


class Counter(_Instrument):
    """A number that only rises."""

    type = "counter"

    def inc(self, *labels: str) -> None:
        self._add(1.0, labels)

    def add(self, amount: float, *labels: str) -> None:
        self._add(amount, labels)


class Gauge(_Instrument):
    """A number that rises and falls."""

    type = "gauge"

    def set(self, value: float, *labels: str) -> None:
        self._values[_key(self._values, labels)] = value

    def add(self, amount: float, *labels: str) -> None:
        self._add(amount, labels)

    def remove(self, *labels: str) -> None:
        """Forget a series: what it was about is gone."""
        self._values.pop(labels, None)


class _Series:
    """One series of a histogram: how many values fell into each bucket, and their sum."""

    __slots__ = ("counts", "sum")

    def __init__(self, buckets: int) -> None:
        self.counts = [0] * (buckets + 1)  # the last is of values beyond all bounds
        self.sum = 0.0


class Histogram:
    """Histogram: counts of values, such as durations in seconds, in buckets of rising upper bounds."""

    type: Type = "histogram"

    def __init__(self, name: str, help_: str, labels: Labels = (), buckets: tuple[float, ...] = SECONDS) -> None:
        self.name, self.help, self.label_names = name, help_, labels
        self._bounds = buckets
        self._series: dict[Labels, _Series] = {} if labels else {(): _Series(len(buckets))}

    def observe(self, value: float, *labels: str) -> None:
        series = self._series.get(labels)
        if series is None:
            series = self._series.setdefault(_key(self._series, labels), _Series(len(self._bounds)))
        series.counts[bisect_left(self._bounds, value)] += 1
        series.sum += value

    def count(self, *labels: str) -> int:
        """Return how many values one series has seen."""
        series = self._series.get(labels)
        return sum(series.counts) if series is not None else 0

    def collect(self) -> Family:
        """Return what a scrape shows."""
        return Family(self.name, self.help, self.type, list(self._samples()))

    def _samples(self) -> Iterator[Sample]:
        bounds = (*(format(bound, "g") for bound in self._bounds), "+Inf")
        for values, series in self._series.items():
            labels = tuple(zip(self.label_names, values, strict=True))
            total = 0
            for bound, count in zip(bounds, series.counts, strict=True):
                total += count
                yield Sample("_bucket", (*labels, ("le", bound)), total)
            yield Sample("_sum", labels, series.sum)
            yield Sample("_count", labels, total)
