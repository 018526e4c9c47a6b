"""Bearer tokens: who holds one, until when, and what must live for it to be good. Only digests are stored.

Every token has an id that is no secret, by which it is listed and revoked: what stands before the dot of a join token, and
the first 12 hexadecimal digits of the digest of any other. Postgres makes it.
"""

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime, timedelta
from enum import Enum
from typing import NamedTuple

import asyncpg
import msgspec

from app.store.errors import Key, call_database


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


class Limits(NamedTuple):
    """When a token stops being good.

    expires_at: None: never.
    needs:      objects that must live.
    uses:       of a join token, how many nodes may still join by it; None: any number.
    approve:    of a join token, whether a node's credential is good only once somebody has approved the node.
    next_life:  of what is exchanged for a credential, how long that lasts: of a join token the nodes', None for ever; of a
                sign-in code, from its own end on.
    """

    expires_at: datetime | None = None
    needs: Sequence[Need] = ()
    uses: int | None = None
    next_life: timedelta | None = None
    approve: bool = False


FOREVER = Limits()


class Listed(NamedTuple):
    """A token as it is listed: all that is known of it but its secret. `file`: the file that holds it, if `up` wrote it."""

    id: str
    username: str
    groups: Sequence[str]
    nodes: Sequence[str]
    created_at: datetime
    expires_at: datetime | None
    uses: int | None
    file: str
    revoked: bool
    orphaned: bool  # an object that it needs is gone
    pending: bool = False  # of a node that waits for approval


class Place(NamedTuple):
    """Last token of a page of a list: the next page begins after it."""

    created_at: datetime
    id: str


class Admission(Enum):
    """Outcome of a request to join."""

    JOINED = "joined"
    PENDING = "pending"  # joined, once somebody has approved it
    TAKEN = "taken"  # somebody else speaks for that node
    USED_UP = "used up"  # the join token is good for no further node


class Credential(NamedTuple):
    """How long a node's credential is good: from its beginning, and from now on. Both None: for ever, or it is not renewed."""

    life: timedelta | None
    left: timedelta | None


class Renewal(Enum):
    """Outcome of a node's request to renew its credential."""

    RENEWED = "renewed"
    NOT_DUE = "not due"  # more than half of its life is left, or it has no end, or was not got by joining
    TOO_MANY = "too many"  # good credentials of one node


API_AUDIENCE = "https://kubernetes.default.svc.cluster.local"  # of tokens for the API, as its authenticator has it
APPROVAL = "approve.jobplane.dev"  # audience of join tokens whose nodes wait for approval
PENDING = "pending.jobplane.dev"  # audience of their credentials until then: good for nothing
MOST_CREDENTIALS = 5  # of one node at once
UNREGISTERED = timedelta(minutes=5)  # so long a token counts though its node has not registered
_ORPHANED = """exists (
        select from jsonb_to_recordset(needs) as n(kind text, namespace text, name text, uid text)
        where not exists (select from heads h
            where (h.kind, h.namespace, h.name) = (n.kind, n.namespace, n.name) and h.uid = n.uid))"""
_IS_GOOD = f"not revoked and (expires_at is null or expires_at > $2) and not {_ORPHANED}"
_HOLDER = f"""select username, groups, nodes, uid, extra, audiences from tokens
    where digest = $1 and {_IS_GOOD}"""
_ENDED = f"""select asked from unnest($1::bytea[]) as asked
    except select digest from tokens where digest = any($1) and {_IS_GOOD}"""
_KEEP = """insert into tokens
    (digest, username, groups, nodes, uid, extra, audiences, expires_at, needs, uses, node_life, file)
    values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
    on conflict (digest) do update set username = $2, groups = $3, nodes = $4, uid = $5, extra = $6, audiences = $7,
        expires_at = $8, needs = $9, uses = $10, node_life = $11, file = $12"""
_LISTED = f"""select id, username, groups, nodes, created_at, expires_at, uses, file, revoked, {_ORPHANED},
    audiences = array['{PENDING}'] from tokens"""
_PAGE = f"""{_LISTED} where $1::timestamptz is null or (created_at, id) > ($1, $2::text)
    order by created_at, id limit $3"""
_OF_GROUP = f"""{_LISTED} where $1 = any (groups) and (expires_at is null or expires_at > $2)
    order by created_at, id"""
# A token that lies in a file is kept as revoked: whoever starts with that file must not let it in again.
_REVOKE = """with kept as (update tokens set revoked = true where {0} and file <> '' and not revoked returning 1),
    gone as (delete from tokens where {0} and file = '' returning 1)
    select (select count(*) from kept) + (select count(*) from gone)"""
_REVOKE_ID, _REVOKE_NODES = _REVOKE.format("id = $1"), _REVOKE.format("username = $1 and nodes = $2")
_IS_REVOKED = "select revoked from tokens where digest = $1 for update"
_REPLACE = """update tokens set file = '', expires_at = least(coalesce(expires_at, $3), $3)
    where file = $1 and digest <> $2 and not revoked"""
