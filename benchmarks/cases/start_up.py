"""How long a fresh start takes."""

from statistics import median

from benchmarks.case import Case
from benchmarks.cluster import Checkout
from benchmarks.figures import Figure
from benchmarks.load import scaled

COUNT = 5


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    took = []
    for _ in range(scaled(COUNT, scale)):
        async with checkout.up("process", settle=0) as cluster:
            took.append(cluster.ready_after)
    note = f"{min(took):.2f} to {max(took):.2f}"
    return [Figure(name="up to /readyz", value=median(took), unit="s", target=5, note=note)]


CASE = Case(name="start-up", about="`jobplane up` on a new folder until /readyz answers 200, median of 5", run=run)
