"""Compaction: deletes history that nobody can need any more, in slices so that writers never wait long.

What was there at the floor stays readable: a version goes when the one after it is at or below the floor, too. So a list at
any revision from the floor on is whole. Nothing goes that the job recorder or the webhooks have not read. Secrets have a floor
of their own, because what was in one that was deleted or replaced is to be gone within minutes; every read of theirs, and of
all kinds together, goes by the higher of the two.
The leader runs both compactions as periodic tasks (`app.registry.periodic_task`).
"""

from dataclasses import dataclass
from datetime import datetime, timedelta

import asyncpg

from app.store import timeline
from app.store.errors import call_database

SLICE = 2_000

# The floor rises first, in the same statement: a watcher that asks below it gets 410 rather than a gap.
# What the job recorder and the webhooks have yet to read stays.
_FLOOR = """update counter set floor = greatest(floor, least(
    coalesce((select max(revision) from versions where recorded_at < now() - $1::interval), 0),
    (select revision from job_recorder), (select revision from webhook_cursor)))"""
_SECRETS_FLOOR = """update counter set secrets_floor = greatest(secrets_floor, coalesce(
    (select max(revision) from versions where kind = 'secrets' and recorded_at < now() - $1::interval), 0))"""
# In the order of revisions, or the two compactions could lock each other out of a Secret's versions.
# By arrays, which are made once: joined, a table that was small when Postgres looked last is read again for each row.
# Each version that is old enough takes the one that it replaced with it; a deletion leaves nothing, and goes as well.
_DELETE = """with old as (
        select revision, previous, change from versions
        where revision > $1 and {which} order by revision limit $2
    ), gone as (
        delete from versions where revision = any(array(
            select revision from versions where revision = any(array(
                select previous from old union all select revision from old where change = 'D'
            )) order by revision for update
        )) returning 1
    ) select (select max(revision) from old) as last, (select count(*) from gone) as gone"""
_DELETE_ALL = _DELETE.format(which="revision <= (select floor from counter)")
_DELETE_SECRETS = _DELETE.format(which="kind = 'secrets' and revision <= (select secrets_floor from counter)")


@dataclass
class Progress:
    """Up to which revision everything was looked at: below it, there is nothing left to delete.

    So what lives unchanged, which may be a million versions, is passed over once by each leader, not every few minutes.
    """

    revision: int = 0


class HistoryCompaction:
    """`keep`: how long a version that was replaced or deleted stays readable."""

    name = "history compaction"
    interval = timedelta(minutes=5)

    def __init__(self, pool: asyncpg.Pool, keep: timedelta) -> None:
        self._pool = pool
        self._keep = keep
        self._progress = Progress()

    async def run_once(self, _: datetime) -> dict[str, int]:
        return {"deleted versions": await call_database(compact(self._pool, self._keep, self._progress))}


class SecretsCompaction:
    """The same of Secrets."""

    name = "compaction of Secrets"
    interval = timedelta(minutes=1)

    def __init__(self, pool: asyncpg.Pool, keep: timedelta) -> None:
        self._pool = pool
        self._keep = keep
        self._progress = Progress()

    async def run_once(self, _: datetime) -> dict[str, int]:
        return {"deleted versions": await call_database(compact_secrets(self._pool, self._keep, self._progress))}


async def compact(pool: asyncpg.Pool, keep: timedelta, progress: Progress | None = None) -> int:
    """Delete versions that were replaced or deleted before `keep` began; how many went."""
    await pool.execute(_FLOOR, keep)
    return await _delete(pool, _DELETE_ALL, progress or Progress())


async def compact_secrets(pool: asyncpg.Pool, keep: timedelta, progress: Progress | None = None) -> int:
    """Delete versions of Secrets that were replaced or deleted before `keep` began; how many went."""
    await pool.execute(_SECRETS_FLOOR, keep)
    return await _delete(pool, _DELETE_SECRETS, progress or Progress())


async def _delete(pool: asyncpg.Pool, sql: str, progress: Progress) -> int:
    total = 0
    while True:
        (row,) = await pool.fetch(sql, progress.revision, SLICE)
        if row["last"] is None:
            await timeline.forget(pool)
            return total
        total, progress.revision = total + row["gone"], row["last"]
