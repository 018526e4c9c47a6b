"""Outbox of webhooks: messages about Jobs that have ended, written once and kept until a receiver has taken them.

Messages follow from the versions of Jobs: the leader reads each once, in commit order, from a cursor that moves in the
transaction that writes the messages. So none is lost between the end of a Job and its message, nor if the Job is deleted then.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import asyncpg

from app.store.errors import Key, call_database
from app.store.packing.packing import SIZE, unpack_body

MOST_BYTES = 512 << 10  # of versions that are read at a time, as they are decoded in one step of the event loop
_STATE = """select c.revision, (select max(revision) from versions where kind = 'secrets') as secrets,
    (select revision from webhook_cursor) as cursor from counter c"""
_SECRETS = """select kind, namespace, name from (
        select *, row_number() over (partition by namespace order by name) as place
        from heads where kind = 'secrets' and marks::jsonb -> 'labels' ->> $1 = 'true'
    ) x where place <= $2 order by namespace, name"""
_VERSIONS = f"""select revision, previous, case when change <> 'D' then body end as body from (
        select *, sum(size) over (order by revision) - size as before from (
            select revision, previous, change, body, {SIZE.format("v")} as size
            from versions v where kind = 'jobs.batch' and revision > $1 and revision <= $3 order by revision limit $2
        ) next
    ) sized where before <= $4 order by revision"""
_BODIES = "select revision, body from versions where revision = any($1)"
_ADD = """with counts as (
        select namespace, webhook, count(*) as pending from webhook_deliveries
        where failed_at is null and (namespace, webhook) in (select * from unnest($2::text[], $3::text[]))
        group by namespace, webhook
    )
    insert into webhook_deliveries (id, namespace, webhook, job, job_uid, body, next_at)
    select m.id, m.namespace, m.webhook, m.job, m.job_uid, m.body, $7
    from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bytea[])
        as m (id, namespace, webhook, job, job_uid, body)
    left join counts c using (namespace, webhook) where coalesce(c.pending, 0) < $8
    on conflict (id) do nothing returning 1"""
_MOVE = """insert into webhook_cursor (id, revision) values (1, $1)
    on conflict (id) do update set revision = greatest(webhook_cursor.revision, excluded.revision)"""
# A receiver with many messages, or one that never answers, may not keep the others waiting: of each only a few at a time,
# and one of each before a second of any. Those on their way are due, too, so that they have their place.
_DUE = """select d.id, d.namespace, d.webhook, d.job, d.job_uid, d.body, d.attempts from (
        select id, row_number() over (partition by namespace, webhook order by next_at, id) as place
        from webhook_deliveries where failed_at is null and next_at <= $1
    ) due join webhook_deliveries d using (id) where place <= $2 order by place, d.next_at, d.id limit $3"""
_NEXT_AT = "select min(next_at) from webhook_deliveries where failed_at is null"
_RETRY = "update webhook_deliveries set attempts = $2, next_at = $3, error = $4 where id = $1"
_GIVE_UP = "update webhook_deliveries set attempts = $2, failed_at = $3, error = $4 where id = $1"
_FORGET = """delete from webhook_deliveries where id in (
        select id from webhook_deliveries where failed_at < $1 order by failed_at limit 1000)"""


class State(NamedTuple):
    """The last revision, that of the last change of a Secret, and the one up to which Jobs were read, if any were."""

    revision: int
    secrets: int
    cursor: int | None


class JobVersion(NamedTuple):
    """Version of a Job; `body` and what was `before` only if it may say that the Job has ended."""

    revision: int
    body: bytes | None
    before: bytes | None


class NewDelivery(NamedTuple):
    """A message to write."""

    id: str
    namespace: str
    webhook: str
    job: str
    job_uid: str
    body: bytes


class Delivery(NamedTuple):
    """A message that is due, and how many attempts have failed."""

    id: str
    namespace: str
    webhook: str
    job: str
    job_uid: str
    body: bytes
    attempts: int


class WebhookOutbox:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool
        self.additions = 0  # by this process; `WebhookDelivery` asks for due messages when it has risen

    async def state(self) -> State:
        (row,) = await call_database(self._pool.fetch(_STATE))
        return State(row["revision"], row["secrets"] or 0, row["cursor"])

    async def secrets(self, label: str, most: int) -> list[Key]:
        """The keys of Secrets with this label, at most so many of each namespace. Their bodies may be encrypted."""
        return [Key(*row) for row in await call_database(self._pool.fetch(_SECRETS, label, most))]

    async def versions(self, after: int, up_to: int, limit: int, signs: tuple[bytes, bytes]) -> list[JobVersion]:
        """The next versions of Jobs in commit order, at most so many and, but for one, MOST_BYTES.

        Only those that have one of the signs have a body.
        """
        rows = await call_database(self._pool.fetch(_VERSIONS, after, limit, up_to, MOST_BYTES))
        bodies = {row["revision"]: unpack_body(row["body"]) for row in rows if row["body"] is not None}
        ended = {revision: body for revision, body in bodies.items() if any(sign in body for sign in signs)}
        wanted = [row["previous"] for row in rows if row["revision"] in ended and row["previous"]]
        found = await call_database(self._pool.fetch(_BODIES, wanted)) if wanted else []
        before = {row["revision"]: unpack_body(row["body"]) for row in found}
        return [JobVersion(row["revision"], ended.get(row["revision"]), before.get(row["previous"])) for row in rows]

    async def add(self, deliveries: Sequence[NewDelivery], cursor: int, now: datetime, most: int) -> int:
        """Write messages and move the cursor, together; returns how many are new. A webhook has `most` at a time."""
        return await call_database(self._add(deliveries, cursor, now, most))

    async def _add(self, deliveries: Sequence[NewDelivery], cursor: int, now: datetime, most: int) -> int:
        async with self._pool.acquire() as connection, connection.transaction():
            added = 0
            if deliveries:
                columns = [list(column) for column in zip(*deliveries, strict=True)]
                added = len(await connection.fetch(_ADD, *columns, now, most))
            await connection.execute(_MOVE, cursor)
        self.additions += bool(deliveries)
        return added

    async def due(self, now: datetime, of_each: int, limit: int) -> list[Delivery]:
        return [Delivery(*row) for row in await call_database(self._pool.fetch(_DUE, now, of_each, limit))]

    async def next_at(self) -> datetime | None:
        """When the next message is due; None if none is waiting."""
        found: datetime | None = await call_database(self._pool.fetchval(_NEXT_AT))
        return found

    async def delete(self, message_id: str) -> None:
        """The receiver has it, or there is no receiver any more."""
        await call_database(self._pool.execute("delete from webhook_deliveries where id = $1", message_id))

    async def retry(self, message_id: str, attempts: int, at: datetime, error: str) -> None:
        await call_database(self._pool.execute(_RETRY, message_id, attempts, at, error))

    async def give_up(self, message_id: str, attempts: int, now: datetime, error: str) -> None:
        """No more attempts. The message stays for a while, for people to see."""
        await call_database(self._pool.execute(_GIVE_UP, message_id, attempts, now, error))

    async def forget(self, before: datetime) -> None:
        """Delete messages that were given up before this time."""
        await call_database(self._pool.execute(_FORGET, before))
