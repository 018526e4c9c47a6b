"""Disk space of finished Jobs: right after they end, while they are kept, and after they are deleted.

An hour is not waited for: events are deleted as by their TTL, and history is compacted, as the leader does after an hour.
"""

import asyncio
from datetime import timedelta

import asyncpg

from app.store.compaction import compact
from app.store.table_shrinking import TABLES, shrink
from benchmarks.case import Case
from benchmarks.cases.kept_jobs import database_of, open_database
from benchmarks.cluster import Checkout, Cluster
from benchmarks.figures import Figure
from benchmarks.jobs import JOBS, completions, job
from benchmarks.load import post_all, scaled

COUNT, CONNECTIONS = 10_000, 16
EVENTS = "/api/v1/namespaces/default/events"
KIB = 1 << 10
_SIZE = "select pg_database_size(current_database())"
_READ = "select least((select revision from job_recorder), (select revision from webhook_cursor))"
_TABLES = """select relname, pg_total_relation_size(oid) as size from pg_class
    where relkind in ('r', 'p') and relnamespace = 'public'::regnamespace order by size desc limit 6"""


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    count = scaled(COUNT, scale)
    async with checkout.up(nodes=4) as cluster:
        await _run_jobs(cluster, "warm", 100)
        connection = await open_database(cluster)
        try:
            before = await _packed_size(connection)
            await _run_jobs(cluster, "kept", count)
            await cluster.settle(60.0)
            at_once, at_once_note = (await _size(connection) - before) / count / KIB, await _by_table(connection, count)
            await _age(cluster)
            kept = (await _packed_size(connection) - before) / count / KIB
            kept_note = await _by_table(connection, count)
            await _delete(cluster, JOBS)
            await _age(cluster)
            file = (await _size(connection) - before) / count / KIB
            await _shrink(cluster)
            deleted = (await _size(connection) - before) / count / KIB
        finally:
            await connection.close()
    return [
        Figure(name="of a finished Job, at once", value=at_once, unit="KiB", note=at_once_note),
        Figure(name="of a finished Job, kept for an hour", value=kept, unit="KiB", target=6, note=kept_note),
        Figure(name="of a deleted Job", value=deleted, unit="KiB", note=f"{file:.1f} before its tables were shrunk"),
    ]


async def _run_jobs(cluster: Cluster, prefix: str, count: int) -> None:
    async with completions(cluster.client) as completed, cluster.client.connections(CONNECTIONS) as clients:
        await post_all(clients, JOBS, (job(f"{prefix}-{number}") for number in range(count)))
        await completed.reach(count)


async def _delete(cluster: Cluster, path: str) -> None:
    async with cluster.client.connection() as connection:
        await connection.request("DELETE", f"{path}?propagationPolicy=Background")
    await cluster.settle(120.0)


async def _age(cluster: Cluster) -> None:
    """Delete events and compact history, as the leader does within an hour."""
    await _delete(cluster, EVENTS)
    async with asyncpg.create_pool(**database_of(cluster), min_size=1, max_size=1) as pool, asyncio.timeout(120.0):
        revision = await pool.fetchval("select revision from counter")
        while await pool.fetchval(_READ) < revision:  # noqa: ASYNC110 - what the recorder has not read stays
            await asyncio.sleep(1.0)
        await compact(pool, timedelta(0))


async def _shrink(cluster: Cluster) -> None:
    """What the leader does every ten minutes with tables of more than 64 MiB."""
    async with asyncpg.create_pool(**database_of(cluster), min_size=1, max_size=1) as pool:
        for table in TABLES:
            await shrink(pool, table, smallest=0)


async def _packed_size(connection: asyncpg.Connection) -> int:
    """Bytes of the database without what it would reuse."""
    await connection.execute("vacuum full")
    return int(await connection.fetchval(_SIZE))


async def _by_table(connection: asyncpg.Connection, count: int) -> str:
    tables = await connection.fetch(_TABLES)
    return ", ".join(f"{each['relname']} {each['size'] / count / KIB:.1f}" for each in tables)


async def _size(connection: asyncpg.Connection) -> int:
    """Bytes of the database, once what it would reuse anyway is free."""
    await connection.execute("vacuum")
    return int(await connection.fetchval(_SIZE))


CASE = Case(name="disk", about="10,000 finished one-pod Jobs that are kept: what the database grows by each", run=run)
