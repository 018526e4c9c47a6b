"""The one shape of every case."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from benchmarks.cluster import Checkout
from benchmarks.figures import Figure


@dataclass(frozen=True, kw_only=True)
class Case:
    """`run(checkout, scale)` starts what it measures, measures, and ends it; `about` tells its size at scale 1.

    missing: what this machine lacks for it, such as programs; with anything missing it is skipped.
    longest: seconds for one run.
    """

    name: str
    about: str
    run: Callable[[Checkout, float], Awaitable[list[Figure]]]
    missing: Callable[[], Sequence[str]] = tuple
    longest: float = 400.0
