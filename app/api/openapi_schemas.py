"""Component schemas of the OpenAPI documents, generated from the structs that requests are decoded into.

`app.api.openapi` collects with `Schemas` whatever the kinds of one group and version reach. Names, formats and
`x-kubernetes-` marks follow Kubernetes' documents, because `kubectl explain` and strategic merges in kubectl read them.
"""

from collections.abc import Mapping
from functools import cache
from typing import Annotated, Any

import msgspec

from app.api.query import DeleteOptions
from app.kinds.base import Int32, Int64, Kind, ObjectMeta, Struct, at
from app.kinds.shape import Field, Shape, shape_of

META = "io.k8s.apimachinery.pkg.apis.meta.v1"
_QUANTITY = "io.k8s.apimachinery.pkg.api.resource.Quantity"
_INT_OR_STRING = "io.k8s.apimachinery.pkg.util.intstr.IntOrString"
_CORE = "io.k8s.api.core.v1"
Schema = dict[str, Any]


class ListMeta(Struct):
    """What a list says about itself."""

    self_link: Annotated[str, at(1, "Obsolete, never set.")] = ""
    resource_version: Annotated[str, at(2, "The version that the list shows; a watch from it misses nothing.")] = ""
    continue_: Annotated[str, at(3, "Token for the next page, if there is one.")] = ""
    remaining_item_count: Annotated[Int64 | None, at(4, "How many objects follow this page, if known.")] = None


class StatusCause(Struct):
    """One of the reasons in a refusal."""

    reason: Annotated[str, at(1, "One word for the reason.")] = ""
    message: Annotated[str, at(2, "A sentence for people.")] = ""
    field: Annotated[str, at(3, "The field meant.")] = ""


class StatusDetails(Struct):
    """What a refusal is about."""

    name: Annotated[str, at(1, "Name of the object.")] = ""
    group: Annotated[str, at(2, "Group of the object.")] = ""
    kind: Annotated[str, at(3, "Resource or kind of the object.")] = ""
    causes: Annotated[tuple[StatusCause, ...], at(4, "All reasons.")] = ()
    retry_after_seconds: Annotated[Int32, at(5, "When to try again.")] = 0
    uid: Annotated[str, at(6, "UID of the object.")] = ""


class Status(Struct):
    """The outcome of a request that returns no object."""

    api_version: Annotated[str, at(0, "v1.")] = ""
    kind: Annotated[str, at(0, "Status.")] = ""
    metadata: Annotated[ListMeta, at(1, "Empty.")] = msgspec.field(default_factory=ListMeta)
    status: Annotated[str, at(2, "Success or Failure.")] = ""
    message: Annotated[str, at(3, "A sentence for people.")] = ""
    reason: Annotated[str, at(4, "One word for the reason.")] = ""
    details: Annotated[StatusDetails | None, at(5, "What it is about.")] = None
    code: Annotated[Int32, at(6, "The HTTP status.")] = 0


_IN_CORE = {"LocalObjectReference", "ObjectReference"}  # in our base module, in Kubernetes' core group
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
_ITEM_DEFAULTS = {"string": "", "bool": False, "integer": 0, "struct": {}, "map": {}}


