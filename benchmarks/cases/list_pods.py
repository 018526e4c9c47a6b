"""Reading many objects at once. The pods are those of one Job that fits on no node."""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Any

from benchmarks import processes
from benchmarks.case import Case
from benchmarks.cluster import Checkout
from benchmarks.figures import Figure, percentile
from benchmarks.jobs import JOBS, job
from benchmarks.load import scaled
from benchmarks.wire import Connection

COUNT, PAGE = 50_000, 500
MIB = 1 << 20
PODS = "/api/v1/namespaces/default/pods"
SETTLE_SECONDS = 120.0


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    count = scaled(COUNT, scale)
    nowhere = job("nowhere", pod={"nodeSelector": {"bench": "nowhere"}}, parallelism=count, completions=count)
    async with checkout.up() as cluster:
        async with cluster.client.connection() as connection:
            made = await _made(connection, nowhere, count)
        await cluster.settle(SETTLE_SECONDS)  # in which a connection would be closed
        api = cluster.pid_of("api")
        async with cluster.client.connection() as connection:
            idle = processes.forget_peak(api)
            size = len(await connection.get(PODS))
            full = await _timed(5, lambda: connection.get(PODS))
            more = processes.peak(api) - idle
            page = await _timed(20, lambda: connection.get(f"{PODS}?limit={PAGE}"))
            paged = await _timed(3, lambda: _all_pages(connection))
    return [
        Figure(name="pods created by their Job", value=count / made, unit="pods/s"),
        Figure(name="full LIST, p50", value=full, unit="ms", target=2_000),
        Figure(name="full LIST, size", value=size / 1e6, unit="MB"),
        Figure(name="API's memory above idle", value=more / MIB, unit="MiB", target=150),
        Figure(name=f"first page of {PAGE}, p50", value=page, unit="ms"),
        Figure(name=f"all pages of {PAGE}, p50", value=paged, unit="ms"),
    ]


async def _made(connection: Connection, nowhere: dict[str, Any], count: int) -> float:
    """The seconds until the Job has all of its pods."""
    began = time.perf_counter()
    await connection.post(JOBS, nowhere)
    while True:
        status = (await connection.read(f"{JOBS}/nowhere")).get("status", {})
        if status.get("active", 0) >= count:
            return time.perf_counter() - began
        await asyncio.sleep(0.05)


async def _timed(times: int, act: Callable[[], Awaitable[object]]) -> float:
    took = []
    for _ in range(times):
        began = time.perf_counter()
        await act()
        took.append((time.perf_counter() - began) * 1000)
    return percentile(took, 50)


async def _all_pages(connection: Connection) -> None:
    token = ""
    while True:
        page = await connection.read(f"{PODS}?limit={PAGE}" + (f"&continue={token}" if token else ""))
        token = page["metadata"].get("continue", "")
        if not token:
            return


CASE = Case(name="list-pods", about="LIST of 50,000 pending pods, whole and in pages of 500", run=run)
