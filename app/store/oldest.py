"""Objects of one kind that have not changed for longest, for kinds whose objects are kept for a while only."""

from datetime import timedelta

import asyncpg

from app.store.errors import Key, reaching
from app.store.reader import StoredObject

# The index on revisions, which follow time, gives the first few in order. By the database's own clock, which dated them.
_SQL = """select x.* from (
        select h.namespace, h.name, h.uid, h.revision, h.marks, s.body, s.recorded_at
        from heads h join history s using (revision)
        where h.kind = $1 and h.revision > $2 order by h.revision limit $3
    ) x where x.recorded_at < now() - $4::interval order by x.revision"""


async def unchanged(pool: asyncpg.Pool, kind: str, after: int, age: timedelta, limit: int) -> list[StoredObject]:
    """The first objects after a revision, of those that are as old as that."""
    rows = await reaching(pool.fetch(_SQL, kind, after, limit, age))
    return [
        StoredObject(Key(kind, row["namespace"], row["name"]), row["uid"], row["revision"], row["body"], row["marks"])
        for row in rows
    ]
