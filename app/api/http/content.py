"""Request and response bodies: reads bounded bodies, decodes them into kinds, and encodes stored bytes in the negotiated form.

The routes of `app.api.resources` and `app.api.streams` call this. Errors are 400, 406, 413, 415 or 422.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, NamedTuple, TypeVar, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.api.audit.annotations import annotate
from app.api.http.accept import (
    CUSTOM_BODIES,
    OBJECT_BODIES,
    ResponseFormat,
    negotiate_media_type,
    parse_object_content_type,
)
from app.api.http.accept import BodyFormat as Form
from app.api.http.compression import Body
from app.api.http.query import WriteOptions, first_value, query_of
from app.api.resources import protobuf, tables
from app.kinds.apiextensions.custom_resource_definition import KIND as DEFINITIONS
from app.machinery.base import Kind, Object, Struct
from app.machinery.custom.object_body import convert_document, decode_body, is_custom
from app.machinery.decoding import json_document as document
from app.machinery.decoding.decode import Decoded, Validation, convert, decode
from app.machinery.errors import ApiError, bad_request
from app.machinery.object_codec import decode_object, encode_object
from app.registry import offload
from app.registry.codec import type_of
from app.registry.verbs.objects import Answer

S = TypeVar("S", bound=Struct)
MAX_BODY = 3 << 20  # Kubernetes' own limit


async def read_body(request: Request, most: int = MAX_BODY) -> bytes:
    """Return the whole body; 413 as soon as it exceeds `most` bytes."""
    declared = request.headers.get("content-length", "0")
    chunks: list[bytes] = []
    size = 0
    if not declared.isdigit() or int(declared) > most:
        raise _too_large(most)
    async for chunk in request.stream():
        size += len(chunk)
        if size > most:
            raise _too_large(most)
        chunks.append(chunk)
    request.state.body_size = size
    return b"".join(chunks)


def body_size(request: Request) -> int:
    """Return the size in bytes of the body that was read."""
    size: int = getattr(request.state, "body_size", 0)
    return size


def _too_large(most: int) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {most}")


async def read_document(request: Request) -> Any:
    """Parse the body as plain JSON, such as a patch; None for an empty body."""
    body = await read_body(request)
    return await offload.run(len(body), document.parse, body) if body else None


async def read_options(request: Request, type_: type[Struct]) -> Any:
    """Parse options in a body, such as DeleteOptions; newer kubectl sends them as protobuf. None for an empty body."""
    body = await read_body(request)
    if body and parse_object_content_type(request.headers.get("content-type")) == "protobuf":
        return await offload.run(len(body), protobuf.decode, body, type_)
    return await offload.run(len(body), document.parse, body) if body else None


def validation_of(options: WriteOptions) -> Validation:
    """Return fieldValidation; Warn by default."""
    return cast("Validation", options.field_validation or "Warn")


async def read_object(request: Request, kind: Kind, validation: Validation) -> Decoded[Any]:
    """Decode the object in the body into the kind of the path. Custom objects are JSON or YAML, never protobuf: 415."""
    if not is_custom(kind) and kind is not DEFINITIONS:
        return await read_struct(request, kind.type, kind.api_version, validation)
    body = await read_body(request)
    bodies = CUSTOM_BODIES if is_custom(kind) else OBJECT_BODIES
    form = parse_object_content_type(request.headers.get("content-type"), bodies)
    await compile_schema(kind)
    return await offload.run(_weight(body, form), _decode_described, kind, body, form, validation)


def _decode_described(kind: Kind, body: bytes, form: Form, validation: Validation) -> Decoded[Any]:
    """Decode an object whose unknown fields a schema tells: a custom object, or a definition."""
    if form == "protobuf":
        return convert_document(kind, protobuf.decode(body, kind.type), validation)
    return decode_body(kind, body, "yaml" if form == "yaml" else "json", validation)


async def compile_schema(kind: Kind) -> None:
    """Compile the schema of a custom kind in a thread, unless that was done before."""
    if is_custom(kind) and not (schema := kind.type.structural_schema).is_compiled:
        await offload.run(offload.LARGE + 1, schema.compile)


async def read_struct(request: Request, type_: type[S], api_version: str, validation: Validation) -> Decoded[S]:
    """Decode a body that is no stored kind: reviews, and objects posted to subresources."""
    body = await read_body(request)
    form = parse_object_content_type(request.headers.get("content-type"))
    return await offload.run(_weight(body, form), _decode_body, body, form, type_, api_version, validation)


def _weight(body: bytes, form: Form) -> int:
    """Return how long a body takes to decode, in bytes of JSON; 400 if it is empty."""
    if not body:
        raise bad_request("the body of the request is empty: an object is expected")
    return len(body) * offload.YAML_WEIGHT if form == "yaml" else len(body)


def _decode_body(body: bytes, form: Form, type_: type[S], api_version: str, validation: Validation) -> Decoded[S]:
    if form == "protobuf":
        return convert(protobuf.decode(body, type_), type_, api_version=api_version, validation=validation)
    content_type: Literal["yaml", "json"] = "yaml" if form == "yaml" else "json"
    return decode(body, type_, api_version=api_version, content_type=content_type, validation=validation)


def stored_kind(kind: Kind) -> Kind:
    """Return the kind that the verbs work with: of a second version, the first version's kind with the second's validation.

    Of a kind that a webhook converts it is this one: the registry converts where it loads and stores.
    """
    if kind.storage is None or kind.outward is None:
        return kind
    seen = kind.outward
    return replace(
        kind.storage,
        validate=lambda obj: kind.validate(seen(obj)),
        validate_update=lambda new, old: kind.validate_update(seen(new), seen(old)),
        validate_ratcheting=lambda new, old: kind.validate_next(seen(new), seen(old)),
    )


def encode_document(document: Mapping[str, Any]) -> bytes:
    """Encode an object that is stored nowhere, for `object_response`."""
    return msgspec.json.encode(document)


def convert_to_stored(kind: Kind, obj: Object) -> Object:
    return kind.inward(obj) if kind.inward else obj


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
    def content_type(self) -> str:
        return self.form.content_type

    @property
    def cache_key(self) -> tuple[str, str, ResponseFormat, str | None]:
        """Equal for shapes in which an object has the same bytes."""
        return self.kind.resource, self.kind.version, self.form, self.include

    def encode_object(self, wire: bytes, now: datetime, *, columns: bool = True) -> bytes:
        """Encode one object; without `columns`, a Table omits its columnDefinitions, which the client has already."""
        if self.is_partial:
            return self._partial(wire)
        if not self.is_table:
            return convert_from_stored(self.kind, wire)
        meta = {"resourceVersion": decode_as_kind(self.kind, wire).metadata.resource_version}
        return self._table(meta, columns) + self.encode_items([wire], now) + b"]}"

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
        """Encode items separated by commas. Plain objects are joined stored bytes: nothing is parsed."""
        if self.is_table:
            objects = [decode_as_kind(self.kind, wire) for wire in wires]
            version = self.form.version
            return msgspec.json.encode(tables.rows(self.kind, objects, now, include=self.include, version=version))[
                1:-1
            ]
        if self.is_partial:
            return b",".join(map(self._partial, wires))
        return (
            b",".join(convert_from_stored(self.kind, wire) for wire in wires) if self.kind.outward else b",".join(wires)
        )

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
        if not self.is_table:
            return bare
        cells: list[None] = [None] * len(tables.columns(self.kind))
        row = msgspec.json.encode({"cells": cells, "object": msgspec.Raw(bare)})
        return self._table({"resourceVersion": metadata["resourceVersion"]}, columns=False) + row + b"]}"

    def _table(self, meta: Mapping[str, Any] | None, columns: bool = True) -> bytes:
        names: dict[str, Any] = {**_type_meta("Table", f"meta.k8s.io/{self.form.version}"), **_with_meta(meta)}
        return (
            _encode_open({**names, "columnDefinitions": tables.columns(self.kind) if columns else None}) + b',"rows":['
        )

    def _partial(self, wire: bytes) -> bytes:
        """Encode PartialObjectMetadata from the raw stored metadata."""
        names = _type_meta("PartialObjectMetadata", f"meta.k8s.io/{self.form.version}")
        return _encode_open(names) + b',"metadata":%b}' % bytes(_METADATA_DECODER.decode(wire).metadata)


def _type_meta(kind: str, api_version: str) -> dict[str, str]:
    return {"kind": kind, "apiVersion": api_version}


def _with_meta(meta: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if meta is None else {"metadata": meta}


def _encode_open(document: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(document)[:-1]


def shape_of(request: Request, kind: Kind) -> ResponseShape:
    """Return the form that the request's Accept header and includeObject ask for; 400 or 406 if there is no such form."""
    form = negotiate_media_type(request.headers.get("accept"))
    if form.form != "table":
        return ResponseShape(kind, form)
    return ResponseShape(kind, form, tables.parse_include_object(first_value(query_of(request), "includeObject")))