_FORGET_REPLACED = "delete from tokens where file = $1 and digest <> $2"
_ID_IS_TAKEN = "select exists (select from tokens where id = encode(substring($1::bytea from 1 for 6), 'hex'))"
# One at a time for a node: of two that come together, the second finds what the first has got.
_IN_TURN = "select pg_advisory_xact_lock(hashtextextended('credential of ' || $1, 0))"
_OF_NODE = """select digest, created_at > now() - $4::interval as fresh from tokens
    where username = $1 and nodes = $2 and not revoked and (expires_at is null or expires_at > $3)"""
_OF_DIGEST = """select node_life, expires_at, audiences from tokens where digest = $1 and not revoked"""
_APPROVE = """update tokens set audiences = '{}', expires_at = $4::timestamptz + node_life
    where username = $1 and nodes = $2 and audiences = array[$3] and not revoked
    and (expires_at is null or expires_at > $4) returning 1"""
# The row is locked until the node's credential is there: of two that come for the last use, one finds none.
_USE = """update tokens set uses = uses - 1
    where digest = $1 and (expires_at is null or expires_at > $2) and (uses is null or uses > 0)
    returning node_life, expires_at, audiences"""
_ADMIT = """insert into tokens (digest, username, groups, nodes, expires_at, node_life, audiences)
    values ($1, $2, $3, $4, $5, $6, $7)"""
# Those that another process is deleting are left to it.
_EXCHANGE = f"""with used as (
        delete from tokens where digest = $1 and audiences = array[$3] and {_IS_GOOD}
        returning username, groups, nodes, uid, extra, needs, expires_at as ended, node_life)
    insert into tokens (digest, username, groups, nodes, uid, extra, needs, expires_at)
    select $4, username, groups, nodes, uid, extra, needs, least($5, ended + node_life) from used
    returning expires_at"""
# By an array, which is made once: a subquery with a lock might be run for each row.
_FORGET = """delete from tokens where digest = any(array(
    select digest from tokens where expires_at < $1 limit 1000 for update skip locked))"""


