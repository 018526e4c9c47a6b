"""Bearer tokens: who holds one, until when, and what must live for it to be good. Only digests are stored."""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import asyncpg
import msgspec

from app.store.errors import Key, reaching


class Need(NamedTuple):
    """An object that must live, and be this very one, for a token to be good."""

    key: Key
    uid: str


class Holder(NamedTuple):
    """Whoever a token stands for.

    nodes:     names, or prefixes with *, that an agent speaks for.
    extra:     what else is known of the holder, for whoever asks.
    audiences: whom the token is meant for; none if for this API.
    """

    name: str
    groups: Sequence[str] = ()
    nodes: Sequence[str] = ()
    uid: str = ""
    extra: Mapping[str, Sequence[str]] = {}
    audiences: Sequence[str] = ()


class Lasting(NamedTuple):
    """A token as it is listed: all that is known of it but whose secret it is."""

    name: str
    created_at: datetime
    expires_at: datetime | None


UNREGISTERED = timedelta(minutes=5)  # so long a token counts though its node has not registered
_HOLDER = """select username, groups, nodes, uid, extra, audiences from tokens
    where digest = $1 and (expires_at is null or expires_at > $2) and not exists (
        select from jsonb_to_recordset(needs) as n(kind text, namespace text, name text, uid text)
        where not exists (select from heads h
            where (h.kind, h.namespace, h.name) = (n.kind, n.namespace, n.name) and h.uid = n.uid))"""
_KEEP = """insert into tokens (digest, username, groups, nodes, expires_at, uid, extra, audiences, needs)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9)
    on conflict (digest) do update set username = $2, groups = $3, nodes = $4, expires_at = $5, uid = $6, extra = $7,
        audiences = $8, needs = $9"""
_OF_GROUP = """select username, created_at, expires_at from tokens
    where $1 = any (groups) and (expires_at is null or expires_at > $2) order by created_at, username"""
_REVOKE = "delete from tokens where username = $1 and nodes = $2 returning 1"
# One at a time for a node: of two that come together, the second finds what the first has got.
_IN_TURN = "select pg_advisory_xact_lock(hashtextextended('credential of ' || $1, 0))"
_OF_NODE = """select digest, created_at > now() - $4::interval as fresh from tokens
    where username = $1 and nodes = $2 and (expires_at is null or expires_at > $3)"""
_ADMIT = """insert into tokens (digest, username, groups, nodes) values ($1, $2, $3, $4)
    on conflict (digest) do nothing returning 1"""
# Those that another process is deleting are left to it.
_FORGET = """delete from tokens where digest in (
    select digest from tokens where expires_at < $1 limit 1000 for update skip locked)"""


class Tokens:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def holder(self, digest: bytes, now: datetime) -> Holder | None:
        """The holder of the token with this SHA-256; None if it has ended, or what it needs is gone."""
        row = await reaching(self._pool.fetchrow(_HOLDER, digest, now))
        if row is None:
            return None
        extra = msgspec.json.decode(row["extra"])
        return Holder(row["username"], row["groups"], row["nodes"], row["uid"], extra, row["audiences"])

    async def keep(
        self, digest: bytes, holder: Holder, expires_at: datetime | None = None, needs: Sequence[Need] = ()
    ) -> None:
        """Let a token stand for its holder; harmless to repeat."""
        wanted = [{**need.key._asdict(), "uid": need.uid} for need in needs]
        values = (
            digest,
            holder.name,
            list(holder.groups),
            list(holder.nodes),
            expires_at,
            holder.uid,
            msgspec.json.encode(holder.extra).decode(),
            list(holder.audiences),
            msgspec.json.encode(wanted).decode(),
        )
        await reaching(self._pool.execute(_KEEP, *values))

    async def of_group(self, group: str, now: datetime) -> list[Lasting]:
        """The tokens of a group that have not ended, oldest first."""
        return [Lasting(*row) for row in await reaching(self._pool.fetch(_OF_GROUP, group, now))]

    async def revoke(self, username: str, nodes: Sequence[str] = ()) -> int:
        """Forget the tokens of a user for exactly these nodes; how many there were."""
        return len(await reaching(self._pool.fetch(_REVOKE, username, list(nodes))))

    async def admit(self, digest: bytes, holder: Holder, now: datetime, *, exists: bool, alive: bool) -> bool:
        """Let a token stand for a node in place of those before it; False if somebody else speaks for that node.

        exists: the node is registered, so a token for it counts. alive: it is heard, so somebody has a token, whichever.
        """
        return await reaching(self._admit(digest, holder, now, exists, alive))

    async def _admit(self, digest: bytes, holder: Holder, now: datetime, exists: bool, alive: bool) -> bool:
        who = (holder.name, list(holder.nodes))
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(_IN_TURN, holder.name)
            known = await connection.fetch(_OF_NODE, *who, now, UNREGISTERED)
            if any(row["digest"] == digest for row in known):
                return True  # it asks again, because it has not heard the answer
            if any(exists or row["fresh"] for row in known) or (alive and not known):
                return False
            await connection.execute(_REVOKE, *who)
            made = await connection.fetchval(_ADMIT, digest, holder.name, list(holder.groups), list(holder.nodes))
            return made is not None

    async def forget_expired(self, now: datetime) -> None:
        await reaching(self._pool.execute(_FORGET, now))
