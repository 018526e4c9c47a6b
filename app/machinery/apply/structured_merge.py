"""Structured merge: merges an applied configuration into an object, and removes fields from one, by topology.

`server_side_apply` calls both. Documents are plain, and never changed. Applied list elements keep the configuration's order
(structured-merge-diff's `typed/merge.go` and `typed/remove.go`).
"""

from typing import Any

from app.machinery.apply.field_ownership import group_elements, path_element_of
from app.machinery.apply.field_sets import SELF, FieldSet, field_path_element, with_self
from app.machinery.apply.topology import ANY, LEAF, Topology


def merge(live: Any, applied: Any, topology: Topology) -> Any:
    """Return the live value with the applied one merged in. Nothing is removed, except from atomic values."""
    if topology is LEAF or not (live or applied):
        return applied
    if topology.sort in ("list", "set"):
        return _merge_list(live or (), applied or (), topology)
    if topology is ANY and not (isinstance(live, dict) and isinstance(applied, dict)):
        return applied
    live, applied = live or {}, applied or {}
    both = dict(live)
    for name, value in applied.items():
        member = topology.members.get(name)
        inner = member.topology if member else topology.item or ANY
        both[name] = merge(live[name], value, inner) if name in live else value
    return both


def _merge_list(live: Any, applied: Any, topology: Topology) -> list[Any]:
    """Merge lists: applied elements in their order; live ones stay before the next element that both lists have."""
    applied_elements = {path_element_of(each, topology): each for each in applied}
    old = group_elements(live, topology)
    rest = [(path_element_of(each, topology), each) for each in live]
    at = 0
    result = []
    for path_element, shared in zip(applied_elements, _next_shared_elements(list(applied_elements), old), strict=True):
        while at < len(rest) and rest[at][0] != shared:
            if rest[at][0] not in applied_elements:
                result.append(rest[at][1])
            at += 1
        result.append(_merge_element(old.get(path_element, []), applied_elements[path_element], topology))
        at += path_element == shared
    return [*result, *(each for path_element, each in rest[at:] if path_element not in applied_elements)]


def _next_shared_elements(path_elements: list[str], old: dict[str, Any]) -> list[str | None]:
    """Return for each path element the next one, itself included, that the live list has."""
    shared_elements: list[str | None] = []
    shared = None
    for path_element in reversed(path_elements):
        shared = path_element if path_element in old else shared
        shared_elements.append(shared)
    return shared_elements[::-1]


def _merge_element(before: list[Any], applied: Any, topology: Topology) -> Any:
    """Merge one element; a duplicate in the live list is replaced, because its counterpart is ambiguous."""
    return merge(before[0], applied, topology.item or LEAF) if len(before) == 1 else applied


def remove_fields(value: Any, removed: FieldSet, topology: Topology) -> Any:
    """Return the value without the fields of a set; None if it is empty then."""
    if topology is LEAF or not value or (topology is ANY and not isinstance(value, dict)):
        return value
    if isinstance(value, dict):
        result: dict[str, Any] = {}
        for name, each in value.items():
            member = topology.members.get(name)
            inner = member.topology if member else topology.item or ANY
            _keep_unremoved(result, name, each, removed.get(field_path_element(name)), inner)
        return result or None
    left = []
    for each in value:
        node = removed.get(path_element_of(each, topology))
        if node is None:
            left.append(each)
        elif node and SELF not in node:
            left.append(remove_fields(each, node, topology.item or LEAF))
    return left or None


def _keep_unremoved(result: dict[str, Any], name: str, value: Any, node: FieldSet | None, topology: Topology) -> None:
    if node is None:
        result[name] = value
    elif node and SELF not in node:
        result[name] = remove_fields(value, node, topology)


def ensure_named_fields(fields: FieldSet, topology: Topology) -> FieldSet:
    """Add the struct fields above each member, as EnsureNamedFieldsAreMembers: empty structs are then removed, too."""
    result = {}
    for path_element, node in fields.items():
        if not node:
            result[path_element] = node
            continue
        member = topology.members.get(path_element[2:]) if path_element[0] == "f" else None
        inner = ensure_named_fields(node, member.topology if member else topology.item or ANY)
        result[path_element] = with_self(inner) if member else inner
    return result
