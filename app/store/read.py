"""Reading what is stored: one object, many, lists with their revision, and the history. All from one pool."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import asyncpg

from app.store.errors import Compacted, Key
from app.store.feed import Change, Marks, decode_marks, versioned

HISTORY_ROWS = 2_000  # rows of one read of history
_MOST = 2**62  # a limit may be any number, and one more must still fit a bigint


@dataclass(frozen=True, slots=True)
class Head:
    """A live object: its newest version."""

    key: Key
    uid: str
    revision: int
    body: bytes
    marks: Marks

    @property
    def wire(self) -> bytes:
        """The object as clients see it."""
        return versioned(self.body, self.revision)


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list. `revision` is the store's at the moment of reading: a watch from there misses nothing."""

    heads: list[Head]
    revision: int
    more: bool
    remaining: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What to list. `node` and `name` are selectors that an index serves; `after` is the last key of the page before.

    deleting: True for those that are on their way out, False for those that are not.
    """

    kind: str
    namespace: str | None = None
    name: str | None = None
    node: str | None = None
    deleting: bool | None = None
    after: tuple[str, str] | None = None
    limit: int | None = None


def _head(row: asyncpg.Record) -> Head:
    key = Key(row["kind"], row["namespace"], row["name"])
    return Head(key, row["uid"], row["revision"], row["body"], decode_marks(row["marks"]))


_COLUMNS = "h.kind, h.namespace, h.name, h.uid, h.revision, h.marks, s.body"


class Reader:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def get(self, key: Key) -> Head | None:
        sql = f"select {_COLUMNS} from heads h join history s using (revision) where (h.kind, h.namespace, h.name) = ($1, $2, $3)"
        row = await self._pool.fetchrow(sql, *key)
        return _head(row) if row else None

    async def get_many(self, keys: Iterable[Key]) -> dict[Key, Head]:
        """Those of the objects that exist, in one query."""
        kinds, namespaces, names = zip(*keys, strict=True) if (keys := list(keys)) else ((), (), ())
        sql = f"""select {_COLUMNS} from unnest($1::text[], $2::text[], $3::text[]) as k(kind, namespace, name)
            join heads h on (h.kind, h.namespace, h.name) = (k.kind, k.namespace, k.name)
            join history s on s.revision = h.revision"""
        rows = await self._pool.fetch(sql, kinds, namespaces, names)
        return {(head := _head(row)).key: head for row in rows}

    async def page(self, query: Query) -> Page:
        """One page in key order, and the store's revision, from one statement."""
        where, values = _conditions(query)
        page = (
            f"select {_COLUMNS} from heads h join history s using (revision) where {where} order by h.namespace, h.name"
        )
        if query.limit is not None:
            values.append(min(query.limit, _MOST) + 1)
            page += f" limit ${len(values)}"
        sql = f"select c.revision as store_revision, x.* from counter c left join lateral ({page}) x on true"
        rows = await self._pool.fetch(sql, *values)
        heads = [_head(row) for row in rows if row["uid"] is not None]
        revision = rows[0]["store_revision"] if rows else 0
        if query.limit is None or len(heads) <= query.limit:
            return Page(heads, revision, more=False)
        total = await self._pool.fetchval(f"select count(*) from heads h where {where}", *values[:-1])
        return Page(heads[: query.limit], revision, more=True, remaining=max(0, total - query.limit))

    async def count(self, kinds: Sequence[str], namespace: str) -> dict[str, int]:
        """How many objects of these kinds are in a namespace; kinds without any are left out."""
        sql = "select kind, count(*) as many from heads where kind = any($1) and namespace = $2 group by kind"
        return {row["kind"]: row["many"] for row in await self._pool.fetch(sql, kinds, namespace)}

    async def revision(self) -> int:
        """The last revision given out."""
        found: int = await self._pool.fetchval("select revision from counter")
        return found

    async def history(self, after: int, up_to: int | None) -> tuple[Sequence[Change], int, bool]:
        """The changes in (after, up_to] in order, the revision up to which they are complete, and whether there are more.

        Compacted if some of them are gone. As in `history_of`, the floor is read in the statement that reads the rows.
        """
        sql = """select c.revision as store_revision, c.floor, x.* from counter c left join lateral (
            select * from history where revision > $1 and revision <= coalesce($2, c.revision) order by revision limit $3
            ) x on true"""
        rows = await self._pool.fetch(sql, after, up_to, HISTORY_ROWS)
        changes = _changes(rows, after)
        if len(changes) == HISTORY_ROWS:
            return changes, changes[-1].revision, True
        return changes, up_to if up_to is not None else rows[0]["store_revision"], False

    async def history_of(self, kind: str, after: int, up_to: int, limit: int | None = None) -> list[Change]:
        """The first of one kind's changes in (after, up_to]; Compacted if some of them are gone."""
        sql = """select c.floor, x.* from counter c left join lateral (
            select * from history where kind = $1 and revision > $2 and revision <= $3 order by revision limit $4
            ) x on true"""
        return _changes(await self._pool.fetch(sql, kind, after, up_to, limit), after)

    async def user(self, digest: bytes, now: datetime) -> tuple[str, tuple[str, ...], tuple[str, ...]] | None:
        """(name, groups, nodes) of the holder of a token, by the token's SHA-256."""
        sql = "select username, groups, nodes from tokens where digest = $1 and (expires_at is null or expires_at > $2)"
        row = await self._pool.fetchrow(sql, digest, now)
        return (row["username"], tuple(row["groups"]), tuple(row["nodes"])) if row else None


def _changes(rows: Sequence[asyncpg.Record], after: int) -> list[Change]:
    if after < rows[0]["floor"]:
        raise Compacted(after, rows[0]["floor"])
    return [_change(row) for row in rows if row["revision"] is not None]


def _change(row: asyncpg.Record) -> Change:
    key = Key(row["kind"], row["namespace"], row["name"])
    return Change(row["revision"], key, row["uid"], row["change"], row["body"], row["marks"], row["old_marks"])


def _conditions(query: Query) -> tuple[str, list[object]]:
    values: list[object] = [query.kind]
    where = ["h.kind = $1"]
    for column in ("namespace", "name", "node", "deleting"):
        value = getattr(query, column)
        if value is not None:
            values.append(value)
            where.append(f"h.{column} = ${len(values)}")
    if query.after:
        values += query.after
        where.append(f"(h.namespace, h.name) > (${len(values) - 1}, ${len(values)})")
    return " and ".join(where), values
