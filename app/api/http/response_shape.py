"""Forms of a response: a `ResponseShape` encodes stored bytes as what was negotiated, for objects, lists and watch events.

`content.shape_of` makes one for a request; `lists` and `watch` call it for every object. JSON is stored bytes as they are.
"""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NamedTuple

import msgspec

from app.api.http import errors
from app.api.http.content_negotiation import JSON, ResponseFormat
from app.api.resources import protobuf_encoding, tables
from app.machinery.base import Kind, Object
from app.machinery.errors import ApiError
from app.machinery.object_codec import decode_object, encode_object
from app.registry.codec import type_of


def convert_from_stored(kind: Kind, wire: bytes) -> bytes:
    """Convert stored bytes to this version. Nearly every kind is stored as served: then nothing is parsed.

    What a webhook converts has been converted by now (`Registry.converter`).
    """
    return encode_object(decode_as_kind(kind, wire)) if kind.outward else wire


def decode_as_kind(kind: Kind, wire: bytes) -> Object:
    """Decode stored bytes into an object of this version."""
    obj: Object = decode_object(wire, type_of((kind.storage or kind) if kind.outward else kind))
    if kind.outward:
        converted: Object = kind.outward(obj)
        return msgspec.structs.replace(converted, api_version=kind.api_version, kind=kind.name)
    return obj


class _MetadataOnly(msgspec.Struct):
    """An object of which only the metadata is decoded, as raw bytes."""

    metadata: msgspec.Raw


_ENCODED = frozenset({"table", "partial", "partial-list", "protobuf"})  # forms that are not the stored bytes
_METADATA_DECODER = msgspec.json.Decoder(_MetadataOnly)


