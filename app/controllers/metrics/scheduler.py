"""Numbers of the scheduler, under kube-scheduler's names, and what the nodes have and what is asked of them.

`app.controllers.scheduling.scheduler` notes what happens; the rest is counted at a scrape, from its queue and its cache.
"""

import time
from collections import Counter
from collections.abc import Iterable
from datetime import datetime

from app.metrics.instruments import Family, family
from app.metrics.registry import MetricsRegistry
from app.scheduler import Cluster
from app.scheduler.scheduling_queue import SchedulingQueue

COLLECTOR = "scheduler"
PROFILE = "default-scheduler"
_SLI = tuple(0.01 * 2**power for power in range(20))  # kube-scheduler's: up to an hour and a half
_UNITS = {"cpu": ("core", 1000), "memory": ("byte", 1), "ephemeral-storage": ("byte", 1)}


class SchedulerMetrics:
    """The numbers of one scheduler."""

    def __init__(self, metrics: MetricsRegistry, queue: SchedulingQueue, cluster: Cluster) -> None:
        self._queue, self._cluster = queue, cluster
        self._since: dict[str, float] = {}  # when a pod, by UID, was first seen pending
        self._now: datetime | None = None
        self._waits = metrics.histogram(
            "scheduler_pod_scheduling_sli_duration_seconds",
            "From when a pod was first seen pending until it was bound to a node, in seconds.",
            buckets=_SLI,
        )
        self._attempts = metrics.counter(
            "scheduler_schedule_attempts_total", "Attempts to place a pod, by result.", ("result", "profile")
        )
        self._rounds = metrics.histogram(
            "scheduler_scheduling_algorithm_duration_seconds",
            "Duration of a round, which places all pods that are to be tried, in seconds.",
        )
        metrics.add_collector(COLLECTOR, self._collect)

    def note_pending(self, uid: str) -> None:
        if uid not in self._since:
            self._since[uid] = time.monotonic()

    def note_bound(self, uid: str) -> None:
        since = self._since.pop(uid, None)
        if since is not None:
            self._waits.observe(time.monotonic() - since)

    def note_gone(self, uid: str) -> None:
        self._since.pop(uid, None)

    def note_round(self, began: float, scheduled: int, unschedulable: int, now: datetime) -> None:
        """Note a round that began at `began` of `time.perf_counter`, and the time that it was planned for."""
        self._now = now
        self._rounds.observe(time.perf_counter() - began)
        self._attempts.add(scheduled, "scheduled", PROFILE)
        self._attempts.add(unschedulable, "unschedulable", PROFILE)

    async def _collect(self) -> Iterable[Family]:
        waiting = self._queue.count_entries(self._now)
        allocatable, requested = self._totals()
        return [
            family(
                "scheduler_pending_pods",
                "Pending pods, by where in the queue they are: active, backoff or unschedulable.",
                "gauge",
                [({"queue": name}, count) for name, count in waiting.items()],
            ),
            family(
                "jobplane_cluster_allocatable",
                "What all nodes offer, by resource.",
                "gauge",
                [(_labels(name), _in_unit(name, value)) for name, value in allocatable.items()],
            ),
            family(
                "jobplane_cluster_requested",
                "What the pods on all nodes request, by resource.",
                "gauge",
                [(_labels(name), _in_unit(name, value)) for name, value in requested.items()],
            ),
        ]

    def _totals(self) -> tuple[Counter[str], Counter[str]]:
        allocatable: Counter[str] = Counter()
        requested: Counter[str] = Counter()
        for node in self._cluster.node_infos.values():
            for name, amount in node.allocatable.items():
                allocatable[name] += amount
                requested[name] += amount - node.free.get(name, 0)
        return allocatable, requested


def _labels(resource: str) -> dict[str, str]:
    """Labels as kube-state-metrics spells them."""
    spelt = "".join(each if each.isalnum() else "_" for each in resource)
    return {"resource": spelt, "unit": _UNITS.get(resource, ("integer", 1))[0]}


def _in_unit(resource: str, amount: int) -> float:
    return amount / _UNITS.get(resource, ("integer", 1))[1]
