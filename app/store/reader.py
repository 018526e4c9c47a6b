"""Reader: one object, many, lists with their revision, and the history. All but that of the feed from one pool of connections."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import accumulate
from typing import Any

import asyncpg

from app.store.change_feed import Change, SelectorIndex, decode_selector_index, encode_label, versioned
from app.store.encryption.encryption import ENCRYPTED, KeyRing
from app.store.errors import Compacted, Key, NewTimeline
from app.store.packing.packing import PACKED, SIZE, unpack, unpack_body
from app.store.timeline import BEGINNING

HISTORY_ROWS = 500  # rows of one read of history: listeners take them in one step of the event loop
SHORT_HISTORY = frozenset({"secrets"})  # kinds whose old versions are kept for minutes
_MOST = 2**62  # a limit may be any number, and one more must still fit a bigint


class StoredObject:
    """One version of an object: the newest, or the one that a list at an older revision shows.

    Its selector index is decoded when somebody looks; what was read without (`Query.with_selector_index`) has none.
    """

    __slots__ = ("_selector_index", "body", "key", "revision", "uid")

    def __init__(
        self, key: Key, uid: str, revision: int, body: bytes, selector_index: SelectorIndex | str | None
    ) -> None:
        self.key = key
        self.uid = uid
        self.revision = revision
        self.body = body
        self._selector_index = selector_index

    @property
    def selector_index(self) -> SelectorIndex:
        if isinstance(self._selector_index, str):
            self._selector_index = decode_selector_index(self._selector_index)
        if self._selector_index is None:
            raise LookupError("it was read without its selector index")
        return self._selector_index

    def take(self, selector_index: str | None, body: bytes) -> None:
        """Contents that were left out when the page was read."""
        self._selector_index, self.body = selector_index, body

    @property
    def wire(self) -> bytes:
        """The object as clients see it."""
        return versioned(self.body, self.revision)


@dataclass(frozen=True, slots=True)
class Page:
    """Part of a list, as all was at `revision`: a watch from there misses nothing, and further pages can be read there."""

    heads: list[StoredObject]
    revision: int
    more: bool
    remaining: int | None = None  # how many come after it, where that was asked for


@dataclass(frozen=True, slots=True, kw_only=True)
class Query:
    """What to list. `node` and `name` are selectors that an index serves; `after` is the last key of the page before.

    deleting: True for those that are on their way out, False for those that are not.
    at: as it was at this revision, which the store must have given out; None for now.
    with_selector_index: whether that is read, too: lists without a selector can do without.
    labels: labels that are wanted, each with one of its values; fields: fields that are wanted. Most objects without them are
    left out, not all: the caller matches the rest.
    awake: only what is not dormant, of a kind that may be (`app.plans.jobs.dormancy`).
    size: bytes at which a page ends, with the object that reaches them; None for no such limit.
    """

    kind: str
    namespace: str | None = None
    name: str | None = None
    node: str | None = None
    deleting: bool | None = None
    after: tuple[str, str] | None = None
    limit: int | None = None
    at: int | None = None
    with_selector_index: bool = True
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)
    awake: bool = False
    size: int | None = None


def _floor(kind: str, revision: str) -> str:
    """SQL: history of a kind at or below this may be gone, or was lost with `revision`."""
    compacted = "greatest(c.floor, c.secrets_floor)" if kind in SHORT_HISTORY else "c.floor"
    return f"coalesce({BEGINNING.format(revision)}, {compacted}) as floor"


DORMANT_KINDS = frozenset({"jobs.batch", "pods"})
_AWAKE = "h.dormant is null and h.kind in ('jobs.batch', 'pods')"  # in the words of the index heads_awake
_AWAKE_CUSTOM = "h.dormant is null and h.kind like '%.%.%'"  # in the words of the index heads_awake_custom
# In the words of the index heads_by_label.
LABELS = """regexp_split_to_array(split_part(h.marks, '"fields":{', 1), '[{},]+')"""
_NO_SELECTOR_INDEX = "null::text as marks"
_COLUMNS = "h.kind, h.namespace, h.name, h.uid, h.revision, h.marks, s.body"
# The index on revisions, which follow time, gives the first few in order.
_UNCHANGED = f"""select kind, namespace, name, uid, revision, marks, body from (
        select {_COLUMNS}, s.recorded_at from heads h join versions s using (revision)
        where h.kind = $1 and h.revision > $2 order by h.revision limit $3
    ) x where recorded_at < now() - $4::interval order by revision"""


_VERSIONS = "select kind, namespace, name, uid, revision, null, body from versions where revision = any($1)"
_OWNED = """select s.body from heads h join versions s using (revision)
    where h.owner = $1 and h.kind = $2 order by h.revision desc limit $3"""


class Reader:
    def __init__(self, pool: asyncpg.Pool, keys: KeyRing) -> None:
        self._pool = pool
        self._keys = keys

    def _head(self, columns: Iterable[Any], *, with_selector_index: bool = True) -> StoredObject:
        """From `_COLUMNS`, by their places: there may be many thousands."""
        kind, namespace, name, uid, revision, selector_index, stored = columns
        key = Key(kind, namespace, name)
        body = stored
        if stored is not None:  # else it is left out, and read by `_complete`
            packed_index, body = self._open(key, stored)
            if with_selector_index:
                selector_index = selector_index or packed_index
        return StoredObject(key, uid, revision, body, selector_index)

    def _open(self, key: Key, stored: bytes) -> tuple[str | None, bytes]:
        """A version's selector index, if it is packed, and its body."""
        if stored.startswith(PACKED):
            selector_index, _, body = unpack(stored)
            return selector_index, body
        return None, self._keys.decrypt(key, stored) if key.kind in ENCRYPTED else stored

    def _changes(self, rows: Sequence[asyncpg.Record], after: int) -> list[Change]:
        if after < rows[0]["floor"]:
            raise Compacted(after, rows[0]["floor"])
        return [self._change(row) for row in rows if row["revision"] is not None]

    def _change(self, row: asyncpg.Record) -> Change:
        key, body = Key(row["kind"], row["namespace"], row["name"]), row["body"]
        selector_index, old_selector_index = row["marks"], row["old_marks"]
        if body.startswith(PACKED):
            selector_index, old_selector_index, body = unpack(body)
        elif key.kind in ENCRYPTED:
            body = self._keys.decrypt(key, body)
        change = Change(row["revision"], key, row["uid"], row["change"], body, selector_index, old_selector_index)
        change.previous = row["previous"]
        return change

    async def get_many(self, keys: Iterable[Key]) -> dict[Key, StoredObject]:
        """Return the given objects that exist, read in one query."""
        kinds, namespaces, names = zip(*keys, strict=True) if (keys := list(keys)) else ((), (), ())
        sql = f"""select {_COLUMNS} from unnest($1::text[], $2::text[], $3::text[]) as k(kind, namespace, name)
            join heads h on (h.kind, h.namespace, h.name) = (k.kind, k.namespace, k.name)
            join versions s on s.revision = h.revision"""
        rows = await self._pool.fetch(sql, kinds, namespaces, names)
        return {(head := self._head(row)).key: head for row in rows}

    async def page(self, query: Query) -> Page:
        """One page in key order, and the revision that it shows, from one statement. Compacted if that is forgotten."""
        sql, values = _page(query) if query.at is None else _page_at(query)
        rows = await self._rows(query, sql, values)
        if query.at is not None and (query.at < rows[0]["floor"] or any(map(_is_forgotten, rows))):
            raise Compacted(query.at, rows[0]["floor"])
        before = 1 if query.at is None else 2
        wanted, found = query.with_selector_index, rows if rows[0]["revision"] is not None else []
        heads = [self._head(row[before : before + 7], with_selector_index=wanted) for row in found]
        revision = rows[0]["store_revision"] if query.at is None else query.at
        limit = query.limit
        if query.size is not None and None in [head.body for head in heads]:
            sizes = [row["size"] or len(head.body) for row, head in zip(rows, heads, strict=True)]
            limit = min(limit or len(heads), _count_fitting(sizes, query.size))
            await self._complete(heads[:limit], query)
        more = limit is not None and len(heads) > limit
        return Page(heads[:limit], revision, more)

    async def _rows(self, query: Query, sql: str, values: Sequence[object]) -> list[asyncpg.Record]:
        """With labels, planned for these values: whether an index helps depends on how many objects have a label.

        Postgres would plan a statement that it has seen some times for any values, and read all objects of the kind.
        """
        if not query.labels:
            return await self._pool.fetch(sql, *values)
        async with self._pool.acquire() as connection:
            statement = await connection.prepare(sql)
            return await statement.fetch(*values)

    async def _complete(self, heads: Iterable[StoredObject], query: Query) -> None:
        """Read what was left out of large objects; versions do not change. Compacted if one is forgotten meanwhile."""
        large = {head.revision: head for head in heads if head.body is None}
        column = "marks" if query.with_selector_index else _NO_SELECTOR_INDEX
        sql = f"select revision, {column}, body from versions where revision = any($1)"
        for revision, selector_index, stored in await self._pool.fetch(sql, list(large)):
            head = large.pop(revision)
            packed_index, body = self._open(head.key, stored)
            head.take(selector_index or packed_index, body)
        if large:
            raise Compacted(min(large), max(large))

    async def unchanged(self, kind: str, after: int, age: timedelta, limit: int) -> list[StoredObject]:
        """The first objects of a kind after a revision, of those that have not changed for so long.

        By the database's own clock, which dated them.
        """
        rows = await self._pool.fetch(_UNCHANGED, kind, after, limit, age)
        return [self._head(row) for row in rows]

    async def remaining(self, query: Query, most: int | None = None) -> int | None:
        """Return how many objects came after a place at a revision: what comes now, but for those that have come or gone since.

        Counted so, an index alone tells almost all of it. None if more than `most` come now.
        """
        values = _Values()
        key = _of_key(query, values)
        since = _changed_since(key, values.add(query.at))
        is_there = (
            "exists (select from heads l where (l.kind, l.namespace, l.name) = ($1, first.namespace, first.name))"
        )
        limit = values.add(None if most is None else most + 1)
        sql = f"""select (select count(*) from (select from heads h where {key.format("h")} limit {limit}) h), coalesce((
            select sum((change <> 'A')::int - ({is_there})::int) from ({since}) first), 0)"""
        ((now, change),) = await self._pool.fetch(sql, *values)
        return None if most is not None and now > most else now + change

    async def versions(self, revisions: Sequence[int]) -> dict[int, bytes]:
        """The bodies of these versions, as far as they are still kept."""
        rows = await self._pool.fetch(_VERSIONS, revisions)
        return {head.revision: head.body for head in map(self._head, rows)}

    async def owned_by(self, kind: str, uid: str, limit: int) -> list[bytes]:
        """The bodies of the newest objects of a kind whose controller has this UID."""
        rows = await self._pool.fetch(_OWNED, uid, kind, limit)
        return [unpack_body(row["body"]) for row in rows]

    async def count(self, kinds: Sequence[str], namespace: str) -> dict[str, int]:
        """Return how many objects of these kinds are in a namespace; kinds without any are left out."""
        sql = "select kind, count(*) as many from heads where kind = any($1) and namespace = $2 group by kind"
        return {row["kind"]: row["many"] for row in await self._pool.fetch(sql, kinds, namespace)}

    async def revision(self) -> int:
        """The last revision given out."""
        found: int = await self._pool.fetchval("select revision from counter")
        return found

    async def history(
        self,
        connection: asyncpg.Connection | asyncpg.Pool,
        after: int,
        up_to: int | None,
        timeline: int | None = None,
        without: str = "",
    ) -> tuple[Sequence[Change], int, bool]:
        """The changes in (after, up_to] in order, the revision up to which they are complete, and whether there are more.

        Compacted if some of them are gone, be it only of Secrets: whoever follows all kinds would miss a deletion. As in
        `history_of`, the floor is read in the statement that reads the rows. Given a timeline, NewTimeline if there is a
        newer one, or if `after` was not given out here. Changes of the kind `without` are left out.

        connection: the feed's own. To take one from the pool for each notification costs more than to read what it is about.
        """
        sql = """select c.revision as store_revision, greatest(c.floor, c.secrets_floor) as floor, c.timeline, x.*
            from counter c left join lateral (
            select revision, kind, namespace, name, uid, change, marks, old_marks, body, previous from versions
            where revision > $1 and revision <= coalesce($2, c.revision) and kind <> $4 order by revision limit $3
            ) x on true"""
        rows = await connection.fetch(sql, after, up_to, HISTORY_ROWS, without)
        if timeline is not None and (timeline != rows[0]["timeline"] or rows[0]["store_revision"] < after):
            raise NewTimeline
        changes = self._changes(rows, after)
        if len(changes) == HISTORY_ROWS:
            return changes, changes[-1].revision, True
        return changes, up_to if up_to is not None else rows[0]["store_revision"], False

    async def history_of(
        self, kind: str, after: int, up_to: int, limit: int | None = None, node: str | None = None
    ) -> list[Change]:
        """The first of one kind's changes in (after, up_to]; Compacted if some of them are gone. `node` as `Store.history_of`."""
        bound = "" if node is None else "and (node = $5 or strpos(marks, $6) > 0 or strpos(old_marks, $6) > 0)"
        sql = f"""select {_floor(kind, "$2")}, x.* from counter c left join lateral (
            select * from versions where kind = $1 and revision > $2 and revision <= $3 {bound} order by revision limit $4
            ) x on true"""
        values = () if node is None else (node, encode_label("spec.nodeName", node))
        return self._changes(await self._pool.fetch(sql, kind, after, up_to, limit, *values), after)


