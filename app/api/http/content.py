"""Request and response bodies: reads bounded bodies, decodes them into kinds, and answers in the negotiated form.

The routes of `app.api.resources` and `app.api.streams` call this. Errors are 400, 406, 413, 415 or 422.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any, Literal, TypeVar, cast

import msgspec
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from app.api.audit.annotations import annotate
from app.api.http.compression import Body
from app.api.http.content_negotiation import (
    BUILT_IN_OBJECT,
    CUSTOM_BODIES,
    OBJECT,
    OBJECT_BODIES,
    negotiate_media_type,
    parse_object_content_type,
)
from app.api.http.content_negotiation import BodyFormat as Form
from app.api.http.headers import header_of
from app.api.http.query import WriteOptions, first_value, query_of
from app.api.http.response_shape import ResponseShape
from app.api.resources import protobuf, tables
from app.kinds.apiextensions.custom_resource_definition import KIND as DEFINITIONS
from app.machinery.base import Kind, Object, Struct
from app.machinery.custom.object_body import convert_document, decode_body, is_custom
from app.machinery.decoding import json_document as document
from app.machinery.decoding.decode import Decoded, Validation, convert, decode
from app.machinery.errors import ApiError, bad_request
from app.registry import offload
from app.registry.verbs.objects import Answer

S = TypeVar("S", bound=Struct)
MAX_BODY = 3 << 20  # Kubernetes' own limit


async def read_body(request: Request, most: int = MAX_BODY) -> bytes:
    """Return the whole body; 413 as soon as it exceeds `most` bytes."""
    declared = header_of(request.scope, b"content-length") or "0"
    chunks: list[bytes] = []
    size = 0
    if not declared.isdigit() or int(declared) > most:
        raise _too_large(most)
    has_more = True
    while has_more:  # what `request.stream` does; an asynchronous generator costs more than all else here
        message = await request.receive()
        if message["type"] == "http.disconnect":
            raise ClientDisconnect
        chunk: bytes = message.get("body", b"")
        size += len(chunk)
        if size > most:
            raise _too_large(most)
        chunks.append(chunk)
        has_more = message.get("more_body", False)
    request.scope["body_size"] = size
    return b"".join(chunks)


def body_size(request: Request) -> int:
    """Return the size in bytes of the body that was read."""
    size: int = request.scope.get("body_size", 0)
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
    if body and parse_object_content_type(header_of(request.scope, b"content-type")) == "protobuf":
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
    form = parse_object_content_type(header_of(request.scope, b"content-type"), bodies)
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
    form = parse_object_content_type(header_of(request.scope, b"content-type"))
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


def shape_of(request: Request, kind: Kind) -> ResponseShape:
    """Return the form that the request's Accept header and includeObject ask for; 400 or 406 if there is no such form."""
    form = negotiate_media_type(header_of(request.scope, b"accept"), OBJECT if is_custom(kind) else BUILT_IN_OBJECT)
    if form.form != "table":
        return ResponseShape(kind, form)
    return ResponseShape(kind, form, tables.parse_include_object(first_value(query_of(request), "includeObject")))


def object_response(
    request: Request,
    kind: Kind,
    wire: bytes,
    now: Callable[[], datetime],
    code: int = 200,
    warnings: Iterable[str] = (),
) -> Response:
    """Return the response with one object in the negotiated form. `now` is called for the ages in a Table."""
    shape = shape_of(request, kind)
    warnings = (kind.deprecation, *warnings) if kind.deprecation else warnings
    return Body(shape.encode_object(wire, now), code, warning_headers(warnings), shape.content_type)


def answer_response(
    request: Request,
    kind: Kind,
    answer: Answer,
    now: Callable[[], datetime],
    code: int = 200,
    warnings: Iterable[str] = (),
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
