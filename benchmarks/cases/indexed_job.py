"""Throughput of the pods of one large Job."""

import time

from benchmarks.case import Case
from benchmarks.cluster import Checkout
from benchmarks.figures import Figure, cpu_each
from benchmarks.jobs import JOBS, completions, job
from benchmarks.load import scaled

COUNT, PARALLELISM, NODES = 5_000, 1_000, 20


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    count, parallelism = scaled(COUNT, scale), scaled(PARALLELISM, scale)
    large = job("large", completionMode="Indexed", completions=count, parallelism=parallelism)
    async with (
        checkout.up(nodes=NODES) as cluster,
        completions(cluster.client) as completed,
        cluster.client.connection() as connection,
    ):
        before, began = cluster.cpu(), time.time_ns()
        await connection.post(JOBS, large)
        await completed.reach(1)
        seconds = (completed.at["large"] - began) / 1e9
        spent = await cluster.spent_since(before)
    return [
        Figure(name="throughput", value=count / seconds, unit="pods/s", target=500, higher_is_better=True),
        cpu_each("pod", spent, count),
    ]


CASE = Case(
    name="indexed-job",
    about="one Indexed Job of 5,000 completions, parallelism 1,000, on 20 simulated nodes, POST to Complete",
    run=run,
)
