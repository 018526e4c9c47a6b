"""The same work on Slurm and on Jobplane, one after the other: an array of a real `true`, 60 at a time, on one node.

CPU is that of the whole machine, but for the measuring process, as slurmstepd leaves the tree of processes that it began in.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from benchmarks import processes, slurm
from benchmarks.case import Case
from benchmarks.cluster import Checkout
from benchmarks.figures import Figure
from benchmarks.jobs import JOBS, completions, job
from benchmarks.load import scaled

COUNT = 1_000
PATIENCE = 300.0


@dataclass
class Cost:
    """What all jobs took together: seconds of time, and of CPU."""

    seconds: float = 0.0
    cpu: float = 0.0


@asynccontextmanager
async def _measured() -> AsyncIterator[Cost]:
    cost, began, busy, own = Cost(), time.monotonic(), processes.busy(), time.process_time()
    yield cost
    cost.seconds = time.monotonic() - began
    cost.cpu = processes.busy() - busy - (time.process_time() - own)


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    count = scaled(COUNT, scale)
    theirs, ours = await _on_slurm(count), await _on_jobplane(checkout, count)
    return [
        Figure(name="Jobplane", value=count / ours.seconds, unit="pods/s", higher_is_better=True),
        Figure(name="Slurm", value=count / theirs.seconds, unit="tasks/s", higher_is_better=True),
        Figure(name="Jobplane, CPU", value=ours.cpu / count * 1000, unit="ms"),
        Figure(name="Slurm, CPU", value=theirs.cpu / count * 1000, unit="ms"),
        Figure(name="Jobplane's CPU over Slurm's", value=ours.cpu / theirs.cpu, unit="x"),
    ]


async def _on_slurm(count: int) -> Cost:
    async with slurm.up() as service, _measured() as cost:
        await service.call("sbatch", f"--array=0-{count - 1}", "--output=/dev/null", "--wrap=true")
        await service.wait_until("squeue", "-h", "-t", "PD,R,CG", says="", seconds=PATIENCE)
    return cost


async def _on_jobplane(checkout: Checkout, count: int) -> Cost:
    async with (
        checkout.up("process") as cluster,
        completions(cluster.client, PATIENCE) as completed,
        cluster.client.connection() as connection,
        _measured() as cost,
    ):
        indexed = job("array", completions=count, parallelism=slurm.SLOTS, completionMode="Indexed")
        await connection.post(JOBS, indexed)
        await completed.reach(1)
    return cost


CASE = Case(
    name="slurm",
    about="an array of 1,000 tasks of a real `true`, 60 at a time, on one node of Slurm and then of Jobplane",
    run=run,
    missing=slurm.missing,
)
