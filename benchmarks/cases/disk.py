"""What finished Jobs that are kept take of the disk: how much the database grows by each."""

import asyncpg

from benchmarks.case import Case
from benchmarks.cases.kept_jobs import open_database
from benchmarks.cluster import Checkout
from benchmarks.figures import Figure
from benchmarks.jobs import JOBS, completions, job
from benchmarks.load import post_all, scaled

COUNT, CONNECTIONS = 10_000, 16
KIB = 1 << 10
_SIZE = "select pg_database_size(current_database())"
_TABLES = """select relname, pg_total_relation_size(oid) as size from pg_class
    where relkind in ('r', 'p') and relnamespace = 'public'::regnamespace order by size desc limit 6"""


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    count = scaled(COUNT, scale)
    async with checkout.up(nodes=4) as cluster:
        async with completions(cluster.client) as completed, cluster.client.connections(CONNECTIONS) as clients:
            await post_all(clients, JOBS, (job(f"warm-{number}") for number in range(100)))
            await completed.reach(100)
        connection = await open_database(cluster)
        try:
            before = await _size(connection)
            async with completions(cluster.client) as completed, cluster.client.connections(CONNECTIONS) as clients:
                await post_all(clients, JOBS, (job(f"kept-{number}") for number in range(count)))
                await completed.reach(count)
            await cluster.settle(60.0)
            grown = await _size(connection) - before
            tables = await connection.fetch(_TABLES)
        finally:
            await connection.close()
    note = ", ".join(f"{each['relname']} {each['size'] / count / KIB:.1f}" for each in tables)
    return [Figure(name="of a finished Job", value=grown / count / KIB, unit="KiB", target=6, note=note)]


async def _size(connection: asyncpg.Connection) -> int:
    """Bytes of the database, once what it would reuse anyway is free."""
    await connection.execute("vacuum")
    return int(await connection.fetchval(_SIZE))


CASE = Case(name="disk", about="10,000 finished one-pod Jobs that are kept: what the database grows by each", run=run)
