"""Table shrinking: gives back to the file system what deletions have left empty in the tables of objects.

`vacuum` makes the space of deleted rows free for new ones, and cuts off only what is empty at the end of the file. A few rows
at the end, of what still lives, hold all the space before them. So rows at the end are moved to free space further up, as
pgcompacttable does, and then cut off. `vacuum full` would lock all writers out for as long as it takes; here they wait for
one slice of rows at a time. Indexes are built anew beside the old ones.
The leader runs it as a periodic task (`app.registry.periodic_task`). A run that is killed leaves a table as good as before.
"""

import asyncio
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg

from app.store.errors import call_database
from app.store.timeline import Connection

PAGE = 8192
SMALLEST = 8192  # pages, 64 MiB: below it there is little to gain
SLICE = 32  # pages whose rows are moved at once
SAMPLE = 1_000  # pages that are looked at to estimate what rows take
SPARE = 1.25  # what a table takes that is used every day, over its rows
PASSES = 6
SHARE = 0.2  # of the time that writers are kept waiting, at most
LOCK_MILLISECONDS = 100
ROW_BYTES = 64  # of a row besides its columns: headers, and what of its page stays free
TABLES = ("versions", "heads")
_COLUMNS = {
    "versions": ("kind", "namespace", "name", "uid", "marks", "old_marks", "body", "node"),
    "heads": ("kind", "namespace", "name", "uid", "owner", "node", "marks", "dormant"),
}
_MAY_VACUUM = "select pg_has_role(relowner, 'usage') from pg_class where oid = $1::text::regclass"
_PAGES = "select pg_relation_size($1::text::regclass) / 8192"
_ROWS = "select coalesce(sum({size}), 0)::bigint from {table} tablesample system ({percent})"
_MOVE = """with gone as (delete from {table} where ctid >= $1::tid and ctid < $2::tid returning *),
    moved as (insert into {table} select * from gone returning 1) select count(*) from moved"""
# Left by a `reindex` that was killed.
_BROKEN = """select indexrelid::regclass::text from pg_index
    where indrelid = $1::text::regclass and not indisvalid and indexrelid::regclass::text like '%ccnew%'"""


@dataclass(frozen=True)
class Extent:
    """Pages of a table's file, and pages that its rows need."""

    pages: int
    needed: int

    @property
    def is_bloated(self) -> bool:
        """More than half of it is empty."""
        return self.pages > 2 * self.needed

    @property
    def end(self) -> int:
        """The page from which on all rows are to be moved: the first half, at most, takes them."""
        return max(self.needed, self.pages // 2)


class TableShrinking:
    """One pass over each table that is mostly empty."""

    name = "table shrinking"
    interval = timedelta(minutes=10)

    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def run_once(self, _: datetime) -> Mapping[str, int]:
        return {f"pages of {table}": await call_database(shrink(self._pool, table)) for table in TABLES}


async def shrink(pool: asyncpg.Pool, table: str, smallest: int = SMALLEST) -> int:
    """Give back what a table of more than `smallest` pages does not need, if that is more than half; how many pages went."""
    async with pool.acquire() as connection:
        if not await connection.fetchval(_MAY_VACUUM, table):  # another role owns the tables, and vacuums them
            return 0
        await _drop_broken_indexes(connection, table)
        before = await measure(connection, table, smallest)
        with suppress(
            asyncpg.LockNotAvailableError
        ):  # autovacuum is at work, or a long transaction: the next run tries again
            await _pass_over(connection, table, before, smallest)
        gone = before.pages - (await measure(connection, table, smallest)).pages
        if gone > 0:
            await connection.execute(f"reindex table concurrently {table}")
        return max(gone, 0)


async def _pass_over(connection: Connection, table: str, extent: Extent, smallest: int) -> None:
    """Move and cut up to PASSES times: some of the moved rows land near the end of the file again."""
    for _ in range(PASSES):
        if not extent.is_bloated:
            return
        await _cut(connection, table)  # what is free is known afterwards
        await _move(connection, table, extent)
        await _cut(connection, table)
        extent = await measure(connection, table, smallest)


async def measure(connection: Connection, table: str, smallest: int) -> Extent:
    """Estimate from a sample of its pages. A table of no more than `smallest` pages counts as full."""
    pages: int = await connection.fetchval(_PAGES, table)
    if pages <= smallest:
        return Extent(pages, pages)
    percent = min(100.0, 100.0 * SAMPLE / pages)
    size = " + ".join([str(ROW_BYTES), *(f"coalesce(pg_column_size({each}), 0)" for each in _COLUMNS[table])])
    found: int = await connection.fetchval(_ROWS.format(size=size, table=table, percent=percent))
    return Extent(pages, int(found * 100 / percent * SPARE / PAGE) + 1)


async def _cut(connection: Connection, table: str) -> None:
    await connection.execute(f"vacuum (index_cleanup on, truncate on) {table}")


async def _move(connection: Connection, table: str, extent: Extent) -> None:
    """Move rows from the end of the file on: what an interrupted run has moved need not be moved again."""
    for first in range(extent.pages - SLICE, extent.end - SLICE, -SLICE):
        began = time.monotonic()
        await _move_slice(connection, table, max(first, extent.end), first + SLICE)
        await asyncio.sleep((time.monotonic() - began) * (1 / SHARE - 1))


async def _move_slice(connection: Connection, table: str, first: int, last: int) -> None:
    """Move the rows of some pages: one statement deletes and inserts them, under a lock that stops other writers."""
    async with connection.transaction():
        await connection.execute(f"set local lock_timeout = {LOCK_MILLISECONDS}")
        await connection.execute(f"lock table {table} in share row exclusive mode")
        await connection.execute(_MOVE.format(table=table), (first, 0), (last, 0))


async def _drop_broken_indexes(connection: Connection, table: str) -> None:
    for row in await connection.fetch(_BROKEN, table):
        await connection.execute(f"drop index concurrently {row[0]}")
