"""Numbers of the writer of one process: how long transactions take, how much they hold, how many write sets wait.

`app.store.commit` counts them; a scrape shows them.
"""

from collections.abc import Callable, Iterable

from app.metrics.instruments import Family, family
from app.metrics.registry import MetricsRegistry

SETS = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0, 128.0, 256.0)


class CommitMetrics:
    """`count_waiting` tells how many write sets wait for a transaction."""

    def __init__(self, metrics: MetricsRegistry, count_waiting: Callable[[], int]) -> None:
        self._count_waiting = count_waiting
        self._seconds = metrics.histogram(
            "jobplane_commit_duration_seconds", "Duration of a transaction of the writer, in seconds."
        )
        self._sets = metrics.histogram(
            "jobplane_commit_write_sets", "Write sets that share one transaction (group commit).", buckets=SETS
        )
        self._answers = metrics.counter(
            "jobplane_write_sets_total",
            "Write sets, by result: committed, or refused because an object had changed.",
            ("result",),
        )
        self._failed = metrics.counter("jobplane_failed_commits_total", "Transactions that failed, or broke off.")
        metrics.add_collector("commit", self._collect)

    def note_committed(self, seconds: float, sets: int) -> None:
        self._seconds.observe(seconds)
        self._sets.observe(sets)

    def note_answered(self, sets: int, refused: int) -> None:
        self._answers.add(sets - refused, "committed")
        self._answers.add(refused, "refused")

    def note_failed(self) -> None:
        self._failed.inc()

    async def _collect(self) -> Iterable[Family]:
        name, help_ = "jobplane_commit_queue_depth", "Write sets that wait for a transaction."
        return [family(name, help_, "gauge", [({}, self._count_waiting())])]
