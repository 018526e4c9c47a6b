"""Bodies in and out: reading at most so much, decoding into a kind, and showing stored bytes in the form asked for."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import cache
from typing import Any, Literal, TypeVar, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.api.http.accept import Body as Form
from app.api.http.accept import Wanted, object_body, wanted
from app.api.http.compression import Body
from app.api.http.query import WriteOptions, first
from app.api.resources import protobuf, tables
from app.kinds import KINDS
from app.machinery import json_document as document
from app.machinery.base import Kind, Object, Struct
from app.machinery.decode import Decoded, Validation, convert, decode
from app.machinery.errors import ApiError, bad_request
from app.registry import offload
from app.registry.codec import type_of

S = TypeVar("S", bound=Struct)
MAX_BODY = 3 << 20  # Kubernetes' own limit


async def read_body(request: Request, most: int = MAX_BODY) -> bytes:
    """The whole body; 413 as soon as it is too large."""
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
    """Bytes of the body that was read."""
    size: int = getattr(request.state, "body_size", 0)
    return size


def _too_large(most: int) -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {most}")


async def read_document(request: Request) -> Any:
    """The body as plain JSON, such as a patch or options; None if there is none."""
    body = await read_body(request)
    return await offload.run(len(body), document.parse, body) if body else None


async def read_options(request: Request, type_: type[Struct]) -> Any:
    """Options in a body, such as those of a DELETE; newer kubectl sends them as protobuf."""
    body = await read_body(request)
    if body and object_body(request.headers.get("content-type")) == "protobuf":
        return await offload.run(len(body), protobuf.decode, body, type_)
    return await offload.run(len(body), document.parse, body) if body else None


def validation_of(options: WriteOptions) -> Validation:
    """What to do about unknown fields; a client that says nothing is warned."""
    return cast("Validation", options.field_validation or "Warn")


async def read_object(request: Request, kind: Kind, validation: Validation) -> Decoded[Any]:
    """The object in the body, of the kind that the path names."""
    return await read_struct(request, kind.type, kind.api_version, validation)


async def read_struct(request: Request, type_: type[S], api_version: str, validation: Validation) -> Decoded[S]:
    """The same for what is no kind: reviews, and what is posted to subresources."""
    body = await read_body(request)
    form = object_body(request.headers.get("content-type"))
    if not body:
        raise bad_request("the body of the request is empty: an object is expected")
    weight = len(body) * offload.YAML_WEIGHT if form == "yaml" else len(body)
    return await offload.run(weight, _decoded, body, form, type_, api_version, validation)


def _decoded(body: bytes, form: Form, type_: type[S], api_version: str, validation: Validation) -> Decoded[S]:
    if form == "protobuf":
        return convert(protobuf.decode(body, type_), type_, api_version=api_version, validation=validation)
    content_type: Literal["yaml", "json"] = "yaml" if form == "yaml" else "json"
    return decode(body, type_, api_version=api_version, content_type=content_type, validation=validation)


def stored_kind(kind: Kind) -> Kind:
    """The kind that is stored: another one for a second version of the same thing, but under that version's rules."""
    if kind.stored_as is None or kind.outward is None:
        return kind
    group, plural = kind.stored_as
    found = next((each for each in KINDS if (each.group, each.plural) == (group, plural)), None)
    if found is None:
        raise LookupError(f"{kind.resource} is stored as {plural}, which is no kind")
    seen = kind.outward
    return replace(
        found,
        validate=lambda obj: kind.validate(seen(obj)),
        validate_update=lambda new, old: kind.validate_update(seen(new), seen(old)),
    )


def inward(kind: Kind, obj: Object) -> Object:
    return kind.inward(obj) if kind.inward else obj


def outward(kind: Kind, wire: bytes) -> bytes:
    """Stored bytes as this kind's. Almost always they are that already, and nothing is parsed."""
    return msgspec.json.encode(shown(kind, wire)) if kind.outward else wire


@cache
def _decoder(type_: type[Object]) -> msgspec.json.Decoder[Object]:
    return msgspec.json.Decoder(type_)


def shown(kind: Kind, wire: bytes) -> Object:
    """Stored bytes as this kind's object."""
    stored = stored_kind(kind)
    obj: Object = _decoder(type_of(stored)).decode(wire)
    if kind.outward:
        converted: Object = kind.outward(obj)
        return msgspec.structs.replace(converted, api_version=kind.api_version, kind=kind.name)
    return obj


class _Bare(msgspec.Struct):
    """An object of which nothing but the metadata is looked at."""

    metadata: msgspec.Raw


_BARE = msgspec.json.Decoder(_Bare)


