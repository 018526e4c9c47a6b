"""Kubernetes' protobuf bodies, read into the same plain dicts as JSON bodies.

kubectl from 1.32 sends them for every typed write and does not fall back. `app.api.http.content` calls `decode` with the
bytes and the struct that the path names; the field numbers are those declared on the struct. Nothing is ever written in
protobuf. Whatever the bytes, the outcome is a dict or a 400: lengths are checked before they are believed, and messages
may nest only so deep.
"""

import base64
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, NamedTuple

import msgspec

from app.machinery import json_document
from app.machinery.errors import ApiError, bad_request
from app.machinery.shape import Field, Shape, shape_of

MAGIC = b"k8s\x00"
DEEPEST = 40  # a pod in a template in a cron job reaches 14
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_JSON_INSIDE = {"fieldsV1"}  # messages that hold a JSON document as bytes in their field 1


class _MalformedError(Exception):
    """The bytes are no message of the type expected."""


def decode(body: bytes, struct: type[msgspec.Struct]) -> dict[str, Any]:
    """The object in a `k8s` envelope, as `app.machinery.decode.convert` takes it; 400 if it cannot be read."""
    if not body.startswith(MAGIC):
        raise bad_request("provided data does not appear to be a protobuf message, expected prefix [107 56 115 0]")
    try:
        return _enveloped(body[len(MAGIC) :], struct)
    except _MalformedError as error:
        raise bad_request(f"the body of the request is no valid protobuf: {error}") from error


def _enveloped(envelope: bytes, struct: type[msgspec.Struct]) -> dict[str, Any]:
    outer = _last(envelope)
    named = _last(_expect_bytes(outer.get(1, b"")))
    if outer.get(3):
        raise _MalformedError("a content encoding is not supported")
    types = {"apiVersion": _text(named.get(1, b"")), "kind": _text(named.get(2, b""))}
    found = _message(_expect_bytes(outer.get(2, b"")), _plan(shape_of(struct)), 0)
    return found | {name: value for name, value in types.items() if value}


class _Plan(NamedTuple):
    """How to read a message: its own fields by number, and by number the messages whose fields it takes as its own"""

    fields: Mapping[int, Field]
    embedded: Mapping[int, "_Plan"]


@cache
def _plan(shape: Shape) -> _Plan:
    return _plan_of([(field.via, field) for field in shape.fields.values() if field.number])


def _plan_of(routed: list[tuple[tuple[int, ...], Field]]) -> _Plan:
    inner: dict[int, list[tuple[tuple[int, ...], Field]]] = {}
    for via, field in routed:
        if via:
            inner.setdefault(via[0], []).append((via[1:], field))
    own = {field.number: field for via, field in routed if not via}
    return _Plan(own, {number: _plan_of(parts) for number, parts in inner.items()})


def _message(data: bytes, plan: _Plan, depth: int) -> dict[str, Any]:
    """Fields that the plan does not know are skipped, as a newer client may send them."""
    if depth > DEEPEST:
        raise _MalformedError("it nests too deeply")
    found: dict[str, Any] = {}
    for number, value in _fields(data):
        if number in plan.embedded:
            found |= _message(_expect_bytes(value), plan.embedded[number], depth + 1)
        elif number in plan.fields:
            _take(found, plan.fields[number], value, depth)
    return found


def _take(found: dict[str, Any], field: Field, value: int | bytes, depth: int) -> None:
    shape, name = field.shape, field.name
    if shape.sort == "list" and shape.item is not None:
        items = _packed(value) if shape.item.sort in _NUMERIC and isinstance(value, bytes) else [value]
        found.setdefault(name, []).extend(_value(shape.item, each, depth, name) for each in items)
    elif shape.sort == "map" and shape.item is not None:
        entry = _last(_expect_bytes(value))
        inner = entry.get(2, 0 if shape.item.sort in _NUMERIC else b"")
        found.setdefault(name, {})[_text(entry.get(1, b""))] = _value(shape.item, inner, depth, name)
    else:
        read = _value(shape, value, depth, name)
        if read is not None:
            found[name] = read


