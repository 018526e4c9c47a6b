"""Dormant objects: what has ended, and controllers ask for instead of holding it (`app.plans.jobs.dormancy`).

Read by `Store.fill`, the garbage collector, the Job controller (TTLs) and the metrics of the state. Everything is found by an
index, or read in slices; only `counts` looks at all of it, once an election, and Postgres does that.
"""

from collections.abc import AsyncIterator, Sequence
from datetime import datetime
from typing import NamedTuple

import asyncpg

from app.store.errors import Key, call_database
from app.store.packing.packing import unpack_body
from app.store.reader import StoredObject

ROWS = 250  # objects read together
REVISIONS = 5_000  # of dependents found together
KEYS = 2_000  # of what is due found together
_READ = """select h.kind, h.namespace, h.name, h.uid, h.revision, s.body from versions s join heads h using (revision)
    where s.revision = any($1)"""
# By the index on owners: of the one on revisions, which gives them in order, it would have to read all.
_OWNED = """select revision from (select revision from heads
        where owner = any($1) and kind = $2 and (not $3 or dormant is not null) offset 0) found
    where revision > $4 order by revision limit $5"""
_DEPARTED = """select owner from (select distinct d.uid as owner from departed_owners d join heads h on h.owner = d.uid
    where h.kind = $1 and d.uid > $2) found order by owner limit $3"""
_DUE = """select kind, namespace, name, expires_at from heads
    where expires_at <= $1 and ($2::timestamptz is null or (expires_at, namespace, name) > ($2, $3, $4))
    order by expires_at, namespace, name limit $5"""
_NEXT_EXPIRY = "select expires_at from heads where expires_at > $1 order by expires_at limit 1"
_COUNTS = """select c.revision, x.* from counter c left join lateral (
    select kind, namespace, split_part(dormant, ',', 1) as result, sum(many)::bigint as many,
        sum(many * split_part(dormant, ',', 2)::bigint)::bigint as succeeded,
        sum(many * split_part(dormant, ',', 3)::bigint)::bigint as failed
    from (select kind, namespace, dormant, count(*) as many from heads where dormant is not null group by 1, 2, 3) y
    group by 1, 2, 3
) x on true"""
_MARK = """update heads h set dormant = i.dormant, expires_at = i.expires_at
    from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::text[], $6::timestamptz[])
        as i(kind, namespace, name, revision, dormant, expires_at)
    where (h.kind, h.namespace, h.name) = (i.kind, i.namespace, i.name) and h.revision = i.revision"""
_FORGET = """delete from departed_owners where uid in (
    select uid from departed_owners d where not exists (select from heads h where h.owner = d.uid) limit $1)"""


class Due(NamedTuple):
    key: Key
    expires_at: datetime


class Mark(NamedTuple):
    """What was found about a version that nobody had looked at when it was written."""

    key: Key
    revision: int
    summary: str
    expires_at: datetime | None


class Counts(NamedTuple):
    """How many objects are dormant as of a revision, by kind, namespace and result, and the pods that their Jobs counted."""

    revision: int
    numbers: dict[tuple[str, str, str], tuple[int, int, int]]


class DormantObjects:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def owned_by(
        self, kind: str, uids: Sequence[str], *, only_dormant: bool
    ) -> AsyncIterator[list[StoredObject]]:
        """The objects of a kind whose controller has one of these UIDs. One that changes meanwhile is left out."""
        after = 0
        while found := await self._fetch(_OWNED, uids, kind, only_dormant, after, REVISIONS):
            revisions = [row["revision"] for row in found]
            for first in range(0, len(revisions), ROWS):
                yield [_head(row) for row in await self._fetch(_READ, revisions[first : first + ROWS])]
            after = revisions[-1]

    async def departed(self, kind: str) -> AsyncIterator[list[StoredObject]]:
        """The objects of a kind whose Job was deleted before them."""
        after = ""
        while found := await self._fetch(_DEPARTED, kind, after, ROWS):
            owners = [row["owner"] for row in found]
            async for heads in self.owned_by(kind, owners, only_dormant=False):
                yield heads
            after = owners[-1]

    async def due(self, until: datetime, after: Due | None = None) -> list[Due]:
        """The next dormant objects that are to be deleted until a time, in that order."""
        place = (after.expires_at, after.key.namespace, after.key.name) if after else (None, "", "")
        rows = await self._fetch(_DUE, until, *place, KEYS)
        return [Due(Key(kind, namespace, name), at) for kind, namespace, name, at in rows]

    async def next_expiry(self, after: datetime) -> datetime | None:
        """Return when the first dormant object after a time is to be deleted."""
        return next((row["expires_at"] for row in await self._fetch(_NEXT_EXPIRY, after)), None)

    async def counts(self) -> Counts:
        rows = await self._fetch(_COUNTS)
        groups = [tuple(row)[1:] for row in rows if row["kind"]]
        return Counts(rows[0]["revision"], {each[:3]: each[3:] for each in groups})

    async def mark(self, marks: Sequence[Mark]) -> None:
        """Mark these versions. What has changed since is as its writer marked it."""
        keys = zip(*(each.key for each in marks), strict=True)
        columns = zip(*((each.revision, each.summary, each.expires_at) for each in marks), strict=True)
        await call_database(self._pool.execute(_MARK, *map(list, keys), *map(list, columns)))

    async def forget_departed(self, limit: int = ROWS) -> int:
        """Forget deleted Jobs of which nothing is left; how many."""
        done: str = await call_database(self._pool.execute(_FORGET, limit))
        return int(done.rpartition(" ")[2])

    async def _fetch(self, sql: str, *values: object) -> list[asyncpg.Record]:
        return await call_database(self._pool.fetch(sql, *values))


def _head(row: asyncpg.Record) -> StoredObject:
    kind, namespace, name, uid, revision, body = row
    return StoredObject(Key(kind, namespace, name), uid, revision, unpack_body(body), None)
