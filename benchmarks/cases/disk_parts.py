"""What Jobs take of the disk: how much the database and its log grow by each that is kept, by further pods, and by deletion."""

import asyncio
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import asyncpg

from benchmarks.case import Case
from benchmarks.cases.kept_jobs import open_database
from benchmarks.cluster import Checkout, Cluster
from benchmarks.figures import Figure
from benchmarks.jobs import JOBS, completions, job
from benchmarks.load import delete_all, post_all, scaled
from benchmarks.steady import TABLES, WAL

COUNT, CONNECTIONS = 10_000, 16
FEWER, FURTHER = 10, 10  # a tenth as many Jobs have so many pods more, and a tenth of the first are deleted
KIB = 1 << 10
_SIZE = "select pg_database_size(current_database())"
_EVENTS = """select sum(pg_column_size(heads)) filter (where kind = 'events')::float8 / sum(pg_column_size(heads))
    from heads"""
_LEFT = "select count(*) from heads where kind in ('jobs.batch', 'pods') and name ~ $1"


@dataclass(frozen=True)
class Size:
    """Bytes: of the database, once what it would reuse anyway is free; of each table; of its log since it was made."""

    whole: int
    tables: Mapping[str, int]
    wal: int

    def since(self, before: "Size", count: int) -> "Growth":
        tables = {name: (size - before.tables.get(name, 0)) / count / KIB for name, size in self.tables.items()}
        return Growth((self.whole - before.whole) / count / KIB, tables, (self.wal - before.wal) / count / KIB)


@dataclass(frozen=True)
class Growth:
    """KiB by each of what was done."""

    whole: float
    tables: Mapping[str, float]
    wal: float

    @property
    def note(self) -> str:
        ordered = sorted(self.tables.items(), key=lambda pair: -abs(pair[1]))
        return ", ".join(f"{name} {size:.1f}" for name, size in ordered[:6])


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    count = scaled(COUNT, scale)
    async with checkout.up(nodes=4) as cluster:
        await _finish(cluster, (job(f"warm-{number}") for number in range(100)), 100)
        database = await open_database(cluster)
        try:
            return await _measure(cluster, database, count)
        finally:
            await database.close()


async def _measure(cluster: Cluster, database: asyncpg.Connection, count: int) -> list[Figure]:
    fewer = max(1, count // FEWER)
    empty = await _size(database)
    await _finish(cluster, (job(f"kept-{number}") for number in range(count)), count)
    kept = (full := await _size(database)).since(empty, count)
    events = float(await database.fetchval(_EVENTS)) * kept.tables["heads"]
    pods: dict[str, Any] = {"completions": FURTHER + 1, "parallelism": FURTHER + 1}
    await _finish(cluster, (job(f"wide-{number}", **pods) for number in range(fewer)), fewer)
    wide = (wider := await _size(database)).since(full, fewer)
    await _delete(cluster, database, fewer)
    gone = (await _size(database)).since(wider, fewer)
    note = f"{(wide.wal - kept.wal) / FURTHER:.1f} of WAL; {kept.whole:.1f} with the Job's first pod"
    return [
        Figure(name="of a finished Job", value=kept.whole, unit="KiB", note=kept.note),
        Figure(
            name="heads of its events",
            value=events,
            unit="KiB",
            note="rows and their share of the indexes; for an hour",
        ),
        Figure(name="WAL of a Job", value=kept.wal, unit="KiB"),
        Figure(name="of each further pod", value=(wide.whole - kept.whole) / FURTHER, unit="KiB", note=note),
        Figure(name="of its deletion", value=gone.whole, unit="KiB", note=f"{gone.note}; {gone.wal:.1f} of WAL"),
    ]


async def _finish(cluster: Cluster, jobs: Iterable[Mapping[str, Any]], count: int) -> None:
    async with completions(cluster.client) as completed, cluster.client.connections(CONNECTIONS) as clients:
        await post_all(clients, JOBS, jobs)
        await completed.reach(count)
    await cluster.settle(60.0)


async def _delete(cluster: Cluster, database: asyncpg.Connection, count: int) -> None:
    paths = (f"{JOBS}/kept-{number}?propagationPolicy=Background" for number in range(count))
    async with cluster.client.connections(CONNECTIONS) as clients:
        await delete_all(clients, paths)
    left = int(await database.fetchval(_LEFT, "^(kept|wide)-"))
    async with asyncio.timeout(120):
        while True:
            await cluster.settle(30.0)
            if (now := int(await database.fetchval(_LEFT, "^(kept|wide)-"))) == left:
                return
            left = now


async def _size(database: asyncpg.Connection) -> Size:
    await database.execute("vacuum")
    tables = {each["relname"]: int(each["size"]) for each in await database.fetch(TABLES)}
    return Size(int(await database.fetchval(_SIZE)), tables, int(await database.fetchval(WAL)))


CASE = Case(name="disk-parts", about="10,000 finished one-pod Jobs: events, WAL, further pods and deletion", run=run)
