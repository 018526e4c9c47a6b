"""Protobuf decoding of request bodies, into the same plain dicts as JSON bodies.

kubectl from 1.32 sends protobuf for every typed write and does not fall back. `app.api.http.content` calls `decode` with the
bytes and the struct of the path; field numbers are declared on the struct, or in `plain_messages`. Any bytes give a dict or a
400: lengths are checked before use, and nesting is limited. Responses: `protobuf_encoding`.
"""

import base64
import struct
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from math import isfinite
from typing import Any, NamedTuple

import msgspec

from app.api.resources.plain_messages import (
    JSON_VALUE,
    OMITS_EMPTY,
    PLAIN,
    SCHEMA,
    SCHEMA_OR_ARRAY,
    SCHEMA_OR_BOOL,
    SCHEMA_OR_STRINGS,
)
from app.machinery.decoding import json_document
from app.machinery.errors import ApiError, bad_request
from app.machinery.shape import Field, Shape, shape_of

MAGIC = b"k8s\x00"
DEEPEST = 100  # as of JSON documents. A pod in a template in a cron job reaches 14, a schema any depth
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
JSON_INSIDE = {"fieldsV1"}  # messages that hold a JSON document as bytes in their field 1


class _MalformedError(Exception):
    """The bytes are no message of the expected type."""


