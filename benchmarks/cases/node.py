"""One node of this machine, processes as containers: how many pods it gets through, how soon one runs, what its agent holds."""

import asyncio
import time
from typing import Any

from benchmarks import processes
from benchmarks.case import Case
from benchmarks.cluster import Checkout, Cluster
from benchmarks.figures import Figure, cpu_each, spread
from benchmarks.jobs import JOBS, completions, job
from benchmarks.load import scaled
from benchmarks.pods import watched

COUNT, AT_ONCE = 1_500, 60  # pods of the Job that is all throughput
SINGLE = 40  # pods one after the other
RUNNING = 100  # pods that stand while the agent's memory is looked at
SETTLED = 8.0  # seconds after which they do
MIB = 1 << 20


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    async with checkout.up("process") as cluster:
        through = await _through(cluster, scaled(COUNT, scale))
        soon = await _soon(cluster, scaled(SINGLE, scale))
        held = await agent_memory(cluster, RUNNING)
    return [*through, *soon, held]


async def _through(cluster: Cluster, count: int) -> list[Figure]:
    async with completions(cluster.client) as completed, cluster.client.connection() as connection:
        before, began = cluster.cpu(), time.time_ns()
        await connection.post(JOBS, job("through", completions=count, parallelism=AT_ONCE))
        await completed.reach(1)
        seconds = (completed.at["through"] - began) / 1e9
        spent = await cluster.spent_since(before)
    note = "POST of the Job to Complete: API, controllers, Postgres and agent on this machine"
    return [
        Figure(name="throughput", value=count / seconds, unit="pods/s", target=150, higher_is_better=True, note=note),
        cpu_each("pod", spent, count),
    ]


async def _soon(cluster: Cluster, count: int) -> list[Figure]:
    runs, told = [], []
    async with watched(cluster.client) as seen, cluster.client.connection() as connection:
        for number in range(count):
            name, file = f"soon-{number}", cluster.folder / f"began-{number}"
            said = ["/bin/sh", "-c", f"date +%s%N >{file}.part; mv {file}.part {file}; exec sleep 0.3"]
            await connection.post(JOBS, job(name, said))
            pod = await seen.first_of(name)
            await seen.runs(pod)
            while not file.exists():  # noqa: ASYNC110 - a file announces itself to nobody
                await asyncio.sleep(0.001)
            runs.append((int(file.read_text()) - seen.bound[pod]) / 1e6)
            told.append((seen.running[pod] - seen.bound[pod]) / 1e6)
    note = "from when a watcher sees the binding to the moment that the container itself writes down"
    return [
        *spread("binding to running", runs, "ms", 30, note=note),
        *spread("binding to Running in a watch", told, "ms"),
    ]


async def agent_memory(cluster: Cluster, count: int, pod: dict[str, Any] | None = None) -> Figure:
    """With so many pods that run."""
    async with watched(cluster.client) as seen, cluster.client.connection() as connection:
        spec = {"terminationGracePeriodSeconds": 0, **(pod or {})}
        await connection.post(JOBS, job("standing", ["sleep", "300"], spec, completions=count, parallelism=count))
        async with asyncio.timeout(120):
            while len(seen.standing("standing")) < count:
                await seen.news()
        await asyncio.sleep(SETTLED)
        held = processes.memory(cluster.pid_of("agent"))
        await connection.request("DELETE", f"{JOBS}/standing?propagationPolicy=Background")
        async with asyncio.timeout(120):
            while seen.standing("standing"):
                await seen.news()
    return Figure(
        name="agent's RSS",
        value=held.resident / MIB,
        unit="MiB",
        target=60,
        note=f"{count} pods running; {held.shared / MIB:.0f} MiB of it its own (PSS)",
    )


CASE = Case(
    name="node",
    about="1,500 pods of one Job, 60 at a time; 40 Jobs one by one; 100 that stand: process runtime",
    run=run,
)
