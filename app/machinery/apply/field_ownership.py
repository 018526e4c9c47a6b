"""Field ownership: field sets of a document, and of the differences between two, by the topology of their kind.

`managed_fields` compares the stored object with what a client wrote; `server_side_apply` computes which fields a
configuration applies. The counterparts upstream are `typed.ToFieldSet` and `typed.Compare` of structured-merge-diff.
Documents come from `msgspec.to_builtins`, or from clients after validation.
"""

from typing import Any, NamedTuple

from app.machinery.apply.field_sets import (
    NO_CHILDREN,
    FieldSet,
    field_path_element,
    key_path_element,
    sort_fields,
    value_path_element,
    with_self,
)
from app.machinery.apply.topology import ANY, LEAF, Topology

_ABSENT: Any = object()


class Comparison(NamedTuple):
    """Differences between two documents, as disjoint field sets."""

    removed: FieldSet
    modified: FieldSet
    added: FieldSet


def compute_applied_fields(document: dict[str, Any], topology: Topology) -> FieldSet:
    """Return the fields of an applied configuration: its leaves and list elements, not the structs and maps around them."""
    return _compute_applied_fields(document, topology) or {}


def _compute_applied_fields(value: Any, topology: Topology) -> FieldSet | None:
    """None if there is no field to own, as in an empty list."""
    if topology is LEAF or value is None or value == {}:
        return {}
    nodes: FieldSet = {}
    if isinstance(value, dict):
        for name, each in value.items():
            path_element, inner, is_named = _find_member(topology, name)
            node = _compute_applied_fields(each, inner)
            if not is_named:
                nodes[path_element] = with_self(node or {})
            elif node is not None:
                nodes[path_element] = node
        return nodes or None
    if topology.sort not in ("list", "set"):
        return {}
    for path_element, each in group_elements(value, topology).items():
        inner = topology.item or LEAF
        nodes[path_element] = with_self(_compute_applied_fields(each[0], inner) or {}) if len(each) == 1 else {}
    return nodes or None


def _find_member(topology: Topology, name: str) -> tuple[str, Topology, bool]:
    """Return path element and topology of a member of a map or struct, and whether it is a declared field."""
    member = topology.members.get(name)
    if member is not None:
        return member.path_element, member.topology, True
    return field_path_element(name), topology.item or ANY, False


def group_elements(values: Any, topology: Topology) -> dict[str, list[Any]]:
    """Group a list's elements by path element, in order. Duplicates share one entry and are compared as one value."""
    found: dict[str, list[Any]] = {}
    for each in values or ():
        found.setdefault(path_element_of(each, topology), []).append(each)
    return found


def path_element_of(element: Any, topology: Topology) -> str:
    if topology.sort == "set":
        return value_path_element(element)
    return key_path_element({key: element.get(key, default) for key, default in topology.keys})


def compare(old: dict[str, Any], new: dict[str, Any], topology: Topology) -> Comparison:
    return _compare(old, new, topology)


_NOTHING = Comparison({}, {}, {})


def _compare(old: Any, new: Any, topology: Topology) -> Comparison:
    """Compare the members of two unequal values; a leaf is an empty node in the set that it is in."""
    gathered = Comparison({}, {}, {})
    for path_element, before, after, inner in _pair_members(old, new, topology):
        if before == after:
            continue
        if before is _ABSENT:
            gathered.added[path_element] = _fields_with_self(after, inner)
        elif after is _ABSENT:
            gathered.removed[path_element] = _fields_with_self(before, inner)
        elif _is_leaf(before, after, inner):
            gathered.modified[path_element] = {}
        else:
            for into, node in zip(gathered, _compare(before, after, inner), strict=True):
                if node:
                    into[path_element] = node
    return gathered


def _is_leaf(before: Any, after: Any, topology: Topology) -> bool:
    if topology is LEAF or not (before or after):
        return True  # two forms of empty, such as null and {}
    return topology is ANY and not (isinstance(before, dict) and isinstance(after, dict))


def _pair_members(old: Any, new: Any, topology: Topology) -> list[tuple[str, Any, Any, Topology]]:
    """Pair the members of two maps, structs or lists: (path element, before, after, topology)."""
    if topology.sort in ("list", "set"):
        return _pair_elements(old, new, topology)
    old, new = old or {}, new or {}
    pairs = []
    for name in [*old, *(name for name in new if name not in old)]:
        before, after = old.get(name, _ABSENT), new.get(name, _ABSENT)
        member = topology.members.get(name)
        if member is None:
            pairs.append((field_path_element(name), before, after, topology.item or ANY))
            continue
        if member.always:  # absent here means empty: to_builtins omits it
            before, after = ({} if each is _ABSENT else each for each in (before, after))
        pairs.append((member.path_element, before, after, member.topology))
    return pairs


def _pair_elements(old: Any, new: Any, topology: Topology) -> list[tuple[str, Any, Any, Topology]]:
    before, after = group_elements(old, topology), group_elements(new, topology)
    inner = topology.item or LEAF
    pairs: list[tuple[str, Any, Any, Topology]] = []
    for path_element in before | after:
        olds, news = before.get(path_element, []), after.get(path_element, [])
        if len(olds) > 1 and len(news) > 1:
            pairs.append((path_element, olds, news, LEAF))
        elif len(olds) > 1 or len(news) > 1:
            pairs.append((path_element, _unwrap_single(olds), _ABSENT, inner if len(olds) == 1 else LEAF))
            pairs.append((path_element, _ABSENT, _unwrap_single(news), inner if len(news) == 1 else LEAF))
        else:
            pairs.append((path_element, _unwrap_single(olds), _unwrap_single(news), inner))
    return pairs


def _unwrap_single(values: list[Any]) -> Any:
    """Return a single element itself, duplicates as a list, and _ABSENT for none."""
    return values[0] if len(values) == 1 else values or _ABSENT


def compute_all_fields(document: dict[str, Any], topology: Topology) -> FieldSet:
    """Return all fields of an object, sorted, as if every one were new. Every creation runs this: keep it fast."""
    return _fields_inside(document, topology, is_new=False)


def _fields_inside(value: Any, topology: Topology, *, is_new: bool) -> FieldSet:
    """Return the set of a value's members, without itself. Members that every object has are not new."""
    inside: FieldSet = {}
    if topology.sort == "struct":
        members = topology.members
        for name in sorted(value):
            path_element, inner, is_always = members[name]
            if inner is LEAF:
                inside[path_element] = NO_CHILDREN
            elif is_new or not is_always:
                inside[path_element] = _fields_with_self(value[name], inner)
            elif node := _fields_inside(value[name], inner, is_new=False):
                inside[path_element] = node
        return inside
    inner = topology.item or ANY
    if isinstance(value, dict):
        for name in sorted(value):
            path_element, below, _ = _find_member(topology, name) if topology.members else (f"f:{name}", inner, False)
            inside[path_element] = NO_CHILDREN if below is LEAF else _fields_with_self(value[name], below)
        return inside
    for path_element, each in group_elements(value, topology).items():
        inside[path_element] = _fields_with_self(each[0], inner) if len(each) == 1 else NO_CHILDREN
    return sort_fields(inside) if len(inside) > 1 else inside


def _fields_with_self(value: Any, topology: Topology) -> FieldSet:
    """Return the set of an added or removed value: itself, and all its members."""
    if topology is LEAF or not value or (topology is ANY and not isinstance(value, dict)):
        return NO_CHILDREN
    return with_self(_fields_inside(value, topology, is_new=True))
