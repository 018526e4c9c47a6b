"""OpenAPI component schemas, generated from the structs that requests are decoded into.

`app.api.openapi.v3` collects in `Schemas` every struct that the kinds of one group and version refer to. Names, formats and
`x-kubernetes-` extensions follow Kubernetes' documents, because `kubectl explain` and strategic merges in kubectl read them.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple

import msgspec

from app.api.http.query import DeleteOptions
from app.api.openapi.meta import APIGroup, APIGroupList, APIResourceList, APIVersions, ListMeta, Status
from app.machinery.apply.topology import ATOMIC, list_keys, list_type
from app.machinery.base import Kind, ObjectMeta, Struct, at
from app.machinery.custom.custom_object import CustomObject
from app.machinery.meta.meta_condition import Condition
from app.machinery.shape import Field, Shape, shape_of

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_CORE = "io.k8s.api.core.v1"
Schema = dict[str, Any]


_IN_CORE = {"LocalObjectReference", "ObjectReference"}  # in our base module, in Kubernetes' core group
_IN_META = {"FieldSelectorRequirement"}  # in our authorization module, in Kubernetes' meta group
_LEAVES: Mapping[str, tuple[str, Schema]] = {
    "time": (f"{META}.Time", {"type": "string", "format": "date-time", "description": "A moment, in RFC 3339."}),
    "micro": (
        f"{META}.MicroTime",
        {"type": "string", "format": "date-time", "description": "A moment, in RFC 3339 with microseconds."},
    ),
    "quantity": (
        _QUANTITY,
        {
            "oneOf": [{"type": "string"}, {"type": "number"}],
            "description": "An amount: a decimal number with an optional suffix, such as 500m, 2, 64Mi or 1e3.",
        },
    ),
    "either": (
        _INT_OR_STRING,
        {
            "oneOf": [{"type": "integer"}, {"type": "string"}],
            "format": "int-or-string",
            "description": "A number, or a string such as a name or a percentage.",
        },
    ),
}
_SCALARS: Mapping[str, Schema] = {
    "string": {"type": "string"},
    "bool": {"type": "boolean"},
    "bytes": {"type": "string", "format": "byte"},
    "any": {"type": "object"},
}
# What a client may meet as a document of its own: with a group, version and kind.
NAMED_ALONE = (Status, APIResourceList, APIGroup, APIGroupList, APIVersions)
_DEFAULTS = {"string": "", "bool": False, "integer": 0, "struct": {}, "map": {}}


class Info(Struct):
    """Which Kubernetes the server is like, and what it was built from."""

    major: Annotated[str, at(0, "First number of the Kubernetes version.", required=True)] = ""
    minor: Annotated[str, at(0, "Second number of the Kubernetes version.", required=True)] = ""
    git_version: Annotated[str, at(0, "The whole version, with Jobplane's own.", required=True)] = ""
    git_commit: Annotated[str, at(0, "The commit it was built from, if known.", required=True)] = ""
    git_tree_state: Annotated[str, at(0, "Whether the tree was clean.", required=True)] = ""
    build_date: Annotated[str, at(0, "When it was built, if known.", required=True)] = ""
    go_version: Annotated[str, at(0, "There for clients that expect it.", required=True)] = ""
    compiler: Annotated[str, at(0, "What runs it.", required=True)] = ""
    platform: Annotated[str, at(0, "Operating system and processor.", required=True)] = ""


class GroupVersionKind(NamedTuple):
    """Group, version and kind of a resource, stored or ephemeral."""

    group: str
    version: str
    name: str

    @property
    def extension(self) -> dict[str, str]:
        """The value of x-kubernetes-group-version-kind."""
        return {"group": self.group, "kind": self.name, "version": self.version}

    @property
    def package(self) -> str:
        """The Go package that prefixes schema names."""
        word = self.group.partition(".")[0] or "core"
        return f"io.k8s.{_ELSEWHERE.get(word, f'api.{word}')}.{self.version}"


_ELSEWHERE = {"metrics": "metrics.pkg.apis.metrics"}


def _package_of(owner: GroupVersionKind, struct: type[msgspec.Struct]) -> str:
    """The Go package of a resource; a custom one has none: its group, from the last part to the first, stands for it."""
    if not issubclass(struct, CustomObject):
        return owner.package
    return ".".join((*reversed(owner.group.split(".")), owner.version))


def group_version_kind(kind: Kind[Any]) -> GroupVersionKind:
    return GroupVersionKind(kind.group, kind.version, kind.name)


class Schemas:
    """Schemas collected for the kinds of one group and version; `kinds` are all kinds of the API."""

    def __init__(self, kinds: tuple[Kind[Any], ...]) -> None:
        self.schemas: dict[str, Schema] = {}
        self._core = {found.__module__ for kind in kinds if not kind.group for found in _reachable_structs(_type(kind))}
        self._collecting: GroupVersionKind | None = None
        self._named: dict[type[msgspec.Struct], GroupVersionKind] = {
            struct: GroupVersionKind("", "v1", struct.__name__) for struct in (DeleteOptions, *NAMED_ALONE)
        }

    def add_resource(self, resource: GroupVersionKind, struct: type[msgspec.Struct], *, listed: bool = True) -> str:
        """Add the struct of a resource, and its list; return the name of its schema."""
        self._collecting = resource
        self._named[struct] = resource
        name = self.add(struct)
        if listed:
            self.schemas[f"{name}List"] = self._list(resource, name)
        return name

    def add(self, struct: type[msgspec.Struct]) -> str:
        """Add a struct and all structs in its fields; return the name of its schema."""
        name = self._name(struct)
        if name not in self.schemas:
            self.schemas[name] = {}  # reserves the name: a recursive struct is added once
            self.schemas[name] = self._struct(struct)
        return name

    def _name(self, struct: type[msgspec.Struct]) -> str:
        """Return Kubernetes' name of a schema: shared structs are in core or meta, others in the package of the resource."""
        name, owner = struct.__name__, self._collecting
        if name in _IN_META:
            return f"{META}.{name}"
        if owner is not None and self._named.get(struct) == owner:
            return f"{_package_of(owner, struct)}.{name}"
        if struct is Info:
            return "io.k8s.apimachinery.pkg.version.Info"
        if name == "Condition" and struct.__module__ == ObjectMeta.__module__ and owner is not None:
            return f"{owner.package}.{owner.name}Condition"
        if name in _IN_CORE or (struct.__module__ in self._core and struct.__module__ not in _SHARED):
            return f"{_CORE}.{name}"
        return f"{META}.{name}" if struct.__module__ in _SHARED or owner is None else f"{owner.package}.{name}"

    def _struct(self, struct: type[msgspec.Struct]) -> Schema:
        if issubclass(struct, CustomObject):
            return self._custom(struct)
        table = [each for each in shape_of(struct).fields.values() if self._is_served(each)]
        schema: Schema = {
            "description": (struct.__doc__ or "").strip(),
            "type": "object",
        }
        if table:  # Go's types of OpenAPI leave empty properties out: with them a document would not be what it is decoded into
            schema["properties"] = {field.name: self._property(field) for field in table}
        if required := [field.name for field in table if field.extra.get("required")]:
            schema["required"] = required
        if struct in self._named:
            schema["x-kubernetes-group-version-kind"] = [self._named[struct].extension]
        if struct.__name__ in ATOMIC:
            schema["x-kubernetes-map-type"] = "atomic"
        return schema

    def _custom(self, struct: type[CustomObject]) -> Schema:
        """The schema that its definition has, with what every object has."""
        schema = dict(struct.structural_schema.document)
        properties = dict(schema.get("properties") or {})
        common = {
            "apiVersion": {"type": "string", "description": "Group and version of this representation."},
            "kind": {"type": "string", "description": "The kind of object."},
            "metadata": {"allOf": [ref(self.add(ObjectMeta))], "description": "Standard metadata."},
        }
        gvk = {"x-kubernetes-group-version-kind": [self._named[struct].extension]}
        return schema | {"properties": properties | common} | gvk

    def _is_served(self, field: Field) -> bool:
        """Return whether the current kind has the field: Kubernetes has a condition struct for each kind, and they differ."""
        kinds = field.extra.get("kinds")
        return kinds is None or (self._collecting is not None and self._collecting.name in kinds)

    def _property(self, field: Field) -> Schema:
        value = self._wrap_reference(field.shape)
        if field.extra.get("nullable"):  # which stands beside a type, never beside a reference
            value = _LEAVES[field.shape.sort][1] | {"nullable": True}
        if "default" in field.extra:
            value["default"] = field.extra["default"]
        elif field.extra.get("required"):
            value |= _default(field.shape)
        if values := field.extra.get("enum"):
            (value["items"] if field.shape.sort == "list" else value)["enum"] = list(values)
        described = {"description": field.description} if field.description else {}
        return value | described | _extensions(field)

    def _value(self, shape: Shape) -> Schema:
        if shape.struct is not None:
            return ref(self.add(shape.struct))
        if shape.item is not None:
            word, around = ("items", "array") if shape.sort == "list" else ("additionalProperties", "object")
            return {"type": around, word: self._item(shape.item)}
        if shape.sort in _LEAVES:
            name, schema = _LEAVES[shape.sort]
            self.schemas.setdefault(name, schema)
            return ref(name)
        if shape.sort == "integer":
            return {"type": "integer", "format": "int32" if shape.high < 2**31 else "int64"}
        return dict(_SCALARS[shape.sort])

    def _item(self, shape: Shape) -> Schema:
        return self._wrap_reference(shape) | _default(shape)

    def _wrap_reference(self, shape: Shape) -> Schema:
        """Wrap a reference in allOf, because $ref allows no sibling keys."""
        value = self._value(shape)
        return {"allOf": [value]} if "$ref" in value else value

    def _list(self, resource: GroupVersionKind, name: str) -> Schema:
        properties = {
            "apiVersion": {"type": "string", "description": "Group and version of this representation."},
            "items": {
                "type": "array",
                "description": "The objects.",
                "items": {"allOf": [ref(name)]},
            },
            "kind": {"type": "string", "description": f"{resource.name}List."},
            "metadata": {"allOf": [ref(self.add(ListMeta))], "default": {}, "description": "The list's own metadata."},
        }
        return {
            "description": f"A list of objects of kind {resource.name}.",
            "type": "object",
            "required": ["items"],
            "properties": properties,
            "x-kubernetes-group-version-kind": [resource.extension | {"kind": f"{resource.name}List"}],
        }


