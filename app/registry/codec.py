"""Codec between objects and rows of the store. The only place that knows which columns a kind fills.

The registry deals in stored kinds only; a second version of the same thing (events.k8s.io) is converted at the API's edge.
"""

from typing import Literal

import msgspec

from app.machinery.base import Kind, Object
from app.machinery.errors import ApiError
from app.machinery.meta.owner_references import controller_uid
from app.machinery.object_codec import decode_object, encode_object
from app.plans.jobs.dormancy import find_dormancy
from app.store import MUST_NOT_EXIST, Change, Key, SelectorIndex, StoredObject, Write

MOST_BYTES = 1_572_864  # of one object, as etcd has it by default

NAMESPACES = "namespaces"


def key_of(kind: Kind, namespace: str, name: str) -> Key:
    return Key(kind.resource, namespace if kind.namespaced else "", name)


def type_of(kind: Kind) -> type[Object]:
    """The struct of any kind, for code that serves all."""
    return kind.type


def decode(kind: Kind, stored: StoredObject | Change) -> Object:
    """The object, with its resourceVersion."""
    return decode_object(stored.wire, type_of(kind))


def is_in_version(kind: Kind, body: bytes) -> bool:
    """Return whether stored bytes are in the version of a kind. Nothing is parsed: they begin with it."""
    return body.startswith(b'{"apiVersion":"%b"' % kind.api_version.encode())


def selector_index_of(kind: Kind, obj: Object) -> SelectorIndex:
    """Labels and selectable fields; empty fields are left out, as a selector reads them as empty anyway."""
    fields = {name: value for name, read in kind.fields.items() if (value := read(obj))}
    return SelectorIndex(obj.metadata.labels, fields)


def body_of(kind: Kind, obj: Object) -> bytes:
    """The bytes that are stored, and sent: the resourceVersion is the store's to add."""
    if obj.metadata.resource_version:
        obj = msgspec.structs.replace(obj, metadata=msgspec.structs.replace(obj.metadata, resource_version=""))
    return encode_object(with_type_meta(kind, obj))


def check_size(write: Write, old: Object | None = None) -> Write:
    """The write of a client. 413 if the object has more than `MOST_BYTES`, unless it has become smaller.

    Kubernetes measures protobuf, which is shorter than JSON by names, escapes and base64; so is what is measured here.
    """
    if len(write.body) <= MOST_BYTES or len(msgspec.msgpack.encode(write.object)) <= MOST_BYTES:
        return write
    if old is None or len(write.body) > len(encode_object(old)):
        raise ApiError(413, "RequestEntityTooLarge", f"request is too large: an object may have {MOST_BYTES} bytes")
    return write


def with_type_meta(kind: Kind, obj: Object) -> Object:
    """The object saying what it is. Of a kind that a webhook converts it says so already: it may be stored in any version."""
    if obj.api_version == kind.api_version and obj.kind == kind.name:
        return obj
    if kind.conversion is not None and obj.api_version:
        return obj
    return msgspec.structs.replace(obj, api_version=kind.api_version, kind=kind.name)


def write_of(kind: Kind, obj: Object, change: Literal["A", "M", "D"], old: Object | None = None) -> Write:
    """The write that makes `obj` the newest version; expects `old` (its resourceVersion) to be the newest until then."""
    obj = with_type_meta(kind, obj)
    meta = obj.metadata
    selector_index = selector_index_of(kind, obj)
    old_selector_index = selector_index_of(kind, old) if old else None
    dormancy = find_dormancy(obj)
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
        dormant=dormancy.summary if dormancy else None,
        expires_at=dormancy.expires_at if dormancy else None,
        object=obj,
    )