class Tokens:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def holder(self, digest: bytes, now: datetime) -> Holder | None:
        """The holder of the token with this SHA-256; None if it has ended, or what it needs is gone."""
        row = await call_database(self._pool.fetchrow(_HOLDER, digest, now))
        if row is None:
            return None
        extra = msgspec.json.decode(row["extra"])
        return Holder(row["username"], row["groups"], row["nodes"], row["uid"], extra, row["audiences"])

    async def ended(self, digests: Collection[bytes], now: datetime) -> set[bytes]:
        """Tokens, of those given, that have no holder any more; in one query."""
        rows = await call_database(self._pool.fetch(_ENDED, list(digests), now))
        return {row["asked"] for row in rows}

    async def keep(self, digest: bytes, holder: Holder, limits: Limits = FOREVER) -> None:
        """Let a token stand for its holder; harmless to repeat."""
        await call_database(self._pool.execute(_KEEP, *_columns(digest, holder, limits)))

    async def keep_file(self, digest: bytes, holder: Holder, file: str, others_until: datetime | None = None) -> bool:
        """Let the token in a file stand for its holder, and end those that the file held before; False if it was revoked.

        file: names the file among those of all machines. others_until: when they end; None: at once.
        """
        return await call_database(self._keep_file(digest, holder, file, others_until))

    async def _keep_file(self, digest: bytes, holder: Holder, file: str, others_until: datetime | None) -> bool:
        async with self._pool.acquire() as connection, connection.transaction():
            if await connection.fetchval(_IS_REVOKED, digest):
                return False
            await connection.execute(_KEEP, *_columns(digest, holder, FOREVER, file))
            if others_until:
                await connection.execute(_REPLACE, file, digest, others_until)
            await connection.execute(_FORGET_REPLACED, file, digest)
            return True

    async def page(self, limit: int, after: Place | None = None) -> list[Listed]:
        """Tokens of every kind, oldest first, also those that have ended and are not forgotten yet."""
        where = after or (None, "")
        return [Listed(*row) for row in await call_database(self._pool.fetch(_PAGE, *where, limit))]

    async def of_group(self, group: str, now: datetime) -> list[Listed]:
        """The tokens of a group that have not ended, oldest first."""
        return [Listed(*row) for row in await call_database(self._pool.fetch(_OF_GROUP, group, now))]

    async def revoke(self, username: str, nodes: Sequence[str] = ()) -> int:
        """End the tokens of a user for exactly these nodes; how many there were."""
        return int(await call_database(self._pool.fetchval(_REVOKE_NODES, username, list(nodes))))

    async def revoke_id(self, id_: str) -> bool:
        """End the token with this id; False if there is none."""
        return bool(await call_database(self._pool.fetchval(_REVOKE_ID, id_)))

    async def admit(
        self, digest: bytes, holder: Holder, by: bytes, now: datetime, *, exists: bool, alive: bool
    ) -> Admission:
        """Let a token stand for a node in place of those before it, at the cost of one use of the join token `by`.

        exists: the node is registered, so a token for it counts. alive: its lease is renewed, so somebody has a token.
        """
        try:
            return await call_database(self._admit(digest, holder, by, now, exists, alive))
        except asyncpg.UniqueViolationError:  # the secret is another token's
            return Admission.TAKEN

    async def _admit(
        self, digest: bytes, holder: Holder, by: bytes, now: datetime, exists: bool, alive: bool
    ) -> Admission:
        who = (holder.name, list(holder.nodes))
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(_IN_TURN, holder.name)
            known = await connection.fetch(_OF_NODE, *who, now, UNREGISTERED)
            if any(row["digest"] == digest for row in known):  # it asks again: the answer was lost, or it waits
                own = await connection.fetchrow(_OF_DIGEST, digest)
                return Admission.PENDING if own and own["audiences"] == [PENDING] else Admission.JOINED
            if await connection.fetchval(_ID_IS_TAKEN, digest):  # whoever revoked that id would end both
                return Admission.TAKEN
            if any(exists or row["fresh"] for row in known) or (alive and not known):
                return Admission.TAKEN
            used = await connection.fetchrow(_USE, by, now)
            if used is None:
                return Admission.USED_UP
            await connection.fetchval(_REVOKE_NODES, *who)
            life, waits = used["node_life"], APPROVAL in used["audiences"]
            ends = used["expires_at"] if waits else now + life if life else None
            audiences = [PENDING] if waits else []
            row = (digest, holder.name, list(holder.groups), list(holder.nodes), ends, life, audiences)
            await connection.execute(_ADMIT, *row)
            return Admission.PENDING if waits else Admission.JOINED

    async def approve(self, username: str, nodes: Sequence[str], now: datetime) -> bool:
        """Let the credential of a node that waits be good, for as long as its join token said; False if none waits."""
        return bool(await call_database(self._pool.fetchval(_APPROVE, username, list(nodes), PENDING, now)))

    async def credential(self, digest: bytes, now: datetime) -> Credential:
        """How long a node's credential is good."""
        row = await call_database(self._pool.fetchrow(_OF_DIGEST, digest))
        if row is None or row["expires_at"] is None or row["node_life"] is None:
            return Credential(None, None)
        return Credential(row["node_life"], row["expires_at"] - now)

    async def renew(self, old: bytes, new: bytes, holder: Holder, now: datetime) -> Renewal:
        """Let another secret stand for a node, too, for as long as `old` did from its beginning. Harmless to repeat."""
        return await call_database(self._renew(old, new, holder, now))

    async def _renew(self, old: bytes, new: bytes, holder: Holder, now: datetime) -> Renewal:
        who = (holder.name, list(holder.nodes))
        async with self._pool.acquire() as connection, connection.transaction():
            await connection.execute(_IN_TURN, holder.name)
            known = await connection.fetch(_OF_NODE, *who, now, UNREGISTERED)
            if any(row["digest"] == new for row in known):
                return Renewal.RENEWED
            row = await connection.fetchrow(_OF_DIGEST, old)
            life = row["node_life"] if row else None
            if row is None or life is None or row["expires_at"] is None or row["expires_at"] - now > life / 2:
                return Renewal.NOT_DUE
            if len(known) >= MOST_CREDENTIALS or await connection.fetchval(_ID_IS_TAKEN, new):
                return Renewal.TOO_MANY
            values: tuple[object, ...] = (
                new,
                holder.name,
                list(holder.groups),
                list(holder.nodes),
                now + life,
                life,
                [],
            )
            await connection.execute(_ADMIT, *values)
            return Renewal.RENEWED

    async def exchange(
        self, old: bytes, new: bytes, audience: str, now: datetime, expires_at: datetime
    ) -> datetime | None:
        """Replace a token that is meant for `audience` by one for this API, of the same holder.

        Returns when the new one ends: at `expires_at`, or earlier as the old one's limits say. None if the old one is not good.
        """
        ends: datetime | None = await call_database(self._pool.fetchval(_EXCHANGE, old, now, audience, new, expires_at))
        return ends

    async def forget_expired(self, now: datetime) -> None:
        await call_database(self._pool.execute(_FORGET, now))


def _columns(digest: bytes, holder: Holder, limits: Limits, file: str = "") -> tuple[object, ...]:
    """Parameters of `_KEEP`."""
    needs = [{**need.key._asdict(), "uid": need.uid} for need in limits.needs]
    return (
        digest,
        holder.name,
        list(holder.groups),
        list(holder.nodes),
        holder.uid,
        msgspec.json.encode(holder.extra).decode(),
        [*holder.audiences, *([API_AUDIENCE, APPROVAL] if limits.approve else [])],
        limits.expires_at,
        msgspec.json.encode(needs).decode(),
        limits.uses,
        limits.next_life,
        file,
    )
