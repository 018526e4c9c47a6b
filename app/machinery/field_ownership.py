"""Field sets of a document, and of the differences between two, by the topology of their kind.

`managed_fields` compares what was with what a client wrote; `server_side_apply` asks what a configuration claims. Documents
are what `msgspec.to_builtins` makes of objects, or what clients send once it is known to fit.
"""

from typing import Any, NamedTuple

from app.machinery.field_sets import SELF, FieldSet, field_mark, key_mark, ordered, value_mark, with_self
from app.machinery.topology import ANY, LEAF, Topology

_ABSENT: Any = object()


class Changes(NamedTuple):
    """What one document has to do with the one before. No field is in two of the sets."""

    removed: FieldSet
    modified: FieldSet
    added: FieldSet


def claimed(document: dict[str, Any], topology: Topology) -> FieldSet:
    """What an applied configuration claims: its leaves and list elements, not the structs and maps that hold them."""
    return _claimed(document, topology) or {}


def _claimed(value: Any, topology: Topology) -> FieldSet | None:
    """None if there is nothing to claim, as in an empty list."""
    if topology is LEAF or value is None or value == {}:
        return {}
    nodes: FieldSet = {}
    if isinstance(value, dict):
        for name, each in value.items():
            mark, inner, is_named = _member(topology, name)
            node = _claimed(each, inner)
            if not is_named:
                nodes[mark] = with_self(node or {})
            elif node is not None:
                nodes[mark] = node
        return nodes or None
    if topology.sort not in ("list", "set"):
        return {}
    for mark, each in elements(value, topology).items():
        inner = topology.item or LEAF
        nodes[mark] = with_self(_claimed(each[0], inner) or {}) if len(each) == 1 else {}
    return nodes or None


def _member(topology: Topology, name: str) -> tuple[str, Topology, bool]:
    """The mark and topology of what a map or struct has by that name, and whether it is a field of a struct."""
    member = topology.members.get(name)
    if member is not None:
        return member.mark, member.topology, True
    return field_mark(name), topology.item or ANY, False


def elements(values: Any, topology: Topology) -> dict[str, list[Any]]:
    """A list's elements by their marks, in order. An element that is there twice is one that is changed whole."""
    found: dict[str, list[Any]] = {}
    for each in values or ():
        found.setdefault(mark_of(each, topology), []).append(each)
    return found


def mark_of(element: Any, topology: Topology) -> str:
    if topology.sort == "set":
        return value_mark(element)
    return key_mark({key: element.get(key, stand_in) for key, stand_in in topology.keys})


def changes(old: dict[str, Any], new: dict[str, Any], topology: Topology) -> Changes:
    return _changes(old, new, topology)


_NOTHING = Changes({}, {}, {})


def _changes(old: Any, new: Any, topology: Topology) -> Changes:
    """What is different inside two values that are not equal; of a leaf, itself: {} in the set that it is in."""
    gathered = Changes({}, {}, {})
    for mark, before, after, inner in _pairs(old, new, topology):
        if before == after:
            continue
        if before is _ABSENT:
            gathered.added[mark] = _whole(after, inner)
        elif after is _ABSENT:
            gathered.removed[mark] = _whole(before, inner)
        elif _is_leaf(before, after, inner):
            gathered.modified[mark] = {}
        else:
            for into, node in zip(gathered, _changes(before, after, inner), strict=True):
                if node:
                    into[mark] = node
    return gathered


def _is_leaf(before: Any, after: Any, topology: Topology) -> bool:
    if topology is LEAF or not (before or after):
        return True  # empty in two ways, such as null and {}
    return topology is ANY and not (isinstance(before, dict) and isinstance(after, dict))


def _pairs(old: Any, new: Any, topology: Topology) -> list[tuple[str, Any, Any, Topology]]:
    """What two maps, structs or lists hold: (mark, before, after, topology)."""
    if topology.sort in ("list", "set"):
        return _element_pairs(old, new, topology)
    old, new = old or {}, new or {}
    pairs = []
    for name in [*old, *(name for name in new if name not in old)]:
        before, after = old.get(name, _ABSENT), new.get(name, _ABSENT)
        member = topology.members.get(name)
        if member is None:
            pairs.append((field_mark(name), before, after, topology.item or ANY))
            continue
        if member.always:  # then it was only left out because it was empty
            before, after = ({} if each is _ABSENT else each for each in (before, after))
        pairs.append((member.mark, before, after, member.topology))
    return pairs


def _element_pairs(old: Any, new: Any, topology: Topology) -> list[tuple[str, Any, Any, Topology]]:
    before, after = elements(old, topology), elements(new, topology)
    inner = topology.item or LEAF
    pairs: list[tuple[str, Any, Any, Topology]] = []
    for mark in before | after:
        olds, news = before.get(mark, []), after.get(mark, [])
        if len(olds) > 1 and len(news) > 1:
            pairs.append((mark, olds, news, LEAF))
        elif len(olds) > 1 or len(news) > 1:
            pairs.append((mark, _alone(olds), _ABSENT, inner if len(olds) == 1 else LEAF))
            pairs.append((mark, _ABSENT, _alone(news), inner if len(news) == 1 else LEAF))
        else:
            pairs.append((mark, _alone(olds), _alone(news), inner))
    return pairs


def _alone(values: list[Any]) -> Any:
    """What is there once by itself, what is there twice together."""
    return values[0] if len(values) == 1 else values or _ABSENT


def whole(document: dict[str, Any], topology: Topology) -> FieldSet:
    """All that an object has, in order, as if none of it had been there before. Each creation waits for this."""
    return _inside(document, topology, is_new=False)


def _inside(value: Any, topology: Topology, *, is_new: bool) -> FieldSet:
    """The set of what a value holds, without itself. What every object has is not new in a new one."""
    inside: FieldSet = {}
    if topology.sort == "struct":
        members = topology.members
        for name in sorted(value):
            mark, inner, is_always = members[name]
            if inner is LEAF:
                inside[mark] = {}
            elif is_new or not is_always:
                inside[mark] = _whole(value[name], inner)
            elif node := _inside(value[name], inner, is_new=False):
                inside[mark] = node
        return inside
    inner = topology.item or ANY
    if isinstance(value, dict):
        for name in sorted(value):
            inside[f"f:{name}"] = {} if inner is LEAF else _whole(value[name], inner)
        return inside
    for mark, each in elements(value, topology).items():
        inside[mark] = _whole(each[0], inner) if len(each) == 1 else {}
    return ordered(inside) if len(inside) > 1 else inside


def _whole(value: Any, topology: Topology) -> FieldSet:
    """The set of a value that came or went: itself, and all that it holds."""
    if topology is LEAF or not value or (topology is ANY and not isinstance(value, dict)):
        return {}
    inside = _inside(value, topology, is_new=True)
    return {SELF: {}, **inside} if inside else inside
