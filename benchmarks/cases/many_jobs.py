"""Throughput of small Jobs."""

import time

from benchmarks.case import Case
from benchmarks.cluster import Checkout
from benchmarks.figures import Figure, cpu_each, percentile
from benchmarks.jobs import JOBS, completions, job
from benchmarks.load import post_all, scaled

COUNT, POSTERS, NODES = 1_000, 16, 20


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    count = scaled(COUNT, scale)
    async with (
        checkout.up(nodes=NODES) as cluster,
        completions(cluster.client) as completed,
        cluster.client.connections(POSTERS) as posters,
    ):
        before, began = cluster.cpu(), time.time_ns()
        posted = await post_all(posters, JOBS, (job(f"many-{number}") for number in range(count)))
        await completed.reach(count)
        seconds = (max(completed.at.values()) - began) / 1e9
        spent = await cluster.spent_since(before)
    return [
        Figure(name="throughput", value=count / seconds, unit="jobs/s", target=150, higher_is_better=True),
        cpu_each("Job", spent, count),
        Figure(name="POST, p50", value=percentile(posted, 50), unit="ms"),
        Figure(name="POST, p99", value=percentile(posted, 99), unit="ms"),
    ]


CASE = Case(
    name="many-jobs",
    about="1,000 Jobs of one pod on 20 simulated nodes, 16 posters, first POST to last Complete",
    run=run,
)