class _Values(list[object]):
    """The parameters of a statement."""

    def add(self, value: object) -> str:
        """Return how the statement names it."""
        self.append(value)
        return f"${len(self)}"


def _of_key(query: Query, values: _Values) -> str:
    """Return what a query demands of kind, namespace and name, of a table to be filled in."""
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
    """Return what is there now. The planner cannot join the bodies' subquery in its own way: by a hash of the history, say."""
    values = _Values()
    where = [_of_key(query, values).format("h")]
    if query.node is not None:
        where.append(f"h.node = {values.add(query.node)}")
    if query.deleting is not None:
        where.append(f"h.deleting = {values.add(query.deleting)}")
    if query.awake:
        where.append(_awake(query.kind) or "h.dormant is null")
    where += _has_wanted(query, values)
    page = f"""select h.kind, h.namespace, h.name, h.uid, h.revision, {_content(query, "h", "s", values)} from (
            select h.* from heads h where {" and ".join(where)} order by h.namespace, h.name {_limit(query, values)}
        ) h join lateral (select marks, body from versions where revision = h.revision offset 0) s on true
        order by h.namespace, h.name"""
    return f"select c.revision as store_revision, x.* from counter c left join lateral ({page}) x on true", values


def _has_wanted(query: Query, values: _Values) -> list[str]:
    """Conditions on labels and fields in `heads h`.

    They look at the text of the selector index, which is not decoded: that takes a hundred times as long. What is dormant may be
    a million objects: an index finds it by its labels.
    """
    conditions = [_has_text(name, [value], values) for name, value in query.fields.items()]
    for label, wanted in query.labels.items():
        conditions.append(_has_text(label, wanted, values))
        if awake := _awake(query.kind):
            pairs = values.add([encode_label(label, value) for value in wanted])
            conditions.append(f"({awake} or h.dormant is not null and {LABELS} && {pairs}::text[])")
    return conditions


