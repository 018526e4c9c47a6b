"""Merge topology of a type: whether each part is owned and merged atomically, field by field, or element by element.

Built once for each type from its `Shape`: x-kubernetes-list-type, -map-type and -list-map-keys. `field_ownership` compares
documents along it, `structured_merge` merges them. An atomic part is a leaf, whatever it holds.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, NamedTuple, cast

import msgspec

from app.machinery.shape import Field, Shape, shape_of

# Atomic structs (x-kubernetes-map-type: atomic): their fields mean something only together.
ATOMIC = frozenset(
    {
        "ConfigMapKeySelector",
        "EndpointPort",
        "FileKeySelector",
        "LabelSelector",
        "LocalObjectReference",
        "MatchResources",
        "NamedRuleWithOperations",
        "NodeSelector",
        "NodeSelectorTerm",
        "ObjectFieldSelector",
        "ObjectReference",
        "OwnerReference",
        "ParamKind",
        "ParamRef",
        "ResourceFieldSelector",
        "RoleRef",
        "ScopeSelector",
        "SecretKeySelector",
        "SecretReference",
        "Subject",
        "TopologySelectorTerm",
        "Variable",
    }
)

Sort = Literal["leaf", "struct", "map", "list", "set", "any"]


class StructField(NamedTuple):
    """A declared field. `path_element` names it in field sets; `always`: every object has it, even if it is empty."""

    path_element: str
    topology: "Topology"
    always: bool = False


@dataclass(slots=True, eq=False, repr=False)
class Topology:
    """A node of the topology. A `struct` has members, a `map` or `list` items; `keys` of a `list` are its map keys with
    their defaults, None for a key without one; a `set` holds scalars; `any` is described by no struct."""

    sort: Sort
    members: dict[str, StructField] = field(default_factory=dict)
    item: "Topology | None" = None
    keys: tuple[tuple[str, Any], ...] = ()


LEAF = Topology("leaf")
ANY = Topology("any")
_ANY_FIELD = StructField("", ANY)
_ZEROS: Mapping[str, Any] = {"string": "", "integer": 0, "bool": False}


def topology_of(type_: type) -> Topology:
    """Return the topology of a struct, or of a custom kind, whose type has a schema of its own."""
    schema = getattr(type_, "structural_schema", None)
    return _topology_of_struct(type_) if schema is None else cast("Topology", schema.topology)


@cache
def _topology_of_struct(type_: type) -> Topology:
    return _TopologyBuilder().build(shape_of(type_))


class _TopologyBuilder:
    """Builds the topologies of one tree of types; a recursive struct becomes a cycle."""

    def __init__(self) -> None:
        self._known: dict[type, Topology] = {}

    def build(self, shape: Shape) -> Topology:
        if shape.struct is not None:
            return self._known.get(shape.struct) or self._build_struct(shape, shape.struct)
        if shape.sort == "map" and shape.item is not None:
            return Topology("map", item=self.build(shape.item))
        return ANY if shape.sort == "any" else LEAF

    def _build_struct(self, shape: Shape, struct: type[msgspec.Struct]) -> Topology:
        if struct.__name__ in ATOMIC:
            return LEAF
        topology = self._known[struct] = Topology("struct")
        defaults = {each.name: each.default for each in msgspec.structs.fields(struct)}
        for name, each in shape.fields.items():
            inner = self._build_field(each)
            there = defaults[each.attribute] is not None if each.shape.sort == "struct" else "required" in each.extra
            topology.members[name] = StructField(f"f:{name}", inner, there and inner is not LEAF)
        return topology

    def _build_field(self, each: Field) -> Topology:
        if each.extra.get("map_type") == "atomic":
            return LEAF
        if each.shape.sort != "list" or each.shape.item is None:
            return self.build(each.shape)
        match list_type(each):
            case "map":
                keys = tuple((key, _default_of_key(each.shape.item, key)) for key in sorted(list_keys(each)))
                return Topology("list", item=self.build(each.shape.item), keys=keys)
            case "set":
                return Topology("set", item=LEAF)
        return LEAF


def list_keys(each: Field) -> tuple[str, ...]:
    """Return the list map keys: the fields that identify a list's elements."""
    return tuple(each.extra.get("list_keys", (each.key,)))


def list_type(each: Field) -> Literal["map", "set", "atomic"]:
    """Return the list type of a field: as declared, else from its patch strategy."""
    if declared := each.extra.get("list_type"):
        found: Literal["map", "set", "atomic"] = declared
        return found
    if each.key or "list_keys" in each.extra:
        return "map"
    return "set" if "merge" in each.strategies else "atomic"


def _default_of_key(element: Shape, key: str) -> Any:
    """Return the default of a key that an element omits; None if the key is required."""
    found = element.fields.get(key)
    if found is None:
        return None
    return found.extra.get("default", _ZEROS.get(found.shape.sort))
