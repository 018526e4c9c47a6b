"""Registry of metrics: all instruments of one process, and the collectors that compute numbers when they are scraped.

Each store has one, each agent has one; nothing is global. `render` is called by the endpoint of a scrape. A collector that
fails or takes too long costs its own numbers only, and `jobplane_scrape_collector_success` says so.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from itertools import chain
from typing import TypeVar

from app.metrics.exposition import format_families
from app.metrics.instruments import SECONDS, Counter, Family, Gauge, Histogram, Labels, family
from app.metrics.process import collect_process
from app.structured_logging import Logger

logger = Logger(__name__)
COLLECTOR_SECONDS = 5.0  # Prometheus itself gives up a scrape after ten by default
Instrument = TypeVar("Instrument", Counter, Gauge, Histogram)
Collector = Callable[[], Awaitable[Iterable[Family]]]


class MetricsRegistry:
    """The metrics of one process."""

    def __init__(self) -> None:
        self._instruments: dict[str, Counter | Gauge | Histogram] = {}
        self._collectors: dict[str, Collector] = {}

    def counter(self, name: str, help_: str, labels: Labels = ()) -> Counter:
        """Return the counter of this name, made at the first call."""
        return self._one(Counter(name, help_, labels))

    def gauge(self, name: str, help_: str, labels: Labels = ()) -> Gauge:
        """Return the gauge of this name, made at the first call."""
        return self._one(Gauge(name, help_, labels))

    def histogram(self, name: str, help_: str, labels: Labels = (), buckets: tuple[float, ...] = SECONDS) -> Histogram:
        """Return the histogram of this name, made at the first call."""
        return self._one(Histogram(name, help_, labels, buckets))

    def _one(self, made: Instrument) -> Instrument:
        found = self._instruments.setdefault(made.name, made)
        if not isinstance(found, type(made)) or found.label_names != made.label_names:
            raise ValueError(f"metric {made.name} is declared twice, and differently")
        return found

    def add_collector(self, name: str, collect: Collector) -> None:
        """Have numbers computed at each scrape. A later collector of the same name takes the place of the one before."""
        self._collectors[name] = collect

    def remove_collector(self, name: str) -> None:
        """Stop computing what a collector computed."""
        self._collectors.pop(name, None)

    async def render(self) -> bytes:
        """Return the answer to a scrape."""
        computed: list[Family] = []
        success: list[tuple[dict[str, str], float]] = []
        for name, collect in list(self._collectors.items()):
            families = await _collected(name, collect)
            computed += families or ()
            success.append(({"collector": name}, float(families is not None)))
        told = family(
            "jobplane_scrape_collector_success",
            "Whether the numbers of a collector could be computed.",
            "gauge",
            success,
        )
        counted = (each.collect() for each in list(self._instruments.values()))
        return format_families(chain(counted, computed, collect_process(), [told])).encode()


async def _collected(name: str, collect: Collector) -> list[Family] | None:
    """Return the samples of a collector; None, after a line in the log, if it fails."""
    try:
        async with asyncio.timeout(COLLECTOR_SECONDS):
            return list(await collect())
    except Exception as error:
        logger.warning("cannot compute metrics", names=name, error=error)
        return None