@dataclass(frozen=True)
class Shape:
    """The form that a client asked for: how objects look in it, alone and in lists."""

    kind: Kind
    form: Wanted
    include: str | None = None  # what of the object goes into a Table

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
    def sharing(self) -> tuple[str, Wanted, str | None]:
        """A key that shapes share in which an object has the same bytes."""
        return self.kind.resource, self.form, self.include

    def one(self, wire: bytes, now: datetime, *, columns: bool = True) -> bytes:
        """One object. A Table can do without its columns, where the client has them already."""
        if self.is_partial:
            return self._partial(wire)
        if not self.is_table:
            return outward(self.kind, wire)
        meta = {"resourceVersion": shown(self.kind, wire).metadata.resource_version}
        return self._table(meta, columns) + self.items([wire], now) + b"]}"

    def opening(self, meta: Mapping[str, Any] | None) -> bytes:
        """What comes before the items of a list; without `meta` if that is to come after them."""
        if self.is_table:
            return self._table(meta)
        if self.is_partial:
            names: dict[str, Any] = _named("PartialObjectMetadataList", f"meta.k8s.io/{self.form.version}")
        else:
            names = _named(f"{self.kind.name}List", self.kind.api_version)
        return _open({**names, **_with_meta(meta)}) + b',"items":['

    def items(self, wires: Sequence[bytes], now: datetime) -> bytes:
        """The items, with commas between them. Plain ones are joined bytes: nothing is parsed."""
        if self.is_table:
            objects = [shown(self.kind, wire) for wire in wires]
            version = self.form.version
            return msgspec.json.encode(tables.rows(self.kind, objects, now, include=self.include, version=version))[
                1:-1
            ]
        if self.is_partial:
            return b",".join(map(self._partial, wires))
        return b",".join(outward(self.kind, wire) for wire in wires) if self.kind.outward else b",".join(wires)

    def closing(self, meta: Mapping[str, Any] | None = None) -> bytes:
        """What comes after the items."""
        return b"]}" if meta is None else b'],"metadata":%b}' % msgspec.json.encode(meta)

    def bookmark(self, metadata: Mapping[str, Any]) -> bytes:
        """The object of a BOOKMARK, which has nothing but metadata."""
        if self.is_partial or self.is_table:
            names = _named("PartialObjectMetadata", f"meta.k8s.io/{self.form.version}")
        else:
            names = _named(self.kind.name, self.kind.api_version)
        bare = msgspec.json.encode({**names, "metadata": metadata})
        if not self.is_table:
            return bare
        cells: list[None] = [None] * len(tables.columns(self.kind))
        row = msgspec.json.encode({"cells": cells, "object": msgspec.Raw(bare)})
        return self._table({"resourceVersion": metadata["resourceVersion"]}, columns=False) + row + b"]}"

    def _table(self, meta: Mapping[str, Any] | None, columns: bool = True) -> bytes:
        names: dict[str, Any] = {**_named("Table", f"meta.k8s.io/{self.form.version}"), **_with_meta(meta)}
        return _open({**names, "columnDefinitions": tables.columns(self.kind) if columns else None}) + b',"rows":['

    def _partial(self, wire: bytes) -> bytes:
        """The stored metadata as it is."""
        names = _named("PartialObjectMetadata", f"meta.k8s.io/{self.form.version}")
        return _open(names) + b',"metadata":%b}' % bytes(_BARE.decode(wire).metadata)


def _named(kind: str, api_version: str) -> dict[str, str]:
    return {"kind": kind, "apiVersion": api_version}


def _with_meta(meta: Mapping[str, Any] | None) -> dict[str, Any]:
    return {} if meta is None else {"metadata": meta}


def _open(document: Mapping[str, Any]) -> bytes:
    return msgspec.json.encode(document)[:-1]


def shape_of(request: Request, kind: Kind) -> Shape:
    """The form that the request's headers and parameters ask for; 400 or 406 if there is no such form."""
    form = wanted(request.headers.get("accept"))
    if form.form != "table":
        return Shape(kind, form)
    return Shape(kind, form, tables.included(first(request.query_params.multi_items(), "includeObject")))


def one(
    request: Request, kind: Kind, wire: bytes, now: datetime, code: int = 200, warnings: Iterable[str] = ()
) -> Response:
    """The answer that carries one object, in the form that the client wants."""
    shape = shape_of(request, kind)
    return Body(shape.one(wire, now), code, warning_headers(warnings), shape.content_type)


def warning_headers(warnings: Iterable[str]) -> dict[str, str]:
    """One header for all warnings, as RFC 9110 lists them; quotes and backslashes escaped, nothing that breaks a header."""
    texts = [text.replace("\\", "\\\\").replace('"', '\\"') for text in warnings]
    safe = ["".join(c if c.isprintable() and ord(c) < 256 else "?" for c in text) for text in texts]
    return {"Warning": ", ".join(f'299 - "{text}"' for text in safe)} if safe else {}
