"""Forgetting: history that nobody can need any more, in slices so that writers never wait long.

What was there at the floor stays readable: a version goes when the one after it is at or below the floor, too. So a list at
any revision from the floor on is whole.
"""

from datetime import timedelta

import asyncpg

SLICE = 2_000

# The floor rises first, in the same statement: a watcher that asks below it is told 410 rather than given a gap.
_FLOOR = """update counter set floor = greatest(floor, coalesce(
    (select max(revision) from history where recorded_at < now() - $1::interval), 0))"""
# Each version that is old enough takes the one that it replaced with it; a deletion leaves nothing, and goes as well.
_DELETE = """with old as (
        select revision, previous, change from history
        where revision > $1 and revision <= (select floor from counter) order by revision limit $2
    ), gone as (
        delete from history where revision in (select previous from old union all select revision from old where change = 'D')
        returning 1
    ) select (select max(revision) from old) as last, (select count(*) from gone) as gone"""


async def compact(pool: asyncpg.Pool, keep: timedelta) -> int:
    """Delete versions that were replaced or deleted before `keep` began; how many went."""
    await pool.execute(_FLOOR, keep)
    total, after = 0, 0
    while True:
        (row,) = await pool.fetch(_DELETE, after, SLICE)
        if row["last"] is None:
            return total
        total, after = total + row["gone"], row["last"]