_NUMERIC = {"integer", "bool"}


def _value(shape: Shape, value: int | bytes, depth: int, name: str) -> Any:
    match shape.sort:
        case "bool":
            return _expect_number(value) != 0
        case "integer":
            return _signed(_expect_number(value))
        case "struct":
            return _message(_expect_bytes(value), _plan(shape), depth + 1)
        case "list" if shape.item is not None:  # as a map's value: a message whose field 1 is the list's items
            items = (each for number, each in _fields(_expect_bytes(value)) if number == 1)
            return [_value(shape.item, each, depth + 1, name) for each in items]
    return _leaf(shape, _expect_bytes(value), name)


def _leaf(shape: Shape, data: bytes, name: str) -> Any:
    match shape.sort:
        case "string":
            return _text(data)
        case "bytes":
            return base64.b64encode(data).decode()
        case "quantity":
            return _text(_last(data).get(1, b"")) or "0"
        case "either":
            return _int_or_string(_last(data))
        case "time" | "micro":
            return _time(_last(data), micro=shape.sort == "micro")
    if name in _JSON_INSIDE:
        return _json(_expect_bytes(_last(data).get(1, b"{}")))
    if not data:
        return None  # Go writes an empty message for an unset part that is no pointer
    raise _MalformedError(f"{name} is read in JSON only: send the object as JSON")


def _int_or_string(parts: Mapping[int, int | bytes]) -> int | str:
    return _text(parts.get(3, b"")) if parts.get(1) else _signed(_expect_number(parts.get(2, 0)))


def _time(parts: Mapping[int, int | bytes], *, micro: bool) -> str | None:
    """An empty message is no time at all: Go writes one for every unset time."""
    if not parts:
        return None
    seconds, nanoseconds = (_signed(_expect_number(parts.get(number, 0))) for number in (1, 2))
    try:
        moment = _EPOCH + timedelta(seconds=seconds, microseconds=nanoseconds // 1000)
    except OverflowError as error:
        raise _MalformedError("a time is out of range") from error
    return moment.replace(tzinfo=None).isoformat(timespec="microseconds" if micro else "seconds") + "Z"


def _json(data: bytes) -> Any:
    try:
        return json_document.parse(data)
    except ApiError as error:
        raise _MalformedError(f"the JSON inside: {error}") from error


def _text(data: int | bytes) -> str:
    try:
        return _expect_bytes(data).decode()
    except UnicodeDecodeError as error:
        raise _MalformedError("a string is no UTF-8") from error


def _last(data: bytes) -> dict[int, int | bytes]:
    """A small message as number to value; of a repeated number the last one counts."""
    return dict(_fields(data))


def _packed(data: bytes) -> Iterator[int]:
    at = 0
    while at < len(data):
        value, at = _varint(data, at)
        yield value


def _fields(data: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The wire: number and value of each field, in order."""
    at = 0
    while at < len(data):
        tag, at = _varint(data, at)
        number, wire = tag >> 3, tag & 7
        if wire == _VARINT:
            value, at = _varint(data, at)
            yield number, value
            continue
        if wire == _BYTES:
            length, at = _varint(data, at)
        elif wire in (_FIXED64, _FIXED32):
            length = 8 if wire == _FIXED64 else 4
        else:
            raise _MalformedError(f"unknown wire type {wire}")
        if length > len(data) - at:
            raise _MalformedError("it ends too early")
        yield number, data[at : at + length]
        at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
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


def _signed(value: int) -> int:
    return value - (1 << 64) if value >> 63 else value


def _expect_bytes(value: int | bytes) -> bytes:
    if isinstance(value, int):
        raise _MalformedError("a number where a message or string belongs")
    return value


def _expect_number(value: int | bytes) -> int:
    if isinstance(value, bytes):
        raise _MalformedError("bytes where a number belongs")
    return value
