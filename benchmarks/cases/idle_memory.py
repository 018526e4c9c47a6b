"""What the service holds and does while nobody asks anything of it."""

import asyncio
from collections.abc import Iterable

from benchmarks import processes
from benchmarks.case import Case
from benchmarks.cluster import Checkout, Cluster
from benchmarks.figures import Figure
from benchmarks.processes import POSTGRES, Memory

IDLE_AFTER, WATCHED = 30.0, 5.0
MIB = 1 << 20


async def run(checkout: Checkout, scale: float) -> list[Figure]:  # noqa: ARG001 - the shape of a case; nothing to scale
    async with checkout.up("process", settle=IDLE_AFTER) as cluster:
        used = _memory(cluster)
        before = sum(cluster.cpu().values())
        await asyncio.sleep(WATCHED)
        busy = sum(cluster.cpu().values()) - before
        connections = processes.connections_to(cluster.port)
    ours = [(role, held) for role, held in used if role != POSTGRES]
    theirs = [held for role, held in used if role == POSTGRES]
    note = ", ".join(f"{role} {held.shared / MIB:.0f}" for role, held in ours)
    return [
        Figure(name="PSS without Postgres", value=_shared(held for _, held in ours), unit="MiB", target=250, note=note),
        Figure(name="RSS without Postgres", value=sum(held.resident for _, held in ours) / MIB, unit="MiB", target=250),
        Figure(name="PSS of Postgres", value=_shared(theirs), unit="MiB"),
        Figure(name="CPU while idle", value=busy / WATCHED * 100, unit="% of one"),
        Figure(name="connections to the API", value=connections, unit="connections", note="of one agent"),
    ]


def _memory(cluster: Cluster) -> list[tuple[str, Memory]]:
    return [(each.role, processes.memory(each.pid)) for each in processes.tree(cluster.pid)]


def _shared(held: Iterable[Memory]) -> float:
    return sum(each.shared for each in held) / MIB


CASE = Case(name="idle-memory", about="memory of `jobplane up` once it idles, at most 30 s after its start", run=run)