def _awake(kind: str) -> str:
    """What of a kind is awake, in the words of an index; empty for a kind of which all is."""
    if kind in DORMANT_KINDS:
        return _AWAKE
    return _AWAKE_CUSTOM if kind.count(".") > 1 else ""


def _has_text(name: str, wanted: Sequence[str], values: _Values) -> str:
    found = (f"strpos(h.marks, {values.add(encode_label(name, value))}) > 0" for value in wanted)
    return f"({' or '.join(found)})"


def _content(query: Query, head: str, version: str, values: _Values) -> str:
    """Selector index and body. In a page that is limited in bytes, large objects have their size in place of both.

    Postgres knows sizes without reading what it stores apart from a row.
    """
    column = f"{head}.marks" if query.with_selector_index else _NO_SELECTOR_INDEX
    if query.size is None:
        return f"{column}, {version}.body"
    index_size = f" + coalesce(octet_length({head}.marks), 0)" if query.with_selector_index else ""
    size = f"{SIZE.format(version)}{index_size}"
    fits = f"{size} <= {values.add(_bytes_per_object(query))}"
    column = f"case when {fits} then {head}.marks end as marks" if query.with_selector_index else column
    return f"{column}, case when {fits} then {version}.body end as body, case when not ({fits}) then {size} end as size"


