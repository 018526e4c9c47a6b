"""Shape of a struct: a tree of its wire names, built once a type.

Decoding walks it to tell unknown fields and wrong types, strategic patches to find merge keys, protobuf to find fields by
their numbers, and OpenAPI to describe them: all follow from the one declaration of a field.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, cast

import msgspec
from msgspec import inspect

from app.machinery.base import MicroTime, wire_name

Sort = Literal[
    "struct",
    "list",
    "map",
    "any",
    "string",
    "integer",
    "number",
    "bool",
    "bytes",
    "time",
    "micro",
    "quantity",
    "either",
]


@dataclass(slots=True, eq=False, repr=False)
class Shape:
    """A type: `sort` says which of the rest counts.

    go:       the name that Go's errors give the type.
    fields:   of a struct, by wire name.
    item:     what a list or map holds.
    struct:   the type itself, of a struct.
    low, high: bounds of an integer.
    moments:  fields of a struct that are, or have inside, times: (attribute, shape).
    """

    sort: Sort
    go: str
    fields: dict[str, "Field"] = field(default_factory=dict)
    item: "Shape | None" = None
    struct: type[msgspec.Struct] | None = None
    low: int = -(2**63)
    high: int = 2**63 - 1
    moments: tuple[tuple[str, "Shape"], ...] = ()


class Field(NamedTuple):
    """A field of a struct.

    name:            on the wire; `attribute` in Python.
    strategies, key: how strategic patches merge it; `key` tells a list's elements apart.
    number, via:     its number in protobuf, and those of the messages that it is embedded in.
    extra:           whatever else `at` was told.
    """

    name: str
    attribute: str
    shape: Shape
    strategies: frozenset[str] = frozenset()
    key: str = ""
    number: int = 0
    via: tuple[int, ...] = ()
    description: str = ""
    extra: Mapping[str, Any] = MappingProxyType({})


ANY = Shape("any", "interface {}")


def shape_of(type_: type) -> Shape:
    """The shape of a struct, or of a custom kind, whose type has a schema of its own."""
    schema = getattr(type_, "structural_schema", None)
    return _shape_of_struct(type_) if schema is None else cast("Shape", schema.shape)


@cache
def _shape_of_struct(type_: type) -> Shape:
    return _Builder().of(inspect.type_info(type_))


_SIMPLE: dict[type[inspect.Type], tuple[Sort, str]] = {
    inspect.BoolType: ("bool", "bool"),
    inspect.FloatType: ("number", "float64"),
    inspect.BytesType: ("bytes", "[]uint8"),
    inspect.DateTimeType: ("time", "string"),
}
_MICRO = cast("inspect.StrType", inspect.type_info(MicroTime)).pattern


class _Builder:
    """Builds shapes of one tree; a struct that holds itself comes out as a cycle."""

    def __init__(self) -> None:
        self._known: dict[type, Shape] = {}

    def of(self, type_: inspect.Type) -> Shape:
        match type_:
            case inspect.Metadata():
                return self.of(type_.type)
            case inspect.StructType():
                return self._known.get(type_.cls) or self._struct(type_)
            case inspect.UnionType():
                return self._union([each for each in type_.types if not isinstance(each, inspect.NoneType)])
            case inspect.VarTupleType() | inspect.ListType():
                item = self.of(type_.item_type)
                return Shape("list", f"[]{item.go}", item=item)
            case inspect.DictType():
                item = self.of(type_.value_type)
                return Shape("any", "map[string]interface {}") if item is ANY else _map(item)
        return _scalar(type_)

    def _struct(self, type_: inspect.StructType) -> Shape:
        shape = self._known[type_.cls] = Shape("struct", f"v1.{type_.cls.__name__}", struct=type_.cls)
        for each in type_.fields:
            shape.fields[each.encode_name] = self._field(each)
        shape.moments = tuple(
            (each.attribute, each.shape) for each in shape.fields.values() if _has_moments(each.shape)
        )
        return shape

    def _field(self, each: inspect.Field) -> Field:
        extra, description = _read_declaration(each.type)
        strategies = frozenset(str(extra.get("patch", "")).split(",")) - {""}
        key = wire_name(extra.get("patch_key", ""))
        return Field(
            each.encode_name,
            each.name,
            self.of(each.type),
            strategies | {"merge"} if key else strategies,
            key,
            number=extra.get("pb", 0),
            via=tuple(extra.get("via", ())),
            description=description,
            extra=extra,
        )

    def _union(self, types: Sequence[inspect.Type]) -> Shape:
        if len(types) == 1:
            return self.of(types[0])
        has_floats = any(isinstance(each, inspect.FloatType) for each in types)
        return Shape("quantity", "resource.Quantity") if has_floats else Shape("either", "int32")


def _read_declaration(type_: inspect.Type) -> tuple[dict[str, Any], str]:
    """Return what `at` said of a field, and its description."""
    extra: dict[str, Any] = {}
    description = ""
    while isinstance(type_, inspect.Metadata):
        extra |= type_.extra or {}
        description = description or (type_.extra_json_schema or {}).get("description", "")
        type_ = type_.type
    return extra, description


def _map(item: Shape) -> Shape:
    return Shape("map", f"map[string]{item.go}", item=item)


def _scalar(type_: inspect.Type) -> Shape:
    match type_:
        case inspect.StrType():
            return Shape("micro" if type_.pattern == _MICRO else "string", "string")
        case inspect.IntType():
            is_small = type_.le is not None and type_.le < 2**31
            size = 31 if is_small else 63
            return Shape("integer", f"int{size + 1}", low=-(2**size), high=2**size - 1)
        case inspect.LiteralType() | inspect.EnumType():
            return Shape("string", "string")
    simple = _SIMPLE.get(type(type_))
    return Shape(*simple) if simple else ANY


def _has_moments(shape: Shape) -> bool:
    if shape.item:
        return _has_moments(shape.item)
    return shape.sort in ("time", "micro") or bool(shape.moments)


def has_only(value: Any, shape: Shape) -> bool:
    """Return whether a plain value has none but the fields of its shape. For every write: `all` takes three times as long."""
    if shape.sort == "struct":
        if type(value) is not dict:
            return False
        fields = shape.fields
        for name, each in value.items():
            known = fields.get(name)
            if known is None or (type(each) in _HOLDERS and not has_only(each, known.shape)):
                return False
        return True
    item = shape.item
    if item is None or not (item.sort == "struct" or item.item):
        return True  # what it holds, holds nothing
    for each in value.values() if type(value) is dict else value:
        if type(each) in _HOLDERS and not has_only(each, item):
            return False
    return True


_HOLDERS = (dict, list)

Settle = Callable[[Any], Any]


def settled(obj: Any, shape: Shape, settle: dict[Sort, Settle]) -> Any:
    """A copy in which each time went through `settle`; the same object if none of them changed."""
    changes = {}
    for attribute, inner in shape.moments:
        value = getattr(obj, attribute)
        if value and (new := _map_value(value, inner, settle)) is not value:
            changes[attribute] = new
    return msgspec.structs.replace(obj, **changes) if changes else obj


def _map_value(value: Any, shape: Shape, settle: dict[Sort, Settle]) -> Any:
    if shape.sort == "struct":
        return settled(value, shape, settle)
    if shape.item is None:
        return settle[shape.sort](value)
    if shape.sort == "map":
        items = {key: _map_value(each, shape.item, settle) for key, each in value.items()}
        return items if any(items[key] is not value[key] for key in items) else value
    new = tuple([_map_value(each, shape.item, settle) for each in value])
    return new if any(a is not b for a, b in zip(new, value, strict=True)) else value