def object_response(
    request: Request, kind: Kind, wire: bytes, now: datetime, code: int = 200, warnings: Iterable[str] = ()
) -> Response:
    """Return the response with one object in the negotiated form."""
    shape = shape_of(request, kind)
    warnings = (kind.deprecation, *warnings) if kind.deprecation else warnings
    return Body(shape.encode_object(wire, now), code, warning_headers(warnings), shape.content_type)


def answer_response(
    request: Request, kind: Kind, answer: Answer, now: datetime, code: int = 200, warnings: Iterable[str] = ()
) -> Response:
    """Return the response to a write, with its warnings after those given, and note its annotations for audit."""
    if answer.audit_annotations:
        annotate(request.scope, answer.audit_annotations)
    return object_response(request, kind, answer.body, now, code, (*warnings, *answer.warnings))


def warning_headers(warnings: Iterable[str]) -> dict[str, str]:
    """Return one Warning header for all texts (RFC 9110), quotes and backslashes escaped, other unsafe characters as `?`."""
    texts = [text.replace("\\", "\\\\").replace('"', '\\"') for text in warnings]
    safe = ["".join(c if c.isprintable() and ord(c) < 256 else "?" for c in text) for text in texts]
    return {"Warning": ", ".join(f'299 - "{text}"' for text in safe)} if safe else {}