def _bytes_per_object(query: Query) -> int:
    """Bytes of an object that is read with the rest of its page: as many of them as fill two pages."""
    return 2 * (query.size or 0) // (min(query.limit or 1, _MOST) + 1)


def _page_at(query: Query) -> tuple[str, _Values]:
    """Return what has not changed since, and of what has, the version that its first change replaced.

    Bodies come as in `_page`.
    """
    if query.deleting is not None:
        raise ValueError("only what is there now can be asked whether it is being deleted")
    values = _Values()
    key = _of_key(query, values)
    at, limit = values.add(query.at), _limit(query, values)
    head, then = f"{key.format('h')} and h.revision <= {at}", "first.change <> 'A'"
    if query.node is not None:
        node = values.add(query.node)
        head += f" and h.node = {node}"
        then += f""" and coalesce((select coalesce(v.node, v.marks::json #>> '{{fields,spec.nodeName}}', '') = {node}
            from versions v where v.revision = first.previous), true)"""
    head = " and ".join((head, *_has_wanted(query, values)))
    content = _content(query, "v", "v", values)
    return (
        f"""select c.revision as store_revision, {_floor(query.kind, at)}, x.* from counter c left join lateral (
            select {values.add(query.kind)}::text as kind, k.namespace, k.name, v.uid, k.revision, {content} from (
                (select h.namespace, h.name, h.revision from heads h where {head} order by h.namespace, h.name {limit})
                union all
                select first.namespace, first.name, coalesce(first.previous, 0)
                from ({_changed_since(key, at)}) first where {then}
                order by namespace, name {limit}
            ) k left join lateral (
                select uid, marks, body from versions where revision = k.revision offset 0
            ) v on true order by k.namespace, k.name
        ) x on true""",
        values,
    )


def _changed_since(key: str, at: str) -> str:
    """The first change of each object after a revision."""
    return f"""select distinct on (s.namespace, s.name) s.namespace, s.name, s.change, s.previous from versions s
        where {key.format("s")} and s.revision > {at} order by s.namespace, s.name, s.revision"""


def _limit(query: Query, values: _Values) -> str:
    """One row more than asked for tells whether there are more."""
    return "" if query.limit is None else f"limit {values.add(min(query.limit, _MOST) + 1)}"


def _count_fitting(sizes: Sequence[int], size: int) -> int:
    """Count the first rows that fit into so many bytes together."""
    return next((number for number, sum_ in enumerate(accumulate(sizes), 1) if sum_ >= size), len(sizes))


def _is_forgotten(row: asyncpg.Record) -> bool:
    """Something was there, and nobody remembers what."""
    return row["revision"] is not None and row["uid"] is None
