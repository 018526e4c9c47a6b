"""Merge topology: how each part of an object is owned and merged: whole, field by field, or element by element.

Built once a type from its `Shape`. `field_sets` names the parts by it, `field_ownership` compares documents along it, and
`structured_merge` merges them. What is owned whole is a leaf, whatever it holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple

import msgspec

from app.machinery.shape import Field, Shape, shape_of

# Structs that two managers never share, as their fields mean something only together.
ATOMIC = frozenset(
    {
        "ConfigMapKeySelector",
        "EndpointPort",
        "FileKeySelector",
        "LabelSelector",
        "LocalObjectReference",
        "NodeSelector",
        "NodeSelectorTerm",
        "ObjectFieldSelector",
        "ObjectReference",
        "OwnerReference",
        "ResourceFieldSelector",
        "RoleRef",
        "ScopeSelector",
        "SecretKeySelector",
        "Subject",
    }
)

Sort = Literal["leaf", "struct", "map", "list", "set", "any"]


class Member(NamedTuple):
    """A field of a struct. `mark` names it in field sets; `always`: it is there even where nothing is in it."""

    mark: str
    topology: "Topology"
    always: bool = False


@dataclass(slots=True, eq=False, repr=False)
class Topology:
    """`struct` has members, `map` and `list` items; `list` elements are told apart by `keys`, and what stands for each
    where an element leaves it out; a `set` holds scalars; `any` is what no struct describes."""

    sort: Sort
    members: dict[str, Member] = field(default_factory=dict)
    item: "Topology | None" = None
    keys: tuple[tuple[str, Any], ...] = ()


LEAF = Topology("leaf")
ANY = Topology("any")
_ANY_MEMBER = Member("", ANY)
_ZEROS: Mapping[str, Any] = {"string": "", "integer": 0, "bool": False}


@cache
def topology_of(type_: type) -> Topology:
    """The topology of a struct."""
    return _Builder().of(shape_of(type_))


class _Builder:
    """Builds topologies of one tree; a struct that holds itself comes out as a cycle."""

    def __init__(self) -> None:
        self._known: dict[type, Topology] = {}

    def of(self, shape: Shape) -> Topology:
        if shape.struct is not None:
            return self._known.get(shape.struct) or self._struct(shape, shape.struct)
        if shape.sort == "map" and shape.item is not None:
            return Topology("map", item=self.of(shape.item))
        return ANY if shape.sort == "any" else LEAF

    def _struct(self, shape: Shape, struct: type[msgspec.Struct]) -> Topology:
        if struct.__name__ in ATOMIC:
            return LEAF
        topology = self._known[struct] = Topology("struct")
        defaults = {each.name: each.default for each in msgspec.structs.fields(struct)}
        for name, each in shape.fields.items():
            inner = self._field(each)
            there = defaults[each.attribute] is not None if each.shape.sort == "struct" else "required" in each.extra
            topology.members[name] = Member(f"f:{name}", inner, there and inner is not LEAF)
        return topology

    def _field(self, each: Field) -> Topology:
        if each.extra.get("map_type") == "atomic":
            return LEAF
        if each.shape.sort != "list" or each.shape.item is None:
            return self.of(each.shape)
        match list_type(each):
            case "map":
                keys = tuple((key, _stand_in(each.shape.item, key)) for key in sorted(list_keys(each)))
                return Topology("list", item=self.of(each.shape.item), keys=keys)
            case "set":
                return Topology("set", item=LEAF)
        return LEAF


def list_keys(each: Field) -> tuple[str, ...]:
    """The fields that tell a list's elements apart."""
    return tuple(each.extra.get("list_keys", (each.key,)))


def list_type(each: Field) -> Literal["map", "set", "atomic"]:
    """How applies merge a list: as it says itself, or as strategic patches do."""
    if told := each.extra.get("list_type"):
        found: Literal["map", "set", "atomic"] = told
        return found
    if each.key or "list_keys" in each.extra:
        return "map"
    return "set" if "merge" in each.strategies else "atomic"


def _stand_in(element: Shape, key: str) -> Any:
    """What an element has for a key that it leaves out; None if it must not."""
    found = element.fields.get(key)
    if found is None:
        return None
    return found.extra.get("default", _ZEROS.get(found.shape.sort))
