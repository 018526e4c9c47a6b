"""Commit arrays: a batch of write sets as the parameters of the SQL function commit_write_sets (`schema/sql`).

`commit` lays out each batch before it is sent, and finds by the layout which revision each write got. Pure.
"""

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Any, NamedTuple, TypeVar

import msgspec

from app.store.change_feed import SelectorIndex
from app.store.encryption.encryption import ENCRYPTED, KeyRing
from app.store.errors import Key
from app.store.packing.packing import Contents, pack
from app.store.write_set import Write

T = TypeVar("T")
_encode = msgspec.json.Encoder().encode
_COLUMNS = 15
_NOTHING_STORED = Contents(_encode(SelectorIndex()).decode(), None, b"")  # of a precondition


class Layout(NamedTuple):
    """Positions of a batch's writes in the arrays of the commit function.

    rows:  in the order of the arrays, the number of the set (None for a guard of all sets), and the write.
    items: for each set, the position of each of its writes among the rows, from 1.
    """

    rows: list[tuple[int | None, Write]]
    items: list[list[int]]


def lay_out(sets: Sequence[Sequence[Write]]) -> Layout:
    """Lay out a batch. A guard that all sets demand, such as their namespace, has one row, in no set.

    The function sees NULL as its set. If the guard is refused, NULL is one of the refused sets, so `in_set <> all (bad_sets)` is
    true for no write, and the function writes nothing.
    """
    if len(sets) == 1:
        return Layout([(0, write) for write in sets[0]], [list(range(1, len(sets[0]) + 1))])
    shared = _find_shared_guards(sets)
    rows: list[tuple[int | None, Write]] = [(None, guard) for guard in shared.values()]
    places = {key: item for item, key in enumerate(shared, 1)}
    items: list[list[int]] = []
    for index, writes in enumerate(sets):
        own: list[int] = []
        for write in writes:
            if places and write.change == "G" and write.key in places:
                own.append(places[write.key])
            else:
                rows.append((index, write))
                own.append(len(rows))
        items.append(own)
    return Layout(rows, items)


def _find_shared_guards(sets: Sequence[Sequence[Write]]) -> dict[Key, Write]:
    """Return the guards that every one of several sets demands."""
    shared = {write.key: write for write in sets[0] if write.change == "G"}
    for writes in sets:
        if not shared:
            break
        guards = {write.key: write for write in writes if write.change == "G" and write.key in shared}
        shared = {key: guard for key, guard in guards.items() if guard.expected == shared[key].expected}
    return shared


def parameters_of(layout: Layout, origin: str, keys: KeyRing) -> tuple[object, ...]:
    """The parameters of the commit function, in their order: the batch as arrays, one for each column, and who commits."""
    rows: list[tuple[Any, ...]] = []
    for index, write in layout.rows:
        selector_index, old_selector_index, body = _stored(write, keys)
        rows.append(
            (
                *(index, *write.key, write.uid, write.change, write.expected, body),
                *(selector_index, old_selector_index, write.owner, write.node, write.deleting),
                *(write.dormant, write.expires_at),
            )
        )
    by_column: Iterable[tuple[Any, ...]] = (
        zip(*rows, strict=True) if rows else repeat((), _COLUMNS)
    )  # sets may be empty
    *columns, old_indexes, owners, nodes, deleting, dormant, expires_at = map(list, by_column)
    return (
        *(*columns, _column(old_indexes), _column(owners), _column(nodes), deleting),
        *(origin, _column(dormant), _column(expires_at)),
    )


def _stored(write: Write, keys: KeyRing) -> Contents:
    """Return what is stored of a write. A packed body contains the old selector index, any other has it beside itself."""
    if write.change == "G":
        return _NOTHING_STORED
    old_index = _encode(write.old_selector_index).decode() if write.old_selector_index else None
    contents = Contents(_encode(write.selector_index).decode(), old_index, write.body)
    if write.key.kind in ENCRYPTED:
        return contents._replace(body=keys.encrypt(write.key, write.body))
    packed = None if _has_moved(write) else pack(contents, write.key.kind)
    return contents if packed is None else Contents(contents.selector_index, None, packed)


def _has_moved(write: Write) -> bool:
    """Return whether an object has gone from one node to another, as custom ones may: history of the former has to find it."""
    old = write.old_selector_index.fields.get("spec.nodeName") if write.old_selector_index else None
    return bool(old) and old != write.node


def _column(values: list[T | None]) -> list[T | None] | None:
    """None for a column of nulls, which is the same to `unnest`: each value of an array costs both ends something."""
    return None if values.count(None) == len(values) else values
