"""Component schemas of the OpenAPI documents, generated from the structs that requests are decoded into.

`app.api.openapi.v3` collects with `Schemas` whatever the kinds of one group and version reach. Names, formats and
`x-kubernetes-` marks follow Kubernetes' documents, because `kubectl explain` and strategic merges in kubectl read them.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any, NamedTuple

import msgspec

from app.api.http.query import DeleteOptions
from app.api.openapi.meta import APIGroup, APIGroupList, APIResourceList, APIVersions, ListMeta, Status
from app.machinery.base import Kind, ObjectMeta, Struct, at
from app.machinery.meta_condition import Condition
from app.machinery.shape import Field, Shape, shape_of
from app.machinery.topology import ATOMIC, list_keys, list_type

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


class Named(NamedTuple):
    """A kind, or what is answered like one."""

    group: str
    version: str
    name: str

    @property
    def mark(self) -> dict[str, str]:
        """What ties a schema or an operation to it."""
        return {"group": self.group, "kind": self.name, "version": self.version}

    @property
    def package(self) -> str:
        """The Go package that schema names begin with."""
        word = self.group.partition(".")[0] or "core"
        return f"io.k8s.{_ELSEWHERE.get(word, f'api.{word}')}.{self.version}"


_ELSEWHERE = {"metrics": "metrics.pkg.apis.metrics"}


def named(kind: Kind[Any]) -> Named:
    return Named(kind.group, kind.version, kind.name)


class Schemas:
    """The schemas reached so far from the kinds of one group and version; `kinds` are all there are."""

    def __init__(self, kinds: tuple[Kind[Any], ...]) -> None:
        self.schemas: dict[str, Schema] = {}
        self._core = {found.__module__ for kind in kinds if not kind.group for found in _reached(_type(kind))}
        self._collecting: Named | None = None
        self._named: dict[type[msgspec.Struct], Named] = {
            struct: Named("", "v1", struct.__name__) for struct in (DeleteOptions, *NAMED_ALONE)
        }

    def of_resource(self, resource: Named, struct: type[msgspec.Struct], *, listed: bool = True) -> str:
        """Add what a path takes and gives, and its list if it has one; the name of its schema."""
        self._collecting = resource
        self._named[struct] = resource
        name = self.of(struct)
        if listed:
            self.schemas[f"{name}List"] = self._list(resource, name)
        return name

    def of(self, struct: type[msgspec.Struct]) -> str:
        """Add a struct and all that it reaches; its schema's name."""
        name = self._name(struct)
        if name not in self.schemas:
            self.schemas[name] = {}  # claims the name, so that each is written once
            self.schemas[name] = self._struct(struct)
        return name

    def _name(self, struct: type[msgspec.Struct]) -> str:
        """What Kubernetes calls it: what several groups use is core's or meta's, the rest the collecting kind's own."""
        name, owner = struct.__name__, self._collecting
        if name in _IN_META:
            return f"{META}.{name}"
        if owner is not None and self._named.get(struct) == owner:
            return f"{owner.package}.{name}"
        if struct is Info:
            return "io.k8s.apimachinery.pkg.version.Info"
        if name == "Condition" and struct.__module__ == ObjectMeta.__module__ and owner is not None:
            return f"{owner.package}.{owner.name}Condition"
        if name in _IN_CORE or (struct.__module__ in self._core and struct.__module__ not in _SHARED):
            return f"{_CORE}.{name}"
        return f"{META}.{name}" if struct.__module__ in _SHARED or owner is None else f"{owner.package}.{name}"

    def _struct(self, struct: type[msgspec.Struct]) -> Schema:
        table = [each for each in shape_of(struct).fields.values() if self._is_told(each)]
        schema: Schema = {
            "description": (struct.__doc__ or "").strip(),
            "type": "object",
            "properties": {field.name: self._property(field) for field in table},
        }
        if required := [field.name for field in table if field.extra.get("required")]:
            schema["required"] = required
        if struct in self._named:
            schema["x-kubernetes-group-version-kind"] = [self._named[struct].mark]
        if struct.__name__ in ATOMIC:
            schema["x-kubernetes-map-type"] = "atomic"
        return schema

    def _is_told(self, field: Field) -> bool:
        """Kubernetes has a struct of conditions for each kind, and they differ."""
        kinds = field.extra.get("kinds")
        return kinds is None or (self._collecting is not None and self._collecting.name in kinds)

    def _property(self, field: Field) -> Schema:
        value = self._wrapped(field.shape)
        if field.extra.get("nullable"):  # which stands beside a type, never beside a reference
            value = _LEAVES[field.shape.sort][1] | {"nullable": True}
        if "default" in field.extra:
            value["default"] = field.extra["default"]
        elif field.extra.get("required"):
            value |= _default(field.shape)
        if values := field.extra.get("enum"):
            (value["items"] if field.shape.sort == "list" else value)["enum"] = list(values)
        described = {"description": field.description} if field.description else {}
        return value | described | _marks(field)

    def _value(self, shape: Shape) -> Schema:
        if shape.struct is not None:
            return ref(self.of(shape.struct))
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
        return self._wrapped(shape) | _default(shape)

    def _wrapped(self, shape: Shape) -> Schema:
        """A reference may have nothing beside it, so that it is wrapped."""
        value = self._value(shape)
        return {"allOf": [value]} if "$ref" in value else value

    def _list(self, resource: Named, name: str) -> Schema:
        properties = {
            "apiVersion": {"type": "string", "description": "Group and version of this representation."},
            "items": {
                "type": "array",
                "description": "The objects.",
                "items": {"allOf": [ref(name)]},
            },
            "kind": {"type": "string", "description": f"{resource.name}List."},
            "metadata": {"allOf": [ref(self.of(ListMeta))], "default": {}, "description": "The list's own metadata."},
        }
        return {
            "description": f"A list of objects of kind {resource.name}.",
            "type": "object",
            "required": ["items"],
            "properties": properties,
            "x-kubernetes-group-version-kind": [resource.mark | {"kind": f"{resource.name}List"}],
        }


# Modules whose structs are meta/v1's.
_SHARED = tuple(each.__module__ for each in (ObjectMeta, DeleteOptions, Status, Condition))


def _type(kind: Kind[Any]) -> type[msgspec.Struct]:
    return kind.type


@cache
def _reached(struct: type[msgspec.Struct]) -> frozenset[type[msgspec.Struct]]:
    """A struct and every struct in its fields, however deep."""
    fields = shape_of(struct).fields.values()
    inner = {found for field in fields if (found := _struct_in(field.shape)) is not None}
    return frozenset({struct}).union(*map(_reached, inner))


def _struct_in(shape: Shape) -> type[msgspec.Struct] | None:
    return _struct_in(shape.item) if shape.item is not None else shape.struct


def ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _marks(field: Field) -> Schema:
    """How patches and applies merge a list: by keys as a map, as a set, or whole."""
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
    """What stands for nothing, where that is valid."""
    if shape.struct is not None and not _may_be_empty(shape.struct):
        return {}
    return {"default": _DEFAULTS[shape.sort]} if shape.sort in _DEFAULTS else {}


def _may_be_empty(struct: type[msgspec.Struct]) -> bool:
    return not any(field.extra.get("required") for field in shape_of(struct).fields.values())
