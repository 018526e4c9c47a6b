"""A list by label among very many kept pods: 50 that have it, among a million."""

import time

from benchmarks.case import Case
from benchmarks.cases.kept_jobs import GROUP, copy_kept, pattern, restart
from benchmarks.cluster import Checkout
from benchmarks.figures import Figure, spread
from benchmarks.jobs import JOBS, completions
from benchmarks.load import post_all, scaled

COUNT, FOUND, LISTS = 1_000_000, 50, 50
PODS = "/api/v1/namespaces/default/pods"
SETTLE_SECONDS = 900.0


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    count = scaled(COUNT, scale)
    async with checkout.up(nodes=4) as cluster:
        async with completions(cluster.client) as completed, cluster.client.connections(1) as clients:
            await post_all(clients, JOBS, [pattern()])
            await completed.reach(1)
        await cluster.settle(30.0)
        await copy_kept(cluster, count)
        await restart(cluster, "first")
        await cluster.settle(SETTLE_SECONDS)
        took = []
        async with cluster.client.connection() as connection:
            for number in range(LISTS):
                group = 1 + number * 7 % max(1, count // FOUND - 1)  # the first and the last have fewer
                began = time.perf_counter()
                found = await connection.read(f"{PODS}?labelSelector={GROUP}=group-{group}")
                took.append((time.perf_counter() - began) * 1000)
                if len(found["items"]) != FOUND:
                    raise RuntimeError(f"{len(found['items'])} pods instead of {FOUND} have the label")
    figures: list[Figure] = spread(f"{FOUND} pods", took, "ms", p50_target=30)
    return figures


CASE = Case(
    name="label-lists",
    about="LIST of 50 pods by label among 1,000,000 that are kept",
    run=run,
    longest=1_800.0,  # most of it makes them
)
