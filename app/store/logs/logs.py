"""Container logs, stored apart from pods and nodes so that they outlive both. Appended by offset: a resend is harmless.

Of each run the newest bytes are kept, in whole records: offsets count from the first that was ever written, whatever is
left of it. `app.store.logs.kept_logs` has what becomes of a log when its container has ended.
"""

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from app.store.errors import call_database


class Stream(NamedTuple):
    """One run of one container."""

    pod_uid: str
    container: str
    attempt: int


class Append(NamedTuple):
    """Bytes of a stream from `offset` on, and the names of the pod and its Job for those who look for them later."""

    stream: Stream
    namespace: str
    pod: str
    offset: int
    data: bytes
    job: str = ""


class Piece(NamedTuple):
    """What was read: bytes from `offset` on, which is later than what was asked for if that is no longer kept."""

    offset: int
    data: bytes

    @property
    def end(self) -> int:
        return self.offset + len(self.data)


class Span(NamedTuple):
    """Where what is kept of a log begins, and where it ends."""

    start: int
    end: int


CAP = 10 << 20  # bytes of one run, as a kubelet keeps in one file
_OPEN = """insert into log_streams (pod_uid, container, attempt, namespace, pod, job, size) values ($1, $2, $3, $4, $5, $6, 0)
    on conflict (pod_uid, container, attempt) do nothing"""
_SPAN = "select kept_from, size from log_streams where pod_uid = $1 and container = $2 and attempt = $3"
_CHUNK = "insert into log_chunks (pod_uid, container, attempt, start, data) values ($1, $2, $3, $4, $5)"
# Chunks follow each other without gaps, so the first is found by its start; at most so many are looked at in one go.
_READ = """with wanted as (
        select greatest($4, kept_from) as at from log_streams where pod_uid = $1 and container = $2 and attempt = $3
    )
    select at, start, data from (
        select at, start, data, sum(length(data)) over (order by start) - length(data) as before from (
            select at, start, data from log_chunks, wanted
            where pod_uid = $1 and container = $2 and attempt = $3 and start + length(data) > at
            and start >= coalesce((select max(start) from log_chunks, wanted
                where pod_uid = $1 and container = $2 and attempt = $3 and start <= at), 0)
            order by start limit 1024
        ) found
    ) counted where before < $5 order by start"""
_CUT = """with cut as (
        update log_streams set kept_from = $4 where pod_uid = $1 and container = $2 and attempt = $3
    )
    delete from log_chunks where pod_uid = $1 and container = $2 and attempt = $3 and start < (
        select max(start) from log_chunks where pod_uid = $1 and container = $2 and attempt = $3 and start <= $4)"""
_RECORD = 64 * 1024  # no agent writes longer ones
_GROW = "update log_streams set size = $4 where pod_uid = $1 and container = $2 and attempt = $3"


class Logs:
    """`cap`: how many bytes are kept of one run of a container; a chunk more may lie in the database."""

    def __init__(self, pool: asyncpg.Pool, cap: int = CAP) -> None:
        self._pool = pool
        self._cap = cap

    async def append(self, appends: Sequence[Append]) -> list[int]:
        """Append what is new of each; the size that each stream has then. A gap appends nothing."""
        return await call_database(self._append_all(appends))

    async def _append_all(self, appends: Sequence[Append]) -> list[int]:
        sizes: dict[int, int] = {}
        async with self._pool.acquire() as connection, connection.transaction():
            # In the order of streams, or an agent's resend and what it resends could lock each other out.
            for place, each in sorted(enumerate(appends), key=lambda item: item[1].stream):
                sizes[place] = await self._append(connection, each)
            await connection.execute("select pg_notify('logs', '')")
        return [sizes[place] for place in range(len(appends))]

    async def _append(self, connection: asyncpg.pool.PoolConnectionProxy, each: Append) -> int:
        await connection.execute(_OPEN, *each.stream, each.namespace, each.pod, each.job)
        found = await connection.fetchrow(f"{_SPAN} for update", *each.stream)
        if found is None:  # it has expired since
            return 0
        kept_from, size = found
        new = each.data[max(0, size - each.offset) :]
        if each.offset > size or not new:
            return int(size)
        await connection.execute(_CHUNK, *each.stream, size, new)
        await connection.execute(_GROW, *each.stream, size + len(new))
        if size + len(new) - kept_from > self._cap:
            await self._cut(connection, each.stream, size + len(new))
        return int(size) + len(new)

    async def _cut(self, connection: asyncpg.pool.PoolConnectionProxy, stream: Stream, size: int) -> None:
        """Keep whole records only, and an eighth less than may be, so that this is done seldom."""
        target = size - self._cap + self._cap // 8
        after = _piece(await connection.fetch(_READ, *stream, target, _RECORD), target)
        await connection.execute(_CUT, *stream, target + after.data.find(b"\n") + 1)

    async def attempts(self, pod_uid: str, container: str) -> list[int]:
        """The runs of a container that have a log, oldest first."""
        sql = "select attempt from log_streams where pod_uid = $1 and container = $2 order by attempt"
        return [row["attempt"] for row in await call_database(self._pool.fetch(sql, pod_uid, container))]

    async def span(self, stream: Stream) -> Span:
        """From where to where a log is kept; nothing of one that is not there."""
        found = await call_database(self._pool.fetchrow(_SPAN, *stream))
        return Span(*found) if found else Span(0, 0)

    async def read(self, stream: Stream, offset: int, limit: int = 1 << 20) -> Piece:
        """Bytes from `offset` on, or from where the log is still kept; at least one chunk if any, about `limit` at most."""
        return _piece(await call_database(self._pool.fetch(_READ, *stream, offset, limit)), offset)


def _piece(rows: Sequence[asyncpg.Record], offset: int) -> Piece:
    if not rows:
        return Piece(offset, b"")
    at = rows[0]["at"]
    return Piece(at, b"".join(row["data"][max(0, at - row["start"]) :] for row in rows))
