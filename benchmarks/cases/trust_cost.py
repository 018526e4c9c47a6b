"""What authorization and audit cost each request: two services run at once, and the same bursts go to each in turns.

In one, a service account that a Role allows asks, and requests are audited by the default policy. In the other, an administrator
asks, whom no Role is looked up for, and audit is off. Requests take seats in both: Priority and Fairness cannot be switched off.
What else happens on the machine hits both alike, so ratios count, and of these most that of CPU time.
"""

import asyncio
import os
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.case import Case
from benchmarks.cases.hostile_clients import account
from benchmarks.cluster import Checkout, Cluster
from benchmarks.figures import Figure
from benchmarks.load import get_all, post_all, scaled
from benchmarks.wire import Client, Connection

CONNECTIONS, ROUNDS, READS, WRITES = 16, 9, 4_000, 1_500  # requests of a round
ALLOWED = 8  # percent of throughput
PATH = "/api/v1/namespaces/good/configmaps"


@dataclass
class _Side:
    """One of the two services, and what each of its rounds came to."""

    cluster: Cluster
    connections: Sequence[Connection]
    rate: dict[str, list[float]] = field(default_factory=lambda: {"GET": [], "POST": []})
    cpu: dict[str, list[float]] = field(default_factory=lambda: {"GET": [], "POST": []})  # of the API, us each

    async def measure(self, method: str, count: int, act: Callable[[], Awaitable[list[float]]]) -> None:
        before, began = self.cluster.cpu(), time.perf_counter()
        await act()
        self.rate[method].append(count / (time.perf_counter() - began))
        spent = await self.cluster.spent_since(before)
        self.cpu[method].append(spent["api"] * 1e6 / count)


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    reads, writes = scaled(READS, scale), scaled(WRITES, scale)
    async with checkout.up() as on, checkout.up(environment={"JOBPLANE_AUDIT_LOG_PATH": "none"}) as off:
        async with on.client.connection() as admin:
            guarded = Client(on.port, await account(admin, "good"), on.client.trust)
        async with off.client.connection() as admin:
            await account(admin, "good")
        async with guarded.connections(CONNECTIONS) as some, off.client.connections(CONNECTIONS) as others:
            sides = [_Side(on, some), _Side(off, others)]
            for side in sides:
                await post_all(side.connections, PATH, _maps("warm", writes // 4))
            for number in range(ROUNDS):
                for side in sides if number % 2 else reversed(sides):
                    await _round(side, number, reads, writes)
    return [figure for method in ("GET", "POST") for figure in _figures(method, *sides)]


async def _round(side: _Side, number: int, reads: int, writes: int) -> None:
    await side.measure("GET", reads, lambda: get_all(side.connections, f"{PATH}/warm-0", reads))
    await side.measure("POST", writes, lambda: post_all(side.connections, PATH, _maps(f"m-{number}", writes)))
    await asyncio.sleep(0.2)


def _maps(name: str, count: int) -> Iterator[dict[str, Any]]:
    return ({"metadata": {"name": f"{name}-{number}"}, "data": {"key": "value"}} for number in range(count))


def _figures(method: str, on: _Side, off: _Side) -> list[Figure]:
    """How much less is done, and how much more CPU that takes, each as the median of neighbouring rounds."""
    slower = median(1 - mine / theirs for mine, theirs in zip(on.rate[method], off.rate[method], strict=True))
    dearer = median(mine / theirs - 1 for mine, theirs in zip(on.cpu[method], off.cpu[method], strict=True))
    rates = f"{median(on.rate[method]):.0f} of {median(off.rate[method]):.0f} req/s"
    spent = f"{median(on.cpu[method]):.0f} of {median(off.cpu[method]):.0f} us, load {os.getloadavg()[0]:.1f}"
    return [
        Figure(name=f"{method}, fewer a second", value=slower * 100, unit="%", target=ALLOWED, note=rates),
        Figure(name=f"{method}, more CPU of the API", value=dearer * 100, unit="%", note=spent),
    ]


CASE = Case(name="trust-cost", about="GET and POST with RBAC and audit, against neither, in turns", run=run)
