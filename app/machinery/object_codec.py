"""Object codec: stored and sent bytes of an object, and its plain document, whether it is a struct or a custom object.

The only place that knows how a custom object is laid out on the wire: as if its content were fields.
"""

from functools import cache
from typing import Any, TypeVar

import msgspec

from app.machinery.base import Object, ObjectMeta
from app.machinery.custom.custom_object import TYPE_META, CustomObject
from app.machinery.decoding.decode import decode_older

T = TypeVar("T", bound=Object)
encode_json = msgspec.json.Encoder().encode


class _Envelope(msgspec.Struct, rename={"api_version": "apiVersion"}):
    """What custom objects have in common."""

    api_version: str = ""
    kind: str = ""
    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


_decode_envelope = msgspec.json.Decoder(_Envelope).decode
_decode_plain = msgspec.json.Decoder().decode


def encode_object(obj: Object) -> bytes:
    """Encode an object as JSON; its metadata come before its content."""
    return encode_json(_laid_out(obj) if isinstance(obj, CustomObject) else obj)


def decode_object(wire: bytes, type_: type[T]) -> T:
    """Decode a stored object, also one that an older version has stored."""
    if issubclass(type_, CustomObject):
        return _custom(type_, _decode_envelope(wire), _decode_plain(wire))
    try:
        decoded: T = _decoder(type_).decode(wire)
    except msgspec.ValidationError:
        return decode_older(wire, type_)
    return decoded


def document_of(obj: Object) -> dict[str, Any]:
    """Return the object as a plain document; structs leave tuples in it."""
    if not isinstance(obj, CustomObject):
        plain: dict[str, Any] = msgspec.to_builtins(obj)
        return plain
    laid_out = _laid_out(obj)
    laid_out["metadata"] = msgspec.to_builtins(obj.metadata)
    return laid_out


def json_document_of(obj: Object) -> dict[str, Any]:
    """Return the object as a plain document that shares nothing with it."""
    document: dict[str, Any] = _decode_plain(encode_object(obj))
    return document


def _laid_out(obj: CustomObject) -> dict[str, Any]:
    return {"apiVersion": obj.api_version, "kind": obj.kind, "metadata": obj.metadata, **obj.content}


def _custom(type_: type[T], envelope: _Envelope, document: dict[str, Any]) -> T:
    for name in TYPE_META:
        document.pop(name, None)
    return type_(
        api_version=envelope.api_version,
        kind=envelope.kind,
        metadata=envelope.metadata,
        content=document,  # type: ignore[call-arg]  # a custom object
    )


@cache
def _decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(type_)
