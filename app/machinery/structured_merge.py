"""Merging an applied configuration into an object, and taking fields out of one: plain documents, by topology.

`server_side_apply` does both. What is put in keeps the order in which the configuration lists it. Documents are never changed.
"""

from typing import Any

from app.machinery.field_ownership import elements, mark_of
from app.machinery.field_sets import SELF, FieldSet, field_mark, with_self
from app.machinery.topology import ANY, LEAF, Topology


def merged(live: Any, applied: Any, topology: Topology) -> Any:
    """The live value with what is applied put in. Nothing goes, except from what is replaced whole."""
    if topology is LEAF or not (live or applied):
        return applied
    if topology.sort in ("list", "set"):
        return _merged_list(live or (), applied or (), topology)
    if topology is ANY and not (isinstance(live, dict) and isinstance(applied, dict)):
        return applied
    live, applied = live or {}, applied or {}
    both = dict(live)
    for name, value in applied.items():
        member = topology.members.get(name)
        inner = member.topology if member else topology.item or ANY
        both[name] = merged(live[name], value, inner) if name in live else value
    return both


def _merged_list(live: Any, applied: Any, topology: Topology) -> list[Any]:
    """Applied elements in their order; others stay before the shared element that they were before, else come first."""
    wanted = {mark_of(each, topology): each for each in applied}
    old = elements(live, topology)
    rest = [(mark_of(each, topology), each) for each in live]
    at = 0
    result = []
    for mark, meeting in zip(wanted, _meetings(list(wanted), old), strict=True):
        while at < len(rest) and rest[at][0] != meeting:
            if rest[at][0] not in wanted:
                result.append(rest[at][1])
            at += 1
        result.append(_merged_element(old.get(mark, []), wanted[mark], topology))
        at += mark == meeting
    return [*result, *(each for mark, each in rest[at:] if mark not in wanted)]


def _meetings(marks: list[str], old: dict[str, Any]) -> list[str | None]:
    """For each mark the next one, itself included, that was there before."""
    meetings: list[str | None] = []
    meeting = None
    for mark in reversed(marks):
        meeting = mark if mark in old else meeting
        meetings.append(meeting)
    return meetings[::-1]


def _merged_element(before: list[Any], applied: Any, topology: Topology) -> Any:
    """What was there twice is replaced: it would not be known which of the two is meant."""
    return merged(before[0], applied, topology.item or LEAF) if len(before) == 1 else applied


def without(value: Any, doomed: FieldSet, topology: Topology) -> Any:
    """The value without the fields of a set; None if nothing is left of it."""
    if topology is LEAF or not value or (topology is ANY and not isinstance(value, dict)):
        return value
    if isinstance(value, dict):
        kept: dict[str, Any] = {}
        for name, each in value.items():
            member = topology.members.get(name)
            inner = member.topology if member else topology.item or ANY
            _keep(kept, name, each, doomed.get(field_mark(name)), inner)
        return kept or None
    left = []
    for each in value:
        node = doomed.get(mark_of(each, topology))
        if node is None:
            left.append(each)
        elif node and SELF not in node:
            left.append(without(each, node, topology.item or LEAF))
    return left or None


def _keep(kept: dict[str, Any], name: str, value: Any, node: FieldSet | None, topology: Topology) -> None:
    if node is None:
        kept[name] = value
    elif node and SELF not in node:
        kept[name] = without(value, node, topology)


def with_named(fields: FieldSet, topology: Topology) -> FieldSet:
    """The set with the fields of structs in it that are not leaves: they go once nothing inside is left to hold them."""
    result = {}
    for mark, node in fields.items():
        if not node:
            result[mark] = node
            continue
        member = topology.members.get(mark[2:]) if mark[0] == "f" else None
        inner = with_named(node, member.topology if member else topology.item or ANY)
        result[mark] = with_self(inner) if member else inner
    return result
