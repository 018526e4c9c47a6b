"""Container logs, kept apart from pods and nodes so that they outlive both. Appended by offset: a resend is harmless."""

from collections.abc import Sequence
from typing import NamedTuple

import asyncpg

from app.store.errors import reaching


class Stream(NamedTuple):
    """One run of one container."""

    pod_uid: str
    container: str
    attempt: int


class Append(NamedTuple):
    """Bytes of a stream from `offset` on, and the pod's name for those who look for it later."""

    stream: Stream
    namespace: str
    pod: str
    offset: int
    data: bytes


_OPEN = """insert into log_streams (pod_uid, container, attempt, namespace, pod, size) values ($1, $2, $3, $4, $5, 0)
    on conflict (pod_uid, container, attempt) do nothing"""
_SIZE = "select size from log_streams where pod_uid = $1 and container = $2 and attempt = $3 for update"
_CHUNK = "insert into log_chunks (pod_uid, container, attempt, start, data) values ($1, $2, $3, $4, $5)"
# Chunks follow each other without gaps, so the first is found by its start; at most so many are looked at in one go.
_READ = """select start, data from (
        select start, data, sum(length(data)) over (order by start) - length(data) as before from (
            select start, data from log_chunks
            where pod_uid = $1 and container = $2 and attempt = $3 and start + length(data) > $4
            and start >= coalesce((select max(start) from log_chunks
                where pod_uid = $1 and container = $2 and attempt = $3 and start <= $4), 0)
            order by start limit 1024
        ) found
    ) counted where before < $5 order by start"""
_GROW = "update log_streams set size = $4 where pod_uid = $1 and container = $2 and attempt = $3"


class Logs:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def append(self, appends: Sequence[Append]) -> list[int]:
        """Append what is new of each; the size that each stream has then. A gap appends nothing."""
        return await reaching(self._append_all(appends))

    async def _append_all(self, appends: Sequence[Append]) -> list[int]:
        sizes: dict[int, int] = {}
        async with self._pool.acquire() as connection, connection.transaction():
            # In the order of streams, or an agent's resend and what it resends could lock each other out.
            for place, each in sorted(enumerate(appends), key=lambda item: item[1].stream):
                sizes[place] = await self._append(connection, each)
            await connection.execute("select pg_notify('logs', '')")
        return [sizes[place] for place in range(len(appends))]

    async def _append(self, connection: asyncpg.pool.PoolConnectionProxy, each: Append) -> int:
        await connection.execute(_OPEN, *each.stream, each.namespace, each.pod)
        size: int = await connection.fetchval(_SIZE, *each.stream)
        new = each.data[max(0, size - each.offset) :]
        if each.offset > size or not new:
            return size
        await connection.execute(_CHUNK, *each.stream, size, new)
        await connection.execute(_GROW, *each.stream, size + len(new))
        return size + len(new)

    async def attempts(self, pod_uid: str, container: str) -> list[int]:
        """The runs of a container that have a log, oldest first."""
        sql = "select attempt from log_streams where pod_uid = $1 and container = $2 order by attempt"
        return [row["attempt"] for row in await reaching(self._pool.fetch(sql, pod_uid, container))]

    async def size(self, stream: Stream) -> int:
        """How many bytes a log has."""
        sql = "select size from log_streams where pod_uid = $1 and container = $2 and attempt = $3"
        size: int | None = await reaching(self._pool.fetchval(sql, *stream))
        return size or 0

    async def read(self, stream: Stream, offset: int, limit: int = 1 << 20) -> bytes:
        """Bytes from `offset` on, at least one chunk if there is any, about `limit` at most."""
        rows = await reaching(self._pool.fetch(_READ, *stream, offset, limit))
        return b"".join(row["data"][max(0, offset - row["start"]) :] for row in rows)
