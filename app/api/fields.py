"""The structs of `app.kinds` as tables of fields: name on the wire, what the value is, protobuf number, description.

`app.api.openapi_schemas` writes schemas from these tables and `app.api.protobuf` decodes by them, so that both follow
from the one declaration of a field.
"""

from collections.abc import Mapping
from functools import cache
from typing import Any, Literal, NamedTuple, cast

import msgspec
from msgspec import inspect

from app.kinds import base

What = Literal[
    "string", "bool", "int32", "int64", "bytes", "time", "microtime", "quantity", "int-or-string", "opaque", "struct",
    "list", "map",
]  # fmt: skip


class Shape(NamedTuple):
    """What a value is. `of` is the shape of a list's items or a map's values; `struct` the type of a struct."""

    what: What
    of: "Shape | None" = None
    struct: type[msgspec.Struct] | None = None


class Field(NamedTuple):
    """One field of a struct. `via` are the numbers of the protobuf messages that it is embedded in."""

    name: str
    shape: Shape
    number: int
    via: tuple[int, ...]
    description: str
    extra: Mapping[str, Any]


@cache
def fields(struct: type[msgspec.Struct]) -> tuple[Field, ...]:
    """The fields of a struct, in the order of their declaration."""
    table = cast("inspect.StructType", inspect.type_info(struct))
    return tuple(_field(each) for each in table.fields)


def _field(field: inspect.Field) -> Field:
    extra: dict[str, Any] = {}
    description, kind = "", field.type
    while isinstance(kind, inspect.Metadata):
        extra |= kind.extra or {}
        description = description or (kind.extra_json_schema or {}).get("description", "")
        kind = kind.type
    return Field(field.encode_name, shape(kind), extra.get("pb", 0), tuple(extra.get("via", ())), description, extra)


def shape(kind: inspect.Type) -> Shape:
    """What a value of an inspected type is, `None` left out: on the wire null means absent."""
    if isinstance(kind, inspect.Metadata):
        return shape(kind.type)
    if isinstance(kind, inspect.UnionType):
        return _of_union([each for each in kind.types if not isinstance(each, inspect.NoneType)])
    if isinstance(kind, inspect.StructType):
        return Shape("struct", struct=kind.cls)
    if isinstance(kind, inspect.VarTupleType | inspect.ListType):
        return Shape("list", shape(kind.item_type))
    if isinstance(kind, inspect.DictType):
        values = kind.value_type
        return Shape("opaque") if isinstance(values, inspect.AnyType) else Shape("map", shape(values))
    return Shape(_scalar(kind))


def _of_union(members: list[inspect.Type]) -> Shape:
    if len(members) == 1:
        return shape(members[0])
    numbers = any(isinstance(each, inspect.FloatType) for each in members)
    return Shape("quantity" if numbers else "int-or-string")


_MICRO_TIME = cast("inspect.StrType", inspect.type_info(base.MicroTime)).pattern


def _scalar(kind: inspect.Type) -> What:
    match kind:
        case inspect.StrType(pattern=pattern):
            return "microtime" if pattern == _MICRO_TIME else "string"
        case inspect.IntType(ge=lowest):
            return "int32" if lowest is not None and lowest >= -(2**31) else "int64"
        case inspect.BoolType():
            return "bool"
        case inspect.BytesType():
            return "bytes"
        case inspect.DateTimeType():
            return "time"
        case inspect.LiteralType() | inspect.EnumType():
            return "string"
    return "opaque"
