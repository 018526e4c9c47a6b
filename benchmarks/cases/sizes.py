"""Three sizes of a lab, held against what the cost model says of them: CPU and memory of each process, but the agents'."""

import asyncio
import time

from benchmarks import processes
from benchmarks.case import Case
from benchmarks.cluster import Checkout, Cluster
from benchmarks.cost_model import Lab, Need, need
from benchmarks.figures import Figure
from benchmarks.jobs import JOBS, completions, job
from benchmarks.load import scaled
from benchmarks.wire import Connection

SECONDS = 60
LABS = (Lab(nodes=100, jobs=5), Lab(nodes=500, jobs=20), Lab(nodes=2_000, jobs=50))
MIB = 1 << 20
MOST_OFF = 1.25


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    figures: list[Figure] = []
    for lab in LABS:
        figures += await _measure(checkout, lab._replace(nodes=scaled(lab.nodes, scale), jobs=lab.jobs * scale))
    return figures


async def _measure(checkout: Checkout, lab: Lab) -> list[Figure]:
    count = round(lab.jobs * SECONDS)
    async with (
        checkout.up(nodes=lab.nodes, settle=30.0) as cluster,
        completions(cluster.client) as completed,
        cluster.client.connection() as connection,
    ):
        before, began = cluster.cpu(), time.monotonic()
        await _post_evenly(connection, lab.jobs, count)
        await completed.reach(count)
        took = time.monotonic() - began
        spent = await cluster.spent_since(before)
        memory = _memory(cluster)
    return _compare(lab, need(lab), {role: used / took for role, used in spent.items()}, memory)


async def _post_evenly(connection: Connection, rate: float, count: int) -> None:
    began = time.monotonic()
    for number in range(count):
        await asyncio.sleep(max(0.0, began + number / rate - time.monotonic()))
        await connection.post(JOBS, job(f"paced-{number}"))


def _memory(cluster: Cluster) -> dict[str, float]:
    held: dict[str, float] = {}
    for each in processes.tree(cluster.pid):
        held[each.role] = held.get(each.role, 0.0) + processes.memory(each.pid).shared / MIB
    return held


def _compare(lab: Lab, wanted: Need, cores: dict[str, float], memory: dict[str, float]) -> list[Figure]:
    name = f"{lab.nodes:,} nodes, {lab.jobs:g} Jobs/s"
    return [
        _ratio(f"{name}: CPU over the model's", cores, wanted.cores, "cores"),
        _ratio(f"{name}: memory over the model's", memory, wanted.memory, "MiB"),
    ]


def _ratio(name: str, measured: dict[str, float], wanted: dict[str, float], unit: str) -> Figure:
    note = ", ".join(f"{role} {measured.get(role, 0.0):.3g} of {each:.3g} {unit}" for role, each in wanted.items())
    value = sum(measured.get(role, 0.0) for role in wanted) / sum(wanted.values())
    return Figure(name=name, value=value, unit="times", target=MOST_OFF, note=note)


CASE = Case(
    name="sizes",
    about="three sizes of a lab for a minute each, held against the cost model of docs/how-to/size-and-retention.md",
    run=run,
    longest=900.0,
)
