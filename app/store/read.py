"""Reading what is stored: one object, many, lists with their revision, and the history. All from one pool."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import asyncpg

from app.store.errors import Compacted, Key
from app.store.feed import Change, Marks, decode_marks, versioned

HISTORY_ROWS = 2_000  # rows of one read of history
_MOST = 2**62  # a limit may be any number, and one more must still fit a bigint


class Head:
    """One version of an object: the newest, or the one that a list at an older revision shows.

    Its marks are decoded when somebody looks; what was read without them (`Query.marked`) has none to look at.
    """

    __slots__ = ("_marks", "body", "key", "revision", "uid")

    def __init__(self, key: Key, uid: str, revision: int, body: bytes, marks: Marks | str | None) -> None:
        self.key = key
        self.uid = uid
        self.revision = revision
        self.body = body
        self._marks = marks

    @property
    def marks(self) -> Marks:
        if isinstance(self._marks, str):
            self._marks = decode_marks(self._marks)
        if self._marks is None:
            raise LookupError("it was read without its marks")
        return self._marks

    @property
    def wire(self) -> bytes:
        """The object as clients see it."""
        return versioned(self.body, self.revision)


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list, as all was at `revision`: a watch from there misses nothing, and further pages can be read there."""

    heads: list[Head]
    revision: int
    more: bool
    remaining: int | None = None  # how many come after it, where that was asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What to list. `node` and `name` are selectors that an index serves; `after` is the last key of the page before.

    deleting: True for those that are on their way out, False for those that are not.
    at: as it was at this revision, which the store must have given out; None for now.
    marked: whether the marks are read, too: lists without a selector can do without.
    """

    kind: str
    namespace: str | None = None
    name: str | None = None
    node: str | None = None
    deleting: bool | None = None
    after: tuple[str, str] | None = None
    limit: int | None = None
    at: int | None = None
    marked: bool = True


def _head(columns: Iterable[Any]) -> Head:
    """From `_COLUMNS`, by their places: there may be many thousands."""
    kind, namespace, name, uid, revision, marks, body = columns
    return Head(Key(kind, namespace, name), uid, revision, body, marks)


_NO_MARKS = "null::text as marks"
_COLUMNS = "h.kind, h.namespace, h.name, h.uid, h.revision, h.marks, s.body"


class Reader:
    def __init__(self, pool: asyncpg.Pool) -> None:
        self._pool = pool

    async def get_many(self, keys: Iterable[Key]) -> dict[Key, Head]:
        """Those of the objects that exist, in one query."""
        kinds, namespaces, names = zip(*keys, strict=True) if (keys := list(keys)) else ((), (), ())
        sql = f"""select {_COLUMNS} from unnest($1::text[], $2::text[], $3::text[]) as k(kind, namespace, name)
            join heads h on (h.kind, h.namespace, h.name) = (k.kind, k.namespace, k.name)
            join history s on s.revision = h.revision"""
        rows = await self._pool.fetch(sql, kinds, namespaces, names)
        return {(head := _head(row)).key: head for row in rows}

    async def page(self, query: Query) -> Page:
        """One page in key order, and the revision that it shows, from one statement. Compacted if that is forgotten."""
        sql, values = _page(query) if query.at is None else _page_at(query)
        rows = await self._pool.fetch(sql, *values)
        if query.at is not None and (query.at < rows[0]["floor"] or any(map(_is_forgotten, rows))):
            raise Compacted(query.at, rows[0]["floor"])
        before = len(rows[0]) - _COLUMNS.count(",") - 1
        heads = [_head(row[before:]) for row in rows] if rows[0]["revision"] is not None else []
        revision = rows[0]["store_revision"] if query.at is None else query.at
        more = query.limit is not None and len(heads) > query.limit
        return Page(heads[: query.limit], revision, more)

    async def remaining(self, query: Query) -> int:
        """How many objects came after a place at a revision: what comes now, but for those that have come or gone since.

        Counted so, an index alone tells almost all of it.
        """
        values = _Values()
        key = _of_key(query, values)
        since = _changed_since(key, values.add(query.at))
        is_there = (
            "exists (select from heads l where (l.kind, l.namespace, l.name) = ($1, first.namespace, first.name))"
        )
        sql = f"""select (select count(*) from heads h where {key.format("h")}) + coalesce((
            select sum((change <> 'A')::int - ({is_there})::int) from ({since}) first), 0)"""
        found: int = await self._pool.fetchval(sql, *values)
        return found

    async def versions(self, revisions: Sequence[int]) -> dict[int, bytes]:
        """The bodies of these versions, as far as they are still kept."""
        rows = await self._pool.fetch("select revision, body from history where revision = any($1)", revisions)
        return {row["revision"]: row["body"] for row in rows}

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


def _changes(rows: Sequence[asyncpg.Record], after: int) -> list[Change]:
    if after < rows[0]["floor"]:
        raise Compacted(after, rows[0]["floor"])
    return [_change(row) for row in rows if row["revision"] is not None]


def _change(row: asyncpg.Record) -> Change:
    key = Key(row["kind"], row["namespace"], row["name"])
    change = Change(row["revision"], key, row["uid"], row["change"], row["body"], row["marks"], row["old_marks"])
    change.previous = row["previous"]
    return change


class _Values(list[object]):
    """The parameters of a statement."""

    def add(self, value: object) -> str:
        """How the statement names it."""
        self.append(value)
        return f"${len(self)}"


def _of_key(query: Query, values: _Values) -> str:
    """What a query demands of kind, namespace and name, of a table to be filled in."""
    where = [f"{{0}}.kind = {values.add(query.kind)}"]
    for column in ("namespace", "name"):
        value = getattr(query, column)
        if value is not None:
            where.append(f"{{0}}.{column} = {values.add(value)}")
    if query.after:
        namespace, name = query.after
        where.append(f"({{0}}.namespace, {{0}}.name) > ({values.add(namespace)}, {values.add(name)})")
    return " and ".join(where)


def _page(query: Query) -> tuple[str, _Values]:
    values = _Values()
    where = [_of_key(query, values).format("h")]
    if query.node is not None:
        where.append(f"h.node = {values.add(query.node)}")
    if query.deleting is not None:
        where.append(f"h.deleting = {values.add(query.deleting)}")
    columns = _COLUMNS if query.marked else _COLUMNS.replace("h.marks", _NO_MARKS)
    page = f"""select {columns} from heads h join history s using (revision) where {" and ".join(where)}
        order by h.namespace, h.name {_limit(query, values)}"""
    return f"select c.revision as store_revision, x.* from counter c left join lateral ({page}) x on true", values


def _page_at(query: Query) -> tuple[str, _Values]:
    """What has not changed since, and of what has, the version that its first change replaced.

    Bodies come by a subquery that the planner cannot join in its own way: a hash of the whole history, say.
    """
    if query.deleting is not None:
        raise ValueError("only what is there now can be asked whether it is being deleted")
    values, marks = _Values(), "v.marks" if query.marked else _NO_MARKS
    key = _of_key(query, values)
    at, limit = values.add(query.at), _limit(query, values)
    head, then = f"{key.format('h')} and h.revision <= {at}", "first.change <> 'A'"
    if query.node is not None:
        node = values.add(query.node)
        head += f" and h.node = {node}"
        then += f""" and coalesce((select coalesce(v.marks::json #>> '{{fields,spec.nodeName}}', '') = {node} from history v
            where v.revision = first.previous), true)"""
    return (
        f"""select c.revision as store_revision, c.floor, x.* from counter c left join lateral (
            select {values.add(query.kind)}::text as kind, k.namespace, k.name, v.uid, k.revision, {marks}, v.body from (
                (select h.namespace, h.name, h.revision from heads h where {head} order by h.namespace, h.name {limit})
                union all
                select first.namespace, first.name, coalesce(first.previous, 0)
                from ({_changed_since(key, at)}) first where {then}
                order by namespace, name {limit}
            ) k left join lateral (
                select uid, marks, body from history where revision = k.revision offset 0
            ) v on true order by k.namespace, k.name
        ) x on true""",
        values,
    )


def _changed_since(key: str, at: str) -> str:
    """The first change of each object after a revision."""
    return f"""select distinct on (s.namespace, s.name) s.namespace, s.name, s.change, s.previous from history s
        where {key.format("s")} and s.revision > {at} order by s.namespace, s.name, s.revision"""


def _limit(query: Query, values: _Values) -> str:
    """One row more than asked for tells whether there are more."""
    return "" if query.limit is None else f"limit {values.add(min(query.limit, _MOST) + 1)}"


def _is_forgotten(row: asyncpg.Record) -> bool:
    """Something was there, and nobody remembers what."""
    return row["revision"] is not None and row["body"] is None
