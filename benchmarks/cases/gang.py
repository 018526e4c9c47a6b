"""How soon a large gang has its places: all of its pods are bound in one write set, so the last binding is that of all."""

import asyncio
import time

from app.store import Store, open_store
from benchmarks.case import Case
from benchmarks.cases.schedule import LABEL, bound, create_nodes, dsn
from benchmarks.cluster import Checkout
from benchmarks.figures import Figure, spread
from benchmarks.jobs import JOBS, job
from benchmarks.load import scaled

COUNT, NODES, ROUNDS = 1_000, 200, 5
PATIENCE = 60.0
# The database's clock is ours: it runs on this machine. What is recorded is the beginning of a transaction.
_LAST_CREATED = """
select extract(epoch from max(recorded_at)) from history where kind = 'pods' and change = 'A' and namespace = 'default'
"""


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    count = scaled(COUNT, scale)
    took = []
    async with (
        checkout.up(settle=5.0, environment=_gates(checkout)) as cluster,
        open_store(dsn(cluster), ring_bytes=0) as store,
    ):
        for number in range(ROUNDS):
            await create_nodes(store, NODES, first=NODES * number)
            gang = job(
                f"gang-{number}",
                pod={"nodeSelector": {LABEL: "true"}},
                completionMode="Indexed",
                completions=count,
                parallelism=count,
            )
            gang["metadata"]["labels"] = {"jobplane.dev/gang": "true"}
            async with cluster.client.connection() as connection:
                await connection.post(JOBS, gang)
            took.append(await _milliseconds(store, count * (number + 1)))
            await cluster.settle(10.0)
    return spread("last pod's creation to last binding", took, "ms", 500)


def _gates(checkout: Checkout) -> dict[str, str]:
    """Gangs need a feature gate from decision 40 on; before that it was unknown."""
    has_gate = (checkout.path / "app/kinds/scheduling/podgroup_v1alpha3.py").exists()
    return {"JOBPLANE_FEATURE_GATES": "GenericWorkload=true"} if has_gate else {}


async def _milliseconds(store: Store, pods: int) -> float:
    async with asyncio.timeout(PATIENCE):
        while True:
            if await bound(store) >= pods:
                return (time.time() - float(await store.pool.fetchval(_LAST_CREATED))) * 1000
            await asyncio.sleep(0.005)


CASE = Case(name="gang", about="five gangs of 1,000 pods in turn, for each 200 more nodes without agents", run=run)
