"""Very many suspended Jobs that are resumed at once."""

import time
from typing import Any

from benchmarks import processes
from benchmarks.case import Case
from benchmarks.cluster import Checkout
from benchmarks.figures import Figure, cpu_each, percentile
from benchmarks.jobs import JOBS, completions, job
from benchmarks.load import patch_all, post_all, scaled

COUNT, CLIENTS, NODES = 10_000, 16, 50
SETTLE_SECONDS = 60.0
MIB = 1 << 20
RESUME: dict[str, Any] = {"spec": {"suspend": False}}


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    names = [f"waiting-{number}" for number in range(scaled(COUNT, scale))]
    async with checkout.up(nodes=NODES) as cluster:
        async with cluster.client.connections(CLIENTS) as clients:
            await post_all(clients, JOBS, (job(name, suspend=True) for name in names))
        await cluster.settle(SETTLE_SECONDS)  # in which connections would be closed
        async with completions(cluster.client) as completed, cluster.client.connections(CLIENTS) as clients:
            before, began = cluster.cpu(), time.time_ns()
            patched = await patch_all(clients, [f"{JOBS}/{name}" for name in names], RESUME)
            resumed = (time.time_ns() - began) / 1e9
            await completed.reach(len(names))
            seconds = (max(completed.at.values()) - began) / 1e9
            spent = await cluster.spent_since(before)
        memory = processes.peak(cluster.pid_of("controllers")) / MIB
    done = len(completed.at)
    return [
        Figure(name="completed", value=done, unit="jobs", target=len(names), higher_is_better=True),
        Figure(name="resumed", value=done / resumed, unit="jobs/s", higher_is_better=True),
        Figure(name="throughput", value=done / seconds, unit="jobs/s", higher_is_better=True),
        cpu_each("Job", spent, done),
        Figure(name="PATCH, p99", value=percentile(patched, 99), unit="ms"),
        Figure(name="controllers' peak memory", value=memory, unit="MiB"),
    ]


CASE = Case(
    name="resumed-jobs",
    about="10,000 suspended Jobs on 50 simulated nodes, 16 clients, first resumed to last Complete",
    run=run,
)
