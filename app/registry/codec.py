"""Codec between objects and rows of the store. The only place that knows which columns a kind fills.

The registry deals in stored kinds only; a second version of the same thing (events.k8s.io) is converted at the API's edge.
"""

from functools import cache
from typing import Literal

import msgspec

from app.machinery.base import Kind, Object
from app.machinery.decoding.decode import decode_older
from app.machinery.errors import ApiError
from app.machinery.meta.owner_references import controller_uid
from app.store import MUST_NOT_EXIST, Change, Key, SelectorIndex, StoredObject, Write

MOST_BYTES = 1_572_864  # of one object, as etcd has it by default

_encode = msgspec.json.Encoder().encode
NAMESPACES = "namespaces"


def key_of(kind: Kind, namespace: str, name: str) -> Key:
    return Key(kind.resource, namespace if kind.namespaced else "", name)


def type_of(kind: Kind) -> type[Object]:
    """The struct of any kind, for code that serves all."""
    return kind.type


@cache
def _decoder(type_: type[Object]) -> msgspec.json.Decoder[Object]:
    return msgspec.json.Decoder(type_)


def decode(kind: Kind, stored: StoredObject | Change) -> Object:
    """The object, with its resourceVersion."""
    try:
        return _decoder(type_of(kind)).decode(stored.wire)
    except msgspec.ValidationError:
        return decode_older(stored.wire, type_of(kind))


def selector_index_of(kind: Kind, obj: Object) -> SelectorIndex:
    """Labels and selectable fields; empty fields are left out, as a selector reads them as empty anyway."""
    fields = {name: value for name, read in kind.fields.items() if (value := read(obj))}
    return SelectorIndex(obj.metadata.labels, fields)


def body_of(kind: Kind, obj: Object) -> bytes:
    """The bytes that are stored, and sent: the resourceVersion is the store's to add."""
    if obj.metadata.resource_version:
        obj = msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, resource_version=""))
    return _encode(with_type_meta(kind, obj))


def check_size(write: Write, old: Object | None = None) -> Write:
    """The write of a client. 413 if the object has more than `MOST_BYTES`, unless it has become smaller.

    Kubernetes measures protobuf, which is shorter than JSON by names, escapes and base64; so is what is measured here.
    """
    if len(write.body) <= MOST_BYTES or len(msgspec.msgpack.encode(write.object)) <= MOST_BYTES:
        return write
    if old is None or len(write.body) > len(_encode(old)):
        raise ApiError(413, "RequestEntityTooLarge", f"request is too large: an object may have {MOST_BYTES} bytes")
    return write


def with_type_meta(kind: Kind, obj: Object) -> Object:
    """The object saying what it is."""
    if obj.api_version == kind.api_version and obj.kind == kind.name:
        return obj
    return msgspec.structs.replace(obj, api_version=kind.api_version, kind=kind.name)


def write_of(kind: Kind, obj: Object, change: Literal["A", "M", "D"], old: Object | None = None) -> Write:
    """The write that makes `obj` the newest version; expects `old` (its resourceVersion) to be the newest until then."""
    obj = with_type_meta(kind, obj)
    meta = obj.metadata
    selector_index = selector_index_of(kind, obj)
    old_selector_index = selector_index_of(kind, old) if old else None
    return Write(
        key=key_of(kind, meta.namespace, meta.name),
        change=change,
        expected=int(old.metadata.resource_version) if old else MUST_NOT_EXIST,
        uid=meta.uid,
        body=body_of(kind, obj),
        selector_index=selector_index,
        old_selector_index=old_selector_index if old_selector_index != selector_index else None,
        owner=controller_uid(obj),
        node=selector_index.fields.get("spec.nodeName"),
        deleting=meta.deletion_timestamp is not None,
        object=obj,
    )