# Modules whose structs are meta/v1's.
_SHARED = tuple(each.__module__ for each in (ObjectMeta, DeleteOptions, Status, Condition))


def _type(kind: Kind[Any]) -> type[msgspec.Struct]:
    return kind.type


@cache
def _reachable_structs(struct: type[msgspec.Struct]) -> frozenset[type[msgspec.Struct]]:
    """Return a struct and every struct in its fields, recursively."""
    fields = shape_of(struct).fields.values()
    inner = {found for field in fields if (found := _struct_in(field.shape)) is not None}
    return frozenset({struct}).union(*map(_reachable_structs, inner))


def _struct_in(shape: Shape) -> type[msgspec.Struct] | None:
    return _struct_in(shape.item) if shape.item is not None else shape.struct


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _extensions(field: Field) -> Schema:
    """Return the x-kubernetes- extensions of a field: list type, map keys, map type, patch strategy and merge key."""
    key, strategy = field.key, field.extra.get("patch")
    marks: Schema = {}
    if field.shape.sort == "list" or "list_type" in field.extra:
        marks["x-kubernetes-list-type"] = list_type(field)
    if marks.get("x-kubernetes-list-type") == "map":
        marks["x-kubernetes-list-map-keys"] = list(list_keys(field))
    if map_type := field.extra.get("map_type"):
        marks["x-kubernetes-map-type"] = map_type
    if key:
        marks["x-kubernetes-patch-merge-key"] = key
    if key or strategy:
        marks["x-kubernetes-patch-strategy"] = strategy or "merge"
    return marks


def _default(shape: Shape) -> Schema:
    """Return the default of a shape, if its zero value is valid."""
    if shape.struct is not None and not _may_be_empty(shape.struct):
        return {}
    return {"default": _DEFAULTS[shape.sort]} if shape.sort in _DEFAULTS else {}


def _may_be_empty(struct: type[msgspec.Struct]) -> bool:
    return not any(field.extra.get("required") for field in shape_of(struct).fields.values())
