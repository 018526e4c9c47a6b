"""Re-encryption of Secrets: whatever is stored as plain text or under an older data key is encrypted under the active one.

The leader runs it as a periodic task: so Secrets are encrypted that were there before encryption was switched on, and rotation
(`jobplane secrets rotate`) reaches every version. Rows are replaced in place, each only if it is still what was read: objects,
revisions and watches do not change.
"""

from collections.abc import Mapping
from datetime import datetime
from typing import NamedTuple

import asyncpg

from app.store.encryption.encryption import ENCRYPTED, MARK, KeyRing
from app.store.errors import Key, Unavailable, call_database
from app.structured_logging import Logger

logger = Logger(__name__)
SLICE = 50  # versions in one statement: a Secret may have a megabyte
_OTHERS = """select revision, kind, namespace, name, body from versions
    where kind = any($1) and revision > $2 and (substring(body from 1 for 4) = $3 or $4 <> ''::bytea)
        and substring(body from 1 for 12) <> $4 order by revision limit $5"""
_REPLACE = """update versions h set body = n.body from unnest($1::bigint[], $2::bytea[], $3::bytea[]) as n(revision, old, body)
    where h.revision = n.revision and h.body = n.old"""
_COUNT = """select case when substring(body from 1 for 4) = $2 then encode(substring(body from 5 for 8), 'hex') else '' end as id,
    count(*) as versions from versions where kind = any($1) group by 1"""
_KEYS = "select id, master, created_at, active_at from data_keys order by active_at, id"


class SecretsReencryption:
    """The periodic task."""

    name = "re-encryption of Secrets"

    def __init__(self, pool: asyncpg.Pool, keys: KeyRing) -> None:
        self._pool, self._keys = pool, keys
        self.interval = keys.lead / 2
        self._done: tuple[bytes | None, int] = None, 0  # up to which revision all is stored under this header

    async def run_once(self, _: datetime) -> Mapping[str, int]:
        header = self._keys.header
        if header is None:
            return {}
        after = self._done[1] if self._done[0] == header else 0
        # Revisions are given out in the order of commits: none up to this one is still to come.
        newest: int = await call_database(self._pool.fetchval("select revision from counter"))
        count, sent = 0, (list(ENCRYPTED), MARK, header)
        while rows := await call_database(self._pool.fetch(_OTHERS, sent[0], after, *sent[1:], SLICE)):
            count += await call_database(self._replace(rows))
            after = rows[-1]["revision"]
        self._done = header, newest
        return {"versions encrypted anew": count}

    async def _replace(self, rows: list[asyncpg.Record]) -> int:
        """Encrypt what can be decrypted; how many that were. One damaged version holds up no others."""
        fresh: list[tuple[int, bytes, bytes]] = []
        for row in rows:
            key = Key(row["kind"], row["namespace"], row["name"])
            try:
                body = self._keys.decrypt(key, row["body"])
            except Unavailable as error:
                logger.warning("cannot encrypt a Secret anew", error=error)
            else:
                fresh.append((row["revision"], row["body"], self._keys.encrypt(key, body)))
        if fresh:
            await self._pool.execute(_REPLACE, *zip(*fresh, strict=True))
        return len(fresh)


class DataKeyUse(NamedTuple):
    """A data key, and how many versions of Secrets are stored under it. Without an id: those that are plain text.

    master: name of the master key that wraps it; empty if it stands for plain text.
    """

    id: str
    master: str
    created_at: datetime | None
    active_at: datetime | None
    versions: int


async def data_key_uses(pool: asyncpg.Pool) -> list[DataKeyUse]:
    """Return all data keys, the oldest first, after the plain text, if there is any."""
    counts = {row["id"]: row["versions"] for row in await call_database(pool.fetch(_COUNT, list(ENCRYPTED), MARK))}
    plain = [DataKeyUse("", "", None, None, counts[""])] if "" in counts else []
    rows = await call_database(pool.fetch(_KEYS))
    return plain + [DataKeyUse(**row, versions=counts.get(row["id"], 0)) for row in rows]
