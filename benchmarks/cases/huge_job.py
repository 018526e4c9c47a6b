"""A Job so large that nothing may cost what all of its pods cost: its throughput, and the controllers' memory."""

import time

from benchmarks import processes
from benchmarks.case import Case
from benchmarks.cluster import Checkout, Cluster
from benchmarks.figures import Figure, cpu_each
from benchmarks.jobs import JOBS, completions, job
from benchmarks.load import scaled

COUNT, PARALLELISM, NODES = 100_000, 5_000, 50
PATIENCE = 350.0
MIB = 1 << 20


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    count, parallelism = scaled(COUNT, scale), scaled(PARALLELISM, scale)
    huge = job("huge", completionMode="Indexed", completions=count, parallelism=parallelism)
    async with (
        checkout.up(nodes=NODES) as cluster,
        completions(cluster.client, PATIENCE) as completed,
    ):
        before, began = cluster.cpu(), time.time_ns()
        async with cluster.client.connection() as connection:
            await connection.post(JOBS, huge)
        await completed.reach(1)
        seconds = (completed.at["huge"] - began) / 1e9
        spent = await cluster.spent_since(before)
        async with cluster.client.connection() as connection:  # the first one would have been closed as idle by now
            counted = (await connection.read(f"{JOBS}/huge"))["status"]["completedIndexes"]
        memory = _peaks(cluster)
    if counted != (f"0-{count - 1}" if count > 1 else "0"):
        raise RuntimeError(f"of {count} indexes these are complete: {counted[:200]}")
    others = ", ".join(f"{role} {size:.0f}" for role, size in memory.items() if role != "controllers")
    return [
        Figure(name="throughput", value=count / seconds, unit="pods/s", target=600, higher_is_better=True),
        cpu_each("pod", spent, count),
        Figure(name="controllers' peak memory", value=memory["controllers"], unit="MiB", target=400, note=others),
    ]


def _peaks(cluster: Cluster) -> dict[str, float]:
    """The most that our own processes have had resident, by role."""
    return {role: processes.peak(cluster.pid_of(role)) / MIB for role in ("controllers", "api", "agent")}


CASE = Case(
    name="huge-job",
    about="one Indexed Job of 100,000 completions, parallelism 5,000, on 50 simulated nodes, POST to Complete",
    run=run,
)
