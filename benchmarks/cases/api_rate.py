"""What one API process does in a second: GET of one Job, POST of Jobs. Plain HTTP on the loopback, 64 connections.

The Jobs name another controller, so that nothing but the API, and Postgres behind it, works on them.
"""

import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks.case import Case
from benchmarks.cluster import Checkout, Cluster
from benchmarks.figures import Figure, cpu_each, percentile
from benchmarks.jobs import JOBS, job
from benchmarks.load import get_all, post_all, scaled

CONNECTIONS, READS, WRITES = 64, 20_000, 6_000


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    async with checkout.up(tls=False) as cluster, cluster.client.connections(CONNECTIONS) as connections:
        await post_all(connections, JOBS, (_theirs(f"warm-{number}") for number in range(CONNECTIONS * 4)))
        reads, writes = scaled(READS, scale), scaled(WRITES, scale)
        path = f"{JOBS}/warm-0"
        got = await _measured(cluster, "GET", reads, 3_000, lambda: get_all(connections, path, reads))
        bodies = [_theirs(f"job-{number}") for number in range(writes)]
        posted = await _measured(cluster, "POST", writes, 1_000, lambda: post_all(connections, JOBS, bodies))
    return got + posted


async def _measured(
    cluster: Cluster, method: str, count: int, target: float, act: Callable[[], Awaitable[list[float]]]
) -> list[Figure]:
    before, began, own = cluster.cpu(), time.perf_counter(), time.process_time()
    took = await act()
    seconds, own = time.perf_counter() - began, time.process_time() - own
    spent = await cluster.spent_since(before)
    note = f"client's own CPU {own * 1000 / count:.2f} ms a request"
    rate = Figure(name=method, value=count / seconds, unit="req/s", higher_is_better=True, target=target, note=note)
    return [rate, cpu_each(method, spent, count), Figure(name=f"{method}, p99", value=percentile(took, 99), unit="ms")]


def _theirs(name: str) -> dict[str, Any]:
    return job(name, managedBy="bench.example/nobody")


CASE = Case(name="api-rate", about="GET of a Job and POST of Jobs, plain HTTP over 64 connections, one API", run=run)