def decode(body: bytes, type_: type[msgspec.Struct]) -> dict[str, Any]:
    """Decode the object in a `k8s` envelope into a document for `decoding.decode.convert`; 400 if it is malformed."""
    if not body.startswith(MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        return _decode_envelope(body[len(MAGIC) :], type_)
    except _MalformedError as error:
        raise bad_request(f"the body of the request is no valid protobuf: {error}") from error


def _decode_envelope(envelope: bytes, type_: type[msgspec.Struct]) -> dict[str, Any]:
    outer = _decode_flat(envelope)
    named = _decode_flat(_expect_bytes(outer.get(1, b"")))
    if outer.get(3):
        raise _MalformedError("a content encoding is not supported")
    types = {"apiVersion": _decode_text(named.get(1, b"")), "kind": _decode_text(named.get(2, b""))}
    found = _decode_message(_expect_bytes(outer.get(2, b"")), plan_for(shape_of(type_)), 0)
    return found | {name: value for name, value in types.items() if value}


class MessagePlan(NamedTuple):
    """How to decode a message: its fields by number, and embedded messages by number, whose fields become its own."""

    fields: Mapping[int, Field]
    embedded: Mapping[int, "MessagePlan"]


@cache
def plan_for(shape: Shape) -> MessagePlan:
    """Return how a struct's message is laid out."""
    fields = (
        field._replace(shape=PLAIN[field.name]) if field.name in PLAIN else field for field in shape.fields.values()
    )
    return _build_plan([(field.via, field) for field in fields if field.number])


def _build_plan(routed: list[tuple[tuple[int, ...], Field]]) -> MessagePlan:
    inner: dict[int, list[tuple[tuple[int, ...], Field]]] = {}
    for via, field in routed:
        if via:
            inner.setdefault(via[0], []).append((via[1:], field))
    own = {field.number: field for via, field in routed if not via}
    return MessagePlan(own, {number: _build_plan(parts) for number, parts in inner.items()})


def _decode_message(data: bytes, plan: MessagePlan, depth: int) -> dict[str, Any]:
    """Decode a message. Unknown fields are skipped: a newer client may send them."""
    if depth > DEEPEST:
        raise _MalformedError("it nests too deeply")
    found: dict[str, Any] = {}
    for number, value in _iterate_fields(data):
        if number in plan.embedded:
            found |= _decode_message(_expect_bytes(value), plan.embedded[number], depth + 1)
        elif number in plan.fields:
            _decode_field(found, plan.fields[number], value, depth)
    return found


def _decode_field(found: dict[str, Any], field: Field, value: int | bytes, depth: int) -> None:
    shape, name = field.shape, field.name
    if shape.sort == "list" and shape.item is not None:
        items = _iterate_packed(value) if shape.item.sort in _NUMERIC and isinstance(value, bytes) else [value]
        found.setdefault(name, []).extend(_decode_value(shape.item, each, depth, name) for each in items)
    elif shape.sort == "map" and shape.item is not None:
        entry = _decode_flat(_expect_bytes(value))
        inner = entry.get(2, 0 if shape.item.sort in _NUMERIC else b"")
        found.setdefault(name, {})[_decode_text(entry.get(1, b""))] = _decode_value(shape.item, inner, depth, name)
    else:
        read = _decode_value(shape, value, depth, name)
        if read is not None and (read or OMITS_EMPTY not in field.extra):
            found[name] = read


_NUMERIC = {"integer", "bool"}


def _decode_value(shape: Shape, value: int | bytes, depth: int, name: str) -> Any:
    match shape.sort:
        case "bool":
            return _expect_number(value) != 0
        case "integer":
            return _to_signed(_expect_number(value))
        case "struct":
            return _decode_message(_expect_bytes(value), plan_for(shape), depth + 1)
        case "number":
            return _decode_double(_expect_bytes(value))
        case "any" if shape in _CHOICES:
            return _CHOICES[shape](list(_iterate_fields(_expect_bytes(value))), depth)
        case "list" if shape.item is not None:  # as a map's value: a message whose field 1 is the list's items
            items = (each for number, each in _iterate_fields(_expect_bytes(value)) if number == 1)
            return [_decode_value(shape.item, each, depth + 1, name) for each in items]
    return _decode_leaf(shape, _expect_bytes(value), name)


def _decode_leaf(shape: Shape, data: bytes, name: str) -> Any:
    match shape.sort:
        case "string":
            return _decode_text(data)
        case "bytes":
            return base64.b64encode(data).decode()
        case "quantity":
            return _decode_text(_decode_flat(data).get(1, b"")) or "0"
        case "either":
            return _decode_int_or_string(_decode_flat(data))
        case "time" | "micro":
            return _decode_time(_decode_flat(data), micro=shape.sort == "micro")
    if name in JSON_INSIDE:
        return _decode_json(_expect_bytes(_decode_flat(data).get(1, b"{}")))
    if not data:
        return None  # Go writes an empty message for an unset field that is no pointer
    raise _MalformedError(f"{name} is read in JSON only: send the object as JSON")


def _decode_double(data: bytes) -> float:
    """Decode a double; a whole one to an int, as Go writes it in JSON."""
    if len(data) != 8:
        raise _MalformedError("a double has 8 bytes")
    (value,) = struct.unpack("<d", data)
    if not isfinite(value):
        raise _MalformedError("a number is not finite")
    return int(value) if value.is_integer() and abs(value) < 2**53 else float(value)


_Parts = list[tuple[int, int | bytes]]


def _decode_json_value(parts: _Parts, _: int) -> Any:
    raw = _expect_bytes(dict(parts).get(1, b""))
    return _decode_json(raw) if raw else None


def _decode_schema(value: int | bytes, depth: int) -> dict[str, Any]:
    return _decode_message(_expect_bytes(value), plan_for(SCHEMA), depth + 1)


def _decode_schema_or_array(parts: _Parts, depth: int) -> Any:
    several = [_decode_schema(value, depth) for number, value in parts if number == 2]
    one = dict(parts).get(1)
    return several or (None if one is None else _decode_schema(one, depth))


def _decode_schema_or_bool(parts: _Parts, depth: int) -> Any:
    found = dict(parts)
    return _decode_schema(found[2], depth) if 2 in found else _expect_number(found.get(1, 0)) != 0


def _decode_schema_or_strings(parts: _Parts, depth: int) -> Any:
    names = [_decode_text(value) for number, value in parts if number == 2]
    one = dict(parts).get(1)
    return names or (None if one is None else _decode_schema(one, depth))


_CHOICES: Mapping[Shape, Callable[[_Parts, int], Any]] = {
    JSON_VALUE: _decode_json_value,
    SCHEMA_OR_ARRAY: _decode_schema_or_array,
    SCHEMA_OR_BOOL: _decode_schema_or_bool,
    SCHEMA_OR_STRINGS: _decode_schema_or_strings,
}


def _decode_int_or_string(parts: Mapping[int, int | bytes]) -> int | str:
    return _decode_text(parts.get(3, b"")) if parts.get(1) else _to_signed(_expect_number(parts.get(2, 0)))


def _decode_time(parts: Mapping[int, int | bytes], *, micro: bool) -> str | None:
    """Decode a Time; None for an empty message, which Go writes for every unset time."""
    if not parts:
        return None
    seconds, nanoseconds = (_to_signed(_expect_number(parts.get(number, 0))) for number in (1, 2))
    try:
        moment = _EPOCH + timedelta(seconds=seconds, microseconds=nanoseconds // 1000)
    except OverflowError as error:
        raise _MalformedError("a time is out of range") from error
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds" if micro else "seconds") + "Z"


def _decode_json(data: bytes) -> Any:
    try:
        return json_document.parse(data)
    except ApiError as error:
        raise _MalformedError(f"the JSON inside: {error}") from error


def _decode_text(data: int | bytes) -> str:
    try:
        return _expect_bytes(data).decode()
    except UnicodeDecodeError as error:
        raise _MalformedError("a string is no UTF-8") from error


def _decode_flat(data: bytes) -> dict[int, int | bytes]:
    """Decode a small message into number -> raw value; the last value of a repeated number counts."""
    return dict(_iterate_fields(data))


def _iterate_packed(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _decode_varint(data, at)
        yield value


def _iterate_fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield number and raw value of each field, in wire order."""
    at = 0
    while at < len(data):
        tag, at = _decode_varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _decode_varint(data, at)
            yield number, value
            continue
        if wire == _BYTES:
            length, at = _decode_varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise _MalformedError(f"unknown wire type {wire}")
        if length > len(data) - at:
            raise _MalformedError("it ends too early")
        yield number, data[at : at + length]
        at += length


def _decode_varint(data: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise _MalformedError("it ends too early")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value & 0xFFFF_FFFF_FFFF_FFFF, at
    raise _MalformedError("a number is too long")


def _to_signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _expect_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _MalformedError("a number where a message or string belongs")
    return value


def _expect_number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise _MalformedError("bytes where a number belongs")
    return value