class ResponseShape(NamedTuple):
    """The negotiated form of a response: encodes single objects, lists and watch events."""

    kind: Kind
    form: ResponseFormat
    include: str | None = None  # includeObject of a Table

    @property
    def is_table(self) -> bool:
        return self.form.form == "table"

    @property
    def is_partial(self) -> bool:
        return self.form.form in {"partial", "partial-list"}

    @property
    def is_plain_json(self) -> bool:
        """Return whether objects are sent as they are stored."""
        return self.form.form not in _ENCODED

    @property
    def is_protobuf(self) -> bool:
        return self.form.form == "protobuf"

    @property
    def content_type(self) -> str:
        return self.form.content_type

    @property
    def watch_content_type(self) -> str:
        return f"{self.content_type};stream=watch" if self.is_protobuf else "application/json"

    def as_json(self) -> "ResponseShape":
        """Return the same form, or JSON instead of protobuf."""
        return self._replace(form=JSON) if self.is_protobuf else self

    @property
    def cache_key(self) -> str:
        """Equal for shapes in which an object has the same bytes. A string: its hash is computed once."""
        return f"{self.kind.resource} {self.kind.version} {self.form.form} {self.form.version} {self.include}"

    def encode_object(self, wire: bytes, now: Callable[[], datetime], *, columns: bool = True) -> bytes:
        """Encode one object; without `columns`, a Table omits its columnDefinitions, which the client has already."""
        if self.is_plain_json:
            return convert_from_stored(self.kind, wire)
        if self.is_partial:
            return self._partial(wire)
        if self.is_protobuf:
            return protobuf_encoding.encode_object(convert_from_stored(self.kind, wire), self.kind.type)
        meta = {"resourceVersion": decode_as_kind(self.kind, wire).metadata.resource_version}
        return self._table(meta, columns) + self.encode_items([wire], now()) + b"]}"

    def encode_list(self, meta: Mapping[str, Any], items: Sequence[bytes]) -> bytes:
        """Encode a whole list, of items that `encode_items` has encoded."""
        if self.is_protobuf:
            names = _type_meta(self.kind.list_name, self.kind.api_version)
            return protobuf_encoding.encode_list(names, meta, b"".join(items))
        return self.encode_list_start(meta) + b",".join(items) + self.encode_list_end()

    def encode_list_start(self, meta: Mapping[str, Any] | None) -> bytes:
        """Encode the start of a list up to its items; without `meta` if the metadata follow the items."""
        if self.is_table:
            return self._table(meta)
        if self.is_partial:
            names: dict[str, Any] = _type_meta("PartialObjectMetadataList", f"meta.k8s.io/{self.form.version}")
        else:
            names = _type_meta(self.kind.list_name, self.kind.api_version)
        return _encode_open({**names, **_with_meta(meta)}) + b',"items":['

    def encode_items(self, wires: Sequence[bytes], now: datetime) -> bytes:
        """Encode items, in JSON separated by commas. Plain objects are joined stored bytes: nothing is parsed."""
        if self.is_protobuf:
            converted = (convert_from_stored(self.kind, wire) for wire in wires)
            return protobuf_encoding.encode_items(converted, self.kind.type)
        if self.is_table:
            objects = [decode_as_kind(self.kind, wire) for wire in wires]
            version = self.form.version
            return msgspec.json.encode(tables.rows(self.kind, objects, now, include=self.include, version=version))[
                1:-1
            ]
        if self.is_partial:
            return b",".join(map(self._partial, wires))
        if self.kind.outward:
            wires = [convert_from_stored(self.kind, wire) for wire in wires]
        return b",".join(wires if self.kind.definition else map(self._without_type, wires))

    def _without_type(self, wire: bytes) -> bytes:
        """Return an item of a list: Kubernetes leaves out what the list's own kind says, but not in custom objects."""
        start = b'{"apiVersion":"%b","kind":"%b",' % (self.kind.api_version.encode(), self.kind.name.encode())
        return b"{" + wire[len(start) :] if wire.startswith(start) else wire

    def encode_list_end(self, meta: Mapping[str, Any] | None = None) -> bytes:
        """Encode the end of a list after its items."""
        return b"]}" if meta is None else b'],"metadata":%b}' % msgspec.json.encode(meta)

    def encode_bookmark(self, metadata: Mapping[str, Any]) -> bytes:
        """Encode the object of a BOOKMARK, which has metadata only."""
        if self.is_partial or self.is_table:
            names = _type_meta("PartialObjectMetadata", f"meta.k8s.io/{self.form.version}")
        else:
            names = _type_meta(self.kind.name, self.kind.api_version)
        bare = msgspec.json.encode({**names, "metadata": metadata})
        if self.is_protobuf:
            return protobuf_encoding.encode_object(bare, self.kind.type)
        if not self.is_table:
            return bare
        cells: list[None] = [None] * len(tables.columns(self.kind))
        row = msgspec.json.encode({"cells": cells, "object": msgspec.Raw(bare)})
        return self._table({"resourceVersion": metadata["resourceVersion"]}, columns=False) + row + b"]}"

    def encode_event(self, type_: str, obj: bytes) -> bytes:
        """Encode a watch event of an encoded object; in JSON, a line."""
        if self.is_protobuf:
            return protobuf_encoding.encode_event(type_, obj)
        return encode_json_event(type_, obj)

    def encode_error(self, error: ApiError) -> bytes:
        """Encode the ERROR event that ends a watch."""
        status = errors.body(error)
        return self.encode_event("ERROR", protobuf_encoding.encode_status(status) if self.is_protobuf else status)

    def _table(self, meta: Mapping[str, Any] | None, columns: bool = True) -> bytes:
        names: dict[str, Any] = {**_type_meta("Table", f"meta.k8s.io/{self.form.version}"), **_with_meta(meta)}
        return (
            _encode_open({**names, "columnDefinitions": tables.columns(self.kind) if columns else None}) + b',"rows":['
        )

    def _partial(self, wire: bytes) -> bytes:
        """Encode PartialObjectMetadata from the raw stored metadata."""
        names = _type_meta("PartialObjectMetadata", f"meta.k8s.io/{self.form.version}")
        return _encode_open(names) + b',"metadata":%b}' % bytes(_METADATA_DECODER.decode(wire).metadata)


def encode_json_event(type_: str, obj: bytes) -> bytes:
    """Encode a watch event as a line of JSON."""
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), obj)


def _type_meta(kind: str, api_version: str) -> dict[str, str]:
    return {"kind": kind, "apiVersion": api_version}


def _with_meta(meta: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if meta is None else {"metadata": meta}


def _encode_open(document: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(document)[:-1]
