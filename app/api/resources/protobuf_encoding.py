"""Protobuf encoding of objects, lists and watch events, for clients that accept nothing else.

`app.api.http.content` calls this with stored bytes. Objects are stored as JSON, so each is parsed and walked: a client that also
accepts JSON gets JSON. Field numbers are those that `protobuf` decodes by.
"""

import base64
import struct
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from app.api.openapi.meta import ListMeta, Status
from app.api.resources.plain_messages import (
    JSON_VALUE,
    PLAIN,
    SCHEMA,
    SCHEMA_OR_ARRAY,
    SCHEMA_OR_BOOL,
    SCHEMA_OR_STRINGS,
)
from app.api.resources.protobuf import JSON_INSIDE, MAGIC, MessagePlan, plan_for
from app.machinery.errors import ApiError
from app.machinery.shape import Field, Shape, shape_of

_VARINT, _FIXED64, _BYTES = 0, 1, 2
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_decode_json = msgspec.json.Decoder().decode
_encode_json = msgspec.json.Encoder().encode


def encode_object(wire: bytes, type_: type[msgspec.Struct]) -> bytes:
    """Encode an object that is stored as JSON, in the `k8s` envelope."""
    document = _decode_json(wire)
    return _envelop(document, _encode_message(document, plan_for(shape_of(type_))))


def encode_items(wires: Iterable[bytes], type_: type[msgspec.Struct]) -> bytes:
    """Encode objects as the items of a list."""
    plan = plan_for(shape_of(type_))
    return b"".join(_delimited(2, _encode_message(_decode_json(wire), plan)) for wire in wires)


def encode_list(names: Mapping[str, str], meta: Mapping[str, Any], items: bytes) -> bytes:
    """Encode a list of items that are encoded already."""
    return _envelop(names, _delimited(1, _encode_message(meta, plan_for(shape_of(ListMeta)))) + items)


def encode_event(type_: str, obj: bytes) -> bytes:
    """Encode a watch event with an enveloped object: without an envelope of its own, after its length in four bytes."""
    event = _delimited(1, type_.encode()) + _delimited(2, _delimited(1, obj))
    return len(event).to_bytes(4, "big") + event


def encode_status(wire: bytes) -> bytes:
    return encode_object(wire, Status)


def _envelop(names: Mapping[str, Any], message: bytes) -> bytes:
    type_meta = _delimited(1, names["apiVersion"].encode()) + _delimited(2, names["kind"].encode())
    return MAGIC + _delimited(1, type_meta) + _delimited(2, message) + _delimited(3, b"") + _delimited(4, b"")


def _encode_message(document: Mapping[str, Any], plan: MessagePlan) -> bytes:
    parts = []
    for number, field in plan.fields.items():
        value = document.get(field.name)
        if value is not None:
            encode = _encode_plain_field if field.name in PLAIN else _encode_field
            parts.append(encode(number, field, value))
    for number, inner in plan.embedded.items():
        data = _encode_message(document, inner)
        if data:
            parts.append(_delimited(number, data))
    return b"".join(parts)


def _encode_plain_field(number: int, field: Field, value: Any) -> bytes:
    """Encode a part that is kept as a plain document: a client may have put anything where no rule of the kind looks."""
    try:
        return _encode_field(number, field, value)
    except (AttributeError, OverflowError, TypeError, ValueError, struct.error) as error:
        raise _not_representable(field.name) from error


def _encode_field(number: int, field: Field, value: Any) -> bytes:
    shape, name = field.shape, field.name
    if shape.sort == "list" and shape.item is not None:
        return b"".join(_encode_value(number, shape.item, each, name) for each in value)
    if shape.sort == "map" and shape.item is not None:
        entries = ((key.encode(), _encode_value(2, shape.item, each, name)) for key, each in value.items())
        return b"".join(_delimited(number, _delimited(1, key) + entry) for key, entry in entries)
    return _encode_value(number, shape, value, name)


def _encode_value(number: int, shape: Shape, value: Any, name: str) -> bytes:
    match shape.sort:
        case "bool" | "integer":
            return _number(number, value)
        case "number":
            return _varint(number << 3 | _FIXED64) + struct.pack("<d", value)
        case "struct":
            return _delimited(number, _encode_message(value, plan_for(shape)))
        case "list" if shape.item is not None:  # as a map's value: a message whose field 1 is the list's items
            return _delimited(number, b"".join(_encode_value(1, shape.item, each, name) for each in value))
        case "any":
            return _delimited(number, _encode_plain(shape, value, name))
    return _delimited(number, _encode_leaf(shape, value))


def _encode_leaf(shape: Shape, value: Any) -> bytes:
    match shape.sort:
        case "bytes":
            return base64.b64decode(value)
        case "quantity":
            return _delimited(1, str(value).encode())
        case "either":
            is_text = isinstance(value, str)
            return _number(1, is_text) + (_delimited(3, value.encode()) if is_text else _number(2, value))
        case "time" | "micro":
            since = datetime.fromisoformat(value) - _EPOCH
            return _number(1, since.days * 86400 + since.seconds) + _number(2, since.microseconds * 1000)
    text: bytes = value.encode()
    return text


def _encode_plain(shape: Shape, value: Any, name: str) -> bytes:
    """Encode a message that is one JSON value of several types."""
    plan = plan_for(SCHEMA)
    match value:
        case _ if name in JSON_INSIDE or shape is JSON_VALUE:
            return b"" if value is None else _delimited(1, _encode_json(value))
        case dict() if shape is SCHEMA_OR_BOOL:
            return _number(1, 1) + _delimited(2, _encode_message(value, plan))
        case dict() if shape in (SCHEMA_OR_ARRAY, SCHEMA_OR_STRINGS):
            return _delimited(1, _encode_message(value, plan))
        case bool() if shape is SCHEMA_OR_BOOL:
            return _number(1, value)
        case list() if shape is SCHEMA_OR_ARRAY:
            return b"".join(_delimited(2, _encode_message(each, plan)) for each in value)
        case list() if shape is SCHEMA_OR_STRINGS:
            return b"".join(_delimited(2, each.encode()) for each in value)
    raise _not_representable(name)


def _not_representable(name: str) -> ApiError:
    return ApiError(406, "NotAcceptable", f"{name} is written in JSON only: accept application/json")


def _number(number: int, value: int) -> bytes:
    if not -(2**63) <= value < 2**63:
        raise OverflowError("a number has more than 64 bits")
    return _varint(number << 3 | _VARINT) + _varint(value & 0xFFFF_FFFF_FFFF_FFFF)


def _delimited(number: int, data: bytes) -> bytes:
    return _varint(number << 3 | _BYTES) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    parts.append(value)
    return bytes(parts)
