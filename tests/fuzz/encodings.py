"""Documents as bytes: JSON, YAML and protobuf, each now and then a little broken."""

import json
from random import Random
from typing import Any

import yaml

from app.machinery.shape import Field, Shape

JSON, YAML, PROTOBUF = b"application/json", b"application/yaml", b"application/vnd.kubernetes.protobuf"
MAGIC = b"k8s\0"
_BROKEN = (
    *(b"", b"\0", b"{}", b"[]", b"null", b"1", b'""', b"{", b"\xff\xfe{", b"NaN", b"1e999", b'{"a":}', b"k8s\0"),
    *(b"[" * 5_000, b'{"a":' * 200 + b"1" + b"}" * 200, b'"\\ud800"', b"-" * 1_000, b"9" * 5_000),
    *(b"\xef\xbb\xbf{}", b'{"":' * 99 + b"1" + b"}" * 99),
    *(b"a: &a [*a]", b"&a [&a a, *a]", b"? {a: b}\n: c", b"!!binary AA==", b"a: !!set {b}", b"--- a\n--- b", b"<<: {a: b}"),
    *(b"a: 2001-01-01", b"a: 0o17", b"a: 1:60", b"%YAML 9.9\n---\na", b"a: .inf", b"- - - - a", b"a: |\n  b\n c", b"\t"),
)  # fmt: skip
_SPLICED = (
    b"\0",
    b"\xff",
    b"\\u0000",
    b"\\ud800",
    b'"',
    b"{",
    b"}",
    b",",
    b"null",
    b"NaN",
    b"&a",
    b"*a",
    b"\x80" * 12,
    b"\n",
)


def written(rng: Random, document: Any, shape: Shape) -> tuple[bytes, bytes]:
    """A body and its content type."""
    if rng.random() < 0.02:
        return rng.choice(_BROKEN), rng.choice((JSON, YAML, PROTOBUF))
    form = rng.choices((JSON, YAML, PROTOBUF), (6, 1, 3))[0]
    if form == PROTOBUF:
        return spoiled(rng, enveloped(document, shape)), form
    return spoiled(rng, as_yaml(document) if form == YAML else as_json(document)), form


def spoiled(rng: Random, body: bytes) -> bytes:
    """The body, once in twelve times with something in it that does not belong there."""
    if rng.random() > 0.08 or not body:
        return body
    at = rng.randrange(len(body))
    match rng.randrange(5):
        case 0:
            return body[:at]
        case 1:
            return body[:at] + rng.choice(_SPLICED) + body[at:]
        case 2:
            return body[:at] + bytes([rng.randrange(256)]) + body[at + 1 :]
        case 3:
            return body[:at] + body[at // 2 :]
    return body[:at] + body[at + rng.randrange(1, 9) :]


def as_json(document: Any) -> bytes:
    """Lone surrogates come out as escapes, which is how clients can send them."""
    return json.dumps(document).encode()


def as_yaml(document: Any) -> bytes:
    try:
        return yaml.safe_dump(document, allow_unicode=False).encode()
    except (yaml.YAMLError, UnicodeEncodeError):
        return as_json(document)


# --- protobuf


def enveloped(document: Any, shape: Shape) -> bytes:
    """The document as kubectl sends it. What has no place in a message is left out."""
    given = document if isinstance(document, dict) else {}
    types = _put(1, str(given.get("apiVersion", ""))) + _put(2, str(given.get("kind", "")))
    return MAGIC + _put(1, types) + _put(2, _message(given, shape))


def _message(value: Any, shape: Shape) -> bytes:
    if not isinstance(value, dict):
        return _bytes(value)
    fields = ((shape.fields[key], each) for key, each in value.items() if key in shape.fields)
    return b"".join(_wrapped(field, _field(field.number, field.shape, each)) for field, each in fields if field.number)


def _wrapped(field: Field, encoded: bytes) -> bytes:
    for number in reversed(field.via):
        encoded = _put(number, encoded)
    return encoded


def _field(number: int, shape: Shape, value: Any) -> bytes:
    if shape.sort == "list" and shape.item and isinstance(value, list):
        return b"".join(_field(number, shape.item, each) for each in value)
    if shape.sort == "map" and shape.item and isinstance(value, dict):
        entries = (_put(1, key) + _field(2, shape.item, each) for key, each in value.items())
        return b"".join(_put(number, entry) for entry in entries)
    return _put(number, _value(shape, value))


def _value(shape: Shape, value: Any) -> int | bytes:
    match shape.sort:
        case "bool" | "integer":
            return value if isinstance(value, int) else _bytes(value)
        case "struct":
            return _message(value, shape)
        case "quantity":
            return _put(1, _bytes(value))
        case "either":
            return _put(1, 0) + _put(2, value) if isinstance(value, int) else _put(1, 1) + _put(3, _bytes(value))
        case "time" | "micro":
            return _put(1, len(str(value)) * 10**8) + _put(2, 999_999_999)
        case "any":
            return _put(1, as_json(value))
    return _bytes(value)


def _bytes(value: Any) -> bytes:
    text = value if isinstance(value, str) else json.dumps(value)
    return text.encode("utf-8", "surrogatepass")


def _put(number: int, value: int | str | bytes) -> bytes:
    if isinstance(value, int):
        return _varint(number << 3) + _varint(value)
    data = _bytes(value) if isinstance(value, str) else value
    return _varint(number << 3 | 2) + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    value &= 0xFFFF_FFFF_FFFF_FFFF
    parts = bytearray()
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes(parts) + bytes([value])