class Schemas:
    """The schemas reached so far from the kinds of one group and version; `kinds` are all there are."""

    def __init__(self, kinds: tuple[Kind[Any], ...]) -> None:
        self.schemas: dict[str, Schema] = {}
        self._kinds = {kind.type: kind for kind in kinds}
        self._core = {found.__module__ for kind in kinds if not kind.group for found in _reached(_type(kind))}
        self._collecting: Kind[Any] | None = None

    def of_kind(self, kind: Kind[Any]) -> str:
        """Add a kind and its list; the name of the kind's schema."""
        self._collecting = kind
        name = self.of(kind.type)
        self.schemas[f"{name}List"] = self._list(kind, name)
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
        name, kind = struct.__name__, self._collecting
        if name == "Condition" and kind is not None:
            return f"{_package(kind)}.{kind.name}Condition"
        if name in _IN_CORE or (struct.__module__ in self._core and struct.__module__ not in _SHARED):
            return f"{_CORE}.{name}"
        return f"{META}.{name}" if struct.__module__ in _SHARED or kind is None else f"{_package(kind)}.{name}"

    def _struct(self, struct: type[msgspec.Struct]) -> Schema:
        table = shape_of(struct).fields.values()
        schema: Schema = {
            "description": (struct.__doc__ or "").strip(),
            "type": "object",
            "properties": {field.name: self._property(field) for field in table},
        }
        if required := [field.name for field in table if field.extra.get("required")]:
            schema["required"] = required
        if struct in self._kinds:
            schema["x-kubernetes-group-version-kind"] = [group_version_kind(self._kinds[struct])]
        if struct in (DeleteOptions, Status):
            schema["x-kubernetes-group-version-kind"] = [{"group": "", "version": "v1", "kind": struct.__name__}]
        return schema

    def _property(self, field: Field) -> Schema:
        value = self._value(field.shape)
        if "$ref" in value:
            value = {"allOf": [value]}
            if field.shape.sort == "struct" and field.extra.get("required"):
                value["default"] = {}
        described = {"description": field.description} if field.description else {}
        return described | value | _marks(field)

    def _value(self, shape: Shape) -> Schema:
        if shape.struct is not None:
            return _ref(self.of(shape.struct))
        if shape.item is not None:
            word, around = ("items", "array") if shape.sort == "list" else ("additionalProperties", "object")
            return {"type": around, word: self._item(shape.item)}
        if shape.sort in _LEAVES:
            name, schema = _LEAVES[shape.sort]
            self.schemas.setdefault(name, schema)
            return _ref(name)
        if shape.sort == "integer":
            return {"type": "integer", "format": "int32" if shape.high < 2**31 else "int64"}
        return dict(_SCALARS[shape.sort])

    def _item(self, shape: Shape) -> Schema:
        value = self._value(shape)
        if "$ref" in value:
            value = {"allOf": [value]}
        return value | {"default": _ITEM_DEFAULTS[shape.sort]} if shape.sort in _ITEM_DEFAULTS else value

    def _list(self, kind: Kind[Any], name: str) -> Schema:
        properties = {
            "apiVersion": {"type": "string", "description": "Group and version of this representation."},
            "items": {
                "type": "array",
                "description": "The objects.",
                "items": {"allOf": [_ref(name)], "default": {}},
            },
            "kind": {"type": "string", "description": f"{kind.name}List."},
            "metadata": {"allOf": [_ref(self.of(ListMeta))], "default": {}, "description": "The list's own metadata."},
        }
        whole = group_version_kind(kind) | {"kind": f"{kind.name}List"}
        return {
            "description": f"A list of objects of kind {kind.name}.",
            "type": "object",
            "required": ["items"],
            "properties": properties,
            "x-kubernetes-group-version-kind": [whole],
        }


def group_version_kind(kind: Kind[Any]) -> dict[str, str]:
    """The mark that ties a schema or an operation to a kind."""
    return {"group": kind.group, "kind": kind.name, "version": kind.version}


_SHARED = (ObjectMeta.__module__, DeleteOptions.__module__, __name__)  # modules whose structs are meta/v1's


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


def _package(kind: Kind[Any]) -> str:
    return f"io.k8s.api.{kind.group.partition('.')[0] or 'core'}.{kind.version}"


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _marks(field: Field) -> Schema:
    """How patches and applies merge a list: by key as a map, as a set, or (unmarked) whole."""
    key, strategy = field.key, field.extra.get("patch")
    marks: Schema = {}
    if keys := field.extra.get("list_keys") or ([key] if key else None):
        marks |= {"x-kubernetes-list-map-keys": list(keys), "x-kubernetes-list-type": "map"}
    elif field.shape.sort == "list":
        marks["x-kubernetes-list-type"] = "set" if strategy == "merge" else "atomic"
    if key:
        marks["x-kubernetes-patch-merge-key"] = key
    if key or strategy:
        marks["x-kubernetes-patch-strategy"] = strategy or "merge"
    return marks
