"""Forgetting: history that nobody can need any more, in slices so that writers never wait long."""

from datetime import timedelta

import asyncpg

SLICE = 2_000

# The floor rises first, in the same statement: a watcher that asks below it is told 410 rather than given a gap.
_FLOOR = """update counter set floor = greatest(floor, coalesce(
    (select max(revision) from history where recorded_at < now() - $1::interval), 0))"""
# An anti-join: the only body of a live object is in history, however old.
_DELETE = """delete from history where revision in (
    select s.revision from history s where s.revision > $1 and s.revision <= (select floor from counter)
    and not exists (select from heads h where h.revision = s.revision) order by s.revision limit $2) returning revision"""


async def compact(pool: asyncpg.Pool, keep: timedelta) -> int:
    """Delete versions older than `keep` that are not the newest of a live object; how many went."""
    await pool.execute(_FLOOR, keep)
    total = after = 0
    while True:
        gone = [row["revision"] for row in await pool.fetch(_DELETE, after, SLICE)]
        total += len(gone)
        if len(gone) < SLICE:
            return total
        after = max(gone)  # or each slice would step over all that live before it
