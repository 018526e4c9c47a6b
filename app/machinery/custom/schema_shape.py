"""Shape and merge topology of a structural schema: what `app.machinery.shape` and `app.machinery.apply` make of structs.

Server-side apply, managed fields and strict decoding of custom objects go by them.
"""

from typing import Any

from app.machinery.apply.topology import ANY as ANY_TOPOLOGY
from app.machinery.apply.topology import LEAF, StructField, Topology, topology_of
from app.machinery.base import ObjectMeta
from app.machinery.custom.structural_schema import ABSENT, SchemaNode
from app.machinery.shape import ANY, Field, Shape, Sort, shape_of

_SCALARS: dict[str, tuple[Sort, str]] = {
    "string": ("string", "string"),
    "integer": ("integer", "int64"),
    "number": ("number", "float64"),
    "boolean": ("bool", "bool"),
}
_TYPE_META = ("apiVersion", "kind")


def shape_of_root(root: SchemaNode) -> Shape:
    """Return the shape of an object: that of its content, and of type and metadata."""
    if root.preserves:
        return ANY
    shape = Shape("struct", "v1.CustomObject")
    shape.fields = {name: _field(name, each) for name, each in root.properties.items()}
    for name in _TYPE_META:
        shape.fields[name] = Field(name, name, Shape("string", "string"))
    shape.fields["metadata"] = Field("metadata", "metadata", shape_of(ObjectMeta))
    return shape


def _field(name: str, node: SchemaNode) -> Field:
    return Field(name, name, _shape(node))


def _shape(node: SchemaNode) -> Shape:
    if node.int_or_string:
        return Shape("either", "int32")
    if "array" in node.types:
        return Shape("list", "[]interface {}", item=_shape(node.items) if node.items else ANY)
    if "object" in node.types:
        return _shape_of_object(node)
    return Shape(*_SCALARS[node.types[0]]) if node.types and node.types[0] in _SCALARS else ANY


def _shape_of_object(node: SchemaNode) -> Shape:
    if node.preserves or node.embedded:
        return ANY
    if node.allows_additional:
        return Shape("map", "map[string]interface {}", item=_shape(node.additional) if node.additional else ANY)
    shape = Shape("struct", "v1.CustomObject")
    shape.fields = {name: _field(name, each) for name, each in node.properties.items()}
    return shape


def topology_of_root(root: SchemaNode) -> Topology:
    """Return the merge topology of an object."""
    topology = _topology_of_object(root)
    for name in _TYPE_META:
        topology.members[name] = StructField(f"f:{name}", LEAF)
    topology.members["metadata"] = StructField("f:metadata", topology_of(ObjectMeta), always=True)
    return topology


def _topology(node: SchemaNode) -> Topology:
    if node.int_or_string:
        return LEAF
    if "array" in node.types:
        return _topology_of_list(node)
    if "object" in node.types:
        return LEAF if node.atomic_map else _topology_of_object(node)
    return ANY_TOPOLOGY if node.preserves or not node.types else LEAF


def _topology_of_list(node: SchemaNode) -> Topology:
    if node.list_type == "map" and node.items is not None:
        keys = tuple((key, _default_of_key(node.items, key)) for key in sorted(node.list_keys))
        return Topology("list", item=_topology(node.items), keys=keys)
    return Topology("set", item=LEAF) if node.list_type == "set" else LEAF


def _default_of_key(node: SchemaNode, key: str) -> Any:
    found = node.properties.get(key)
    return None if found is None or found.default is ABSENT else found.default


def _topology_of_object(node: SchemaNode) -> Topology:
    item = _topology(node.additional) if node.additional else ANY_TOPOLOGY
    if not node.properties and (node.preserves or not node.allows_additional) and not node.additional:
        return Topology("map", item=ANY_TOPOLOGY)
    members = {name: StructField(f"f:{name}", _topology(each)) for name, each in node.properties.items()}
    return Topology("map", members=members, item=item)
