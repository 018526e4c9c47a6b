"""Kept logs: lists the logs that there are, and looks after those whose containers have ended. The API lists them; log
retention notes the ends, packs small chunks, and deletes what has been kept for long enough.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import asyncpg

from app.store.errors import call_database
from app.store.logs.logs import CAP, Stream

After = tuple[str, str, str, int]  # pod, uid, container, attempt: what a page ends with


class KeptLog(NamedTuple):
    """One run of one container, whether its pod is still there or not."""

    namespace: str
    pod: str
    pod_uid: str
    container: str
    attempt: int
    job: str
    kept_from: int
    size: int
    started_at: datetime
    ended_at: datetime | None

    @property
    def stream(self) -> Stream:
        return Stream(self.pod_uid, self.container, self.attempt)

    @property
    def place(self) -> After:
        return self.pod, self.pod_uid, self.container, self.attempt


_LIST = """select namespace, pod, pod_uid, container, attempt, job, kept_from, size, recorded_at, ended_at
    from log_streams where namespace = $1 and ($2::text is null or pod = $2) and ($3::text is null or job = $3)
    and (pod, pod_uid, container, attempt) > ($4::text, $5::text, $6::text, $7::int)
    order by pod, pod_uid, container, attempt limit $8"""
# No more comes of a run that another has followed, nor of a pod that is over: agents ship all of a log before they say so.
# Whoever appends locks several rows, so to wait for one of them could be a deadlock.
_ENDED = """with ended as (
        select s.pod_uid, s.container, s.attempt from log_streams s
        left join heads h on h.kind = 'pods' and (h.namespace, h.name, h.uid) = (s.namespace, s.pod, s.pod_uid)
        where s.ended_at is null and (
            h.uid is null or h.marks::jsonb #>> '{fields,status.phase}' in ('Succeeded', 'Failed')
            or exists (select from log_streams n
                where (n.pod_uid, n.container) = (s.pod_uid, s.container) and n.attempt > s.attempt)
        ) limit $2 for update of s skip locked
    )
    update log_streams s set ended_at = $1 from ended e
    where (s.pod_uid, s.container, s.attempt) = (e.pod_uid, e.container, e.attempt)
    returning s.pod_uid, s.container, s.attempt"""
# A row and its key cost more than a short line, and only long values are compressed.
_LOOSE = """select pod_uid, container, attempt from log_chunks
    where (pod_uid, container, attempt) in (select * from unnest($1::text[], $2::text[], $3::int[]))
    group by pod_uid, container, attempt having count(*) > 1 and sum(length(data)) < count(*) * 32768"""
_LOCK = "select from log_streams where pod_uid = $1 and container = $2 and attempt = $3 for update"
_PACK = """with loose as (
        delete from log_chunks where pod_uid = $1 and container = $2 and attempt = $3 returning start, data
    )
    insert into log_chunks (pod_uid, container, attempt, start, data)
    select $1, $2, $3, min(start), string_agg(data, ''::bytea order by start) from loose group by start / 65536"""
_DELETE = """with old as ({which} for update skip locked),
    chunks as (
        delete from log_chunks c using old o
        where (c.pod_uid, c.container, c.attempt) = (o.pod_uid, o.container, o.attempt)
    )
    delete from log_streams s using old o where (s.pod_uid, s.container, s.attempt) = (o.pod_uid, o.container, o.attempt)
    returning 1"""
_EXPIRED = _DELETE.format(
    which="select pod_uid, container, attempt from log_streams where ended_at < $1 order by ended_at limit $2"
)
# The newest two runs of a container are what clients ask for; of those before, as much is kept as of one.
_BEYOND = _DELETE.format(
    which="""select pod_uid, container, attempt from log_streams
        where (pod_uid, container, attempt) in (
            select pod_uid, container, attempt from (
                select pod_uid, container, attempt,
                    row_number() over newest as place, sum(size - kept_from) over newest as total
                from log_streams
                where (pod_uid, container) in (select * from unnest($1::text[], $2::text[]))
                window newest as (partition by pod_uid, container order by attempt desc)
            ) runs where place > 2 and total > 3 * $3::bigint
        )"""
)
_OF_NAMESPACE = _DELETE.format(
    which="select pod_uid, container, attempt from log_streams where namespace = $1 limit $2"
)
# Namespaces are few, logs many: from each name the index leads to the next.
_HOMELESS = _DELETE.format(
    which="""select pod_uid, container, attempt from log_streams where namespace = any (array(
            with recursive places as (
                select min(namespace) as name from log_streams
                union all
                select (select min(namespace) from log_streams where namespace > places.name)
                from places where places.name is not null
            )
            select name from places where name is not null
            and not exists (select from heads h where h.kind = 'namespaces' and h.namespace = '' and h.name = places.name)
        )) limit $1"""
)


class KeptLogs:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def of(
        self,
        namespace: str,
        pod: str | None = None,
        job: str | None = None,
        after: After | None = None,
        limit: int = 500,
    ) -> list[KeptLog]:
        """The logs of a namespace, or of one pod's name or one Job's in it, by pod, container and run."""
        rows = await call_database(self._pool.fetch(_LIST, namespace, pod, job, *(after or ("", "", "", -1)), limit))
        return [KeptLog(*row) for row in rows]

    async def end(self, now: datetime, limit: int) -> Sequence[Stream]:
        """Set the end of logs whose containers have ended, at most `limit`; skip those that are just written to."""
        return [Stream(*row) for row in await call_database(self._pool.fetch(_ENDED, now, limit))]

    async def pack(self, streams: Sequence[Stream]) -> int:
        """Put together what was written a few lines at a time; of how many that was worth while."""
        columns = [[each.pod_uid for each in streams], [each.container for each in streams]]
        loose = await call_database(self._pool.fetch(_LOOSE, *columns, [each.attempt for each in streams]))
        for row in loose:
            await call_database(self._pack(Stream(*row)))
        return len(loose)

    async def _pack(self, stream: Stream) -> None:
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(_LOCK, *stream)
            await connection.execute(_PACK, *stream)

    async def trim(self, streams: Sequence[Stream], cap: int = CAP) -> int:
        """Of containers that were started over and over, forget the oldest runs; how many."""
        again = {(each.pod_uid, each.container) for each in streams if each.attempt > 0}
        columns = [[uid for uid, _ in again], [container for _, container in again]]
        return len(await call_database(self._pool.fetch(_BEYOND, *columns, cap))) if again else 0

    async def expire(self, before: datetime, limit: int) -> int:
        """Delete logs whose containers had ended before, those that ended first; how many went."""
        return len(await call_database(self._pool.fetch(_EXPIRED, before, limit)))

    async def forget_namespace(self, namespace: str, limit: int) -> int:
        """Delete logs of one namespace; how many went."""
        return len(await call_database(self._pool.fetch(_OF_NAMESPACE, namespace, limit)))

    async def forget_homeless(self, limit: int) -> int:
        """Delete logs of namespaces that are gone: a new one of the same name may be somebody else's."""
        return len(await call_database(self._pool.fetch(_HOMELESS, limit)))
