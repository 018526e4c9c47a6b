"""Two APIs beside one on the same Postgres: what a request costs if the same load is spread over both."""

import asyncio
import os
import subprocess
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Any

from benchmarks.case import Case
from benchmarks.cases.schedule import dsn
from benchmarks.cluster import START_SECONDS, Checkout, Cluster, answers, free_port
from benchmarks.figures import Figure
from benchmarks.jobs import JOBS, job
from benchmarks.load import get_all, post_all, scaled

CONNECTIONS, READS, WRITES, TURNS = 64, 10_000, 3_000, 3
_LEAST = 0.005  # ms of a request: roles with less are left out


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    reads, writes = scaled(READS, scale), scaled(WRITES, scale)
    spent: dict[tuple[str, int], Counter[str]] = defaultdict(Counter)
    async with (
        checkout.up(tls=False) as cluster,
        _second_api(checkout, cluster) as second,
        cluster.client.connections(CONNECTIONS) as one,
        second.client.connections(CONNECTIONS // 2) as other,
    ):
        both = [*one[: CONNECTIONS // 2], *other]
        await post_all(both, JOBS, (_theirs(f"warm-{number}") for number in range(CONNECTIONS * 4)))
        for turn in range(TURNS):
            for apis, connections in ((1, one), (2, both)):
                bodies = [_theirs(f"t{turn}-{apis}-{number}") for number in range(writes)]
                begun = _cpu(cluster, second)
                await get_all(connections, f"{JOBS}/warm-0", reads)
                read = _cpu(cluster, second)
                await post_all(connections, JOBS, bodies)
                await asyncio.sleep(1.0)  # what trails behind the last answer
                spent["GET", apis].update(_since(begun, read))
                spent["POST", apis].update(_since(read, _cpu(cluster, second)))
    return [_ratio(method, spent, count * TURNS) for method, count in (("GET", reads), ("POST", writes))]


def _ratio(method: str, spent: Mapping[tuple[str, int], Counter[str]], count: int) -> Figure:
    one, two = (spent[method, apis].total() for apis in (1, 2))
    parts = (
        f"{role} {spent[method, 1][role] * 1000 / count:.3f} and {spent[method, 2][role] * 1000 / count:.3f}"
        for role in sorted(spent[method, 2])
        if spent[method, 2][role] * 1000 / count >= _LEAST
    )
    note = f"ms with one API and with two: {', '.join(parts)}"
    return Figure(name=f"CPU per {method}, two APIs over one", value=two / one, unit="x", target=1.05, note=note)


def _cpu(cluster: Cluster, second: Cluster) -> Counter[str]:
    """By role."""
    return Counter(cluster.cpu()) + Counter({"second api": sum(second.cpu().values())})


def _since(before: Counter[str], now: Counter[str]) -> Counter[str]:
    return Counter({role: now[role] - before[role] for role in now})


@asynccontextmanager
async def _second_api(checkout: Checkout, cluster: Cluster) -> AsyncIterator[Cluster]:
    """Another API process on the same database and folder."""
    port = free_port()
    variables = {"JOBPLANE_DATABASE_URL": dsn(cluster), "JOBPLANE_DATA_DIR": str(cluster.folder)}
    child = await asyncio.create_subprocess_exec(
        *(checkout.program, "api", "--port", str(port), "--no-tls"),
        env={name: value for name, value in os.environ.items() if not name.startswith("JOBPLANE_")} | variables,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    second = replace(cluster, port=port, pid=child.pid)
    try:
        async with asyncio.timeout(START_SECONDS):
            while not await answers(second):  # noqa: ASYNC110 - there is no event for it
                await asyncio.sleep(0.1)
        yield second
    finally:
        child.terminate()
        await child.wait()


def _theirs(name: str) -> dict[str, Any]:
    return job(name, managedBy="bench.example/nobody")


CASE = Case(name="two-apis", about="GET and POST of Jobs, spread over two APIs, beside all on one; plain HTTP", run=run)
