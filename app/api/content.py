"""Bodies in and out: reading at most so much, decoding into a kind, and showing stored bytes in the form asked for."""

from collections.abc import Iterable
from datetime import datetime
from typing import Any, Literal, cast

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.api import protobuf, tables
from app.api.accept import Wanted, object_body, wanted
from app.api.query import WriteOptions
from app.kinds import KINDS, document
from app.kinds.base import Kind, Object, Struct
from app.kinds.decode import Decoded, Validation, convert, decode
from app.kinds.errors import ApiError, bad_request

MAX_BODY = 3 << 20  # Kubernetes' own limit


async def read_body(request: Request) -> bytes:
    """The whole body; 413 as soon as it is too large."""
    declared = request.headers.get("content-length", "0")
    chunks: list[bytes] = []
    size = 0
    if not declared.isdigit() or int(declared) > MAX_BODY:
        raise _too_large()
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY:
            raise _too_large()
        chunks.append(chunk)
    return b"".join(chunks)


def _too_large() -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MAX_BODY}")


async def read_document(request: Request) -> Any:
    """The body as plain JSON, such as a patch or options; None if there is none."""
    body = await read_body(request)
    return document.parse(body) if body else None


async def read_options(request: Request, type_: type[Struct]) -> Any:
    """Options in a body, such as those of a DELETE; newer kubectl sends them as protobuf."""
    body = await read_body(request)
    if body and object_body(request.headers.get("content-type")) == "protobuf":
        return protobuf.decode(body, type_)
    return document.parse(body) if body else None


def validation_of(options: WriteOptions) -> Validation:
    """What to do about unknown fields; a client that says nothing is warned."""
    return cast("Validation", options.field_validation or "Warn")


async def read_object(request: Request, kind: Kind, validation: Validation) -> Decoded[Any]:
    """The object in the body, of the kind that the path names."""
    body = await read_body(request)
    form = object_body(request.headers.get("content-type"))
    if not body:
        raise bad_request("the body of the request is empty: an object is expected")
    if form == "protobuf":
        return convert(protobuf.decode(body, kind.type), kind.type, api_version=kind.api_version, validation=validation)
    content_type: Literal["yaml", "json"] = "yaml" if form == "yaml" else "json"
    return decode(body, kind.type, api_version=kind.api_version, content_type=content_type, validation=validation)


def stored_kind(kind: Kind) -> Kind:
    """The kind that is stored: another one for a second version of the same thing."""
    if kind.stored_as is None:
        return kind
    group, plural = kind.stored_as
    found = next((each for each in KINDS if (each.group, each.plural) == (group, plural)), None)
    if found is None:
        raise LookupError(f"{kind.resource} is stored as {plural}, which is no kind")
    return found


def inward(kind: Kind, obj: Object) -> Object:
    return kind.inward(obj) if kind.inward else obj


def outward(kind: Kind, wire: bytes) -> bytes:
    """Stored bytes as this kind's. Almost always they are that already, and nothing is parsed."""
    return msgspec.json.encode(shown(kind, wire)) if kind.outward else wire


def shown(kind: Kind, wire: bytes) -> Object:
    """Stored bytes as this kind's object."""
    stored = stored_kind(kind)
    obj: Object = msgspec.json.decode(wire, type=stored.type)
    if kind.outward:
        converted: Object = kind.outward(obj)
        return msgspec.structs.replace(converted, api_version=kind.api_version, kind=kind.name)
    return obj


def form_of(request: Request) -> Wanted:
    return wanted(request.headers.get("accept"))


def one(
    request: Request, kind: Kind, wire: bytes, now: datetime, code: int = 200, warnings: Iterable[str] = ()
) -> Response:
    """The answer that carries one object, in the form that the client wants."""
    form = form_of(request)
    if form.form == "table":
        body = as_table(request, kind, [wire], now, {})
    elif form.form == "partial":
        body = as_partial(kind, wire, form.version)
    else:
        body = outward(kind, wire)
    return Response(body, code, warning_headers(warnings), form.content_type)


def as_table(request: Request, kind: Kind, wires: Iterable[bytes], now: datetime, meta: dict[str, Any]) -> bytes:
    """Stored bytes as the Table that the request asks for."""
    include, version = request.query_params.get("includeObject"), form_of(request).version
    objects = [shown(kind, wire) for wire in wires]
    return tables.table(kind, objects, now, include=include, version=version, list_meta=meta)


def as_partial(kind: Kind, wire: bytes, version: str) -> bytes:
    """Stored bytes as their metadata alone."""
    return msgspec.json.encode(tables.partial(shown(kind, wire), version))


def warning_headers(warnings: Iterable[str]) -> dict[str, str]:
    """One header for all warnings, as RFC 9110 lists them; quotes and backslashes escaped, nothing that breaks a header."""
    texts = [text.replace("\\", "\\\\").replace('"', '\\"') for text in warnings]
    safe = ["".join(c if c.isprintable() and ord(c) < 256 else "?" for c in text) for text in texts]
    return {"Warning": ", ".join(f'299 - "{text}"' for text in safe)} if safe else {}
