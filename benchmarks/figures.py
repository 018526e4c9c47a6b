"""What a case gives back, and how several runs of it become one row. Cases make figures; the report reads them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean, median


@dataclass(frozen=True, kw_only=True)
class Figure:
    """One number. `target` is the promise it is held against; `note` says what the number needs to be understood.

    parts: what it is the sum of, for programs that read the results: by process.
    """

    name: str
    value: float
    unit: str
    target: float | None = None
    higher_is_better: bool = False
    note: str = ""
    parts: Mapping[str, float] = field(default_factory=dict)

    @property
    def is_met(self) -> bool:
        if self.target is None:
            return True
        return self.value >= self.target if self.higher_is_better else self.value <= self.target


def percentile(values: Sequence[float], percent: float) -> float:
    """The smallest value that at least `percent` of all do not exceed."""
    return sorted(values)[max(0, math.ceil(len(values) * percent / 100) - 1)]


def spread(
    name: str,
    values: Sequence[float],
    unit: str,
    p50_target: float | None = None,
    note: str = "",
    p99_target: float | None = None,
) -> list[Figure]:
    """Median and 99th percentile of the same thing."""
    return [
        Figure(name=f"{name}, p50", value=percentile(values, 50), unit=unit, target=p50_target, note=note),
        Figure(name=f"{name}, p99", value=percentile(values, 99), unit=unit, target=p99_target),
    ]


def slope(at: Sequence[float], values: Sequence[float]) -> float:
    """By how much the values grow from one to the next of `at`: the straight line of least squares."""
    middle, mean = fmean(at), fmean(values)
    spread_out = sum((each - middle) ** 2 for each in at)
    together = sum((each - middle) * (value - mean) for each, value in zip(at, values, strict=True))
    return together / spread_out if spread_out else 0.0


def cpu_each(name: str, seconds: dict[str, float], count: int) -> Figure:
    """CPU time of the whole service per thing done, told apart by process."""
    each = {role: used * 1000 / count for role, used in sorted(seconds.items(), key=lambda pair: -pair[1])}
    note = ", ".join(f"{role} {used:.2f}" for role, used in each.items() if used >= 0.005)
    return Figure(name=f"CPU per {name}", value=sum(each.values()), unit="ms", note=note, parts=each)


def middle(runs: Sequence[Sequence[Figure]]) -> list[Figure]:
    """Each figure's median run, whole: its note belongs to its value."""
    return [_median_of([run[place] for run in runs]) for place in range(len(runs[0]))] if runs else []


def _median_of(figures: Sequence[Figure]) -> Figure:
    ordered = sorted(figures, key=lambda each: each.value)
    return ordered[(len(ordered) - 1) // 2]


def ratios(ours: Sequence[Sequence[Figure]], theirs: Sequence[Sequence[Figure]]) -> list[float]:
    """Ours over theirs, figure by figure: the median of pairs that ran next to each other."""
    pairs = list(zip(ours, theirs, strict=False))
    return [median(_ratio(a[place], b[place]) for a, b in pairs) for place in range(len(ours[0]))] if pairs else []


def _ratio(ours: Figure, theirs: Figure) -> float:
    return ours.value / theirs.value if theirs.value else math.nan
