"""Decoding of request bodies into structs; any failure is a 400 with Kubernetes' message, never another error.

The API calls `decode` for the bodies of creates and updates, and `convert` for the documents that patches and protobuf make.
null means absent; unknown fields are dropped, warned of or refused (fieldValidation); times come out in UTC and in whole
seconds, micro times with six decimals. Fast path: msgspec decodes the body directly; only if that fails is the document
walked, for a precise error.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from app.machinery.decoding import json_document
from app.machinery.decoding.json_document import ContentType
from app.machinery.decoding.strict_decoding import ConversionError, Converter, time_parse_error
from app.machinery.errors import ApiError, bad_request
from app.machinery.shape import Settle, Sort, has_only, settled, shape_of

Validation = Literal["Ignore", "Warn", "Strict"]

T = TypeVar("T", bound=msgspec.Struct)


class Decoded(NamedTuple, Generic[T]):
    """A decoded struct, and texts for Warning headers."""

    object: T
    warnings: list[str]


def decode(
    body: bytes,
    type_: type[T],
    *,
    api_version: str = "",
    content_type: ContentType = "json",
    validation: Validation = "Ignore",
) -> Decoded[T]:
    """Decode a body. With an `api_version`, another one in the body is refused with 400, and a missing one is filled in."""
    checked = json_document.to_json(body, content_type)
    decoded = _decode_fast(checked, type_)
    if decoded is not None and (validation == "Ignore" or _passes_strict_decoding(checked, type_)):
        return Decoded(_normalize(decoded, type_, api_version), [])
    doc = json_document.decode(checked) if validation == "Ignore" else json_document.decode_with_duplicates(checked)
    obj, faults = _decode_precisely(doc, type_, api_version)
    if faults and validation == "Strict":
        raise _decode_error(type_, api_version, f"strict decoding error: {', '.join(faults)}")
    return Decoded(_normalize(obj, type_, api_version), faults if validation == "Warn" else [])


def convert(
    doc: Mapping[str, Any], type_: type[T], *, api_version: str = "", validation: Validation = "Ignore"
) -> Decoded[T]:
    """Convert a plain document, as patches or protobuf make one, by the rules of `decode`; bytes may be bytes objects."""
    return decode(json_document.encode(doc), type_, api_version=api_version, validation=validation)


def convert_fitting(doc: Mapping[str, Any], type_: type[T]) -> Decoded[T] | None:
    """Convert a plain document without duplicate fields as `convert` does; None if anything does not fit, even a null."""
    if not has_only(doc, shape_of(type_)):
        return None
    try:
        return Decoded(_normalize(msgspec.convert(doc, type_), type_, ""), [])
    except msgspec.ValidationError:
        return None


def decode_stored(body: bytes, type_: type[T]) -> T:
    """A stored object, also one that an older version has stored. Raises as `decode_older` does."""
    try:
        decoded: T = _decoder(type_).decode(body)
    except msgspec.ValidationError:
        return decode_older(body, type_)
    return decoded


def decode_older(wire: bytes, type_: type[T]) -> T:
    """An object that was stored by an older version, which did not look into some of its fields: nulls are left out.

    Slow; for what the decoder refuses. Raises ConversionError, msgspec.ValidationError.
    """
    return msgspec.convert(Converter().convert_document(msgspec.json.decode(wire), shape_of(type_)), type_)


@cache
def _decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(type_)


def _decode_fast(body: bytes, type_: type[T]) -> T | None:
    """Decode with msgspec alone; None if anything does not fit, even a null."""
    try:
        decoded: T = _decoder(type_).decode(body)
    except msgspec.ValidationError:
        return None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise json_document.malformed_error(error) from None
    return decoded


def _passes_strict_decoding(body: bytes, type_: type[T]) -> bool:
    """Return whether no field is unknown or duplicate. Looks at keys only, because nearly every body passes."""
    plain = json_document.decode(body)
    return has_only(plain, shape_of(type_)) and not json_document.has_duplicates(body, plain)


def _decode_precisely(doc: Any, type_: type[T], api_version: str) -> tuple[T, list[str]]:
    if doc is None:
        doc = {}  # Kubernetes reads null as an empty object
    if isinstance(doc, dict):
        _check_type_meta(doc.get("apiVersion"), doc.get("kind"), type_, api_version)
    fit = Converter()
    try:
        return msgspec.convert(fit.convert_document(doc, shape_of(type_)), type_), fit.faults
    except (ConversionError, msgspec.ValidationError) as error:
        raise _decode_error(type_, api_version, error) from None


def _normalize(obj: T, type_: type[T], api_version: str) -> T:
    try:
        obj = settled(obj, shape_of(type_), _TIME_NORMALIZERS)
    except ConversionError as misfit:
        raise _decode_error(type_, api_version, misfit) from None
    if not api_version:
        return obj
    given, kind = getattr(obj, "api_version", ""), getattr(obj, "kind", "")
    if given == api_version and kind == type_.__name__:
        return obj
    _check_type_meta(given, kind, type_, api_version)
    return replace(obj, api_version=api_version, kind=type_.__name__)


def _check_type_meta(given: Any, kind: Any, type_: type[T], api_version: str) -> None:
    if not api_version:
        return
    if given and isinstance(given, str) and given != api_version:
        raise bad_request(
            f"the API version in the data ({given}) does not match the expected API version ({api_version})"
        )
    if kind and isinstance(kind, str) and kind != type_.__name__:
        why = f"converting (v1.{kind}) to (v1.{type_.__name__}): unknown conversion"
        raise _decode_error(type_, api_version, why, kind=kind)


def _decode_error(type_: type[T], api_version: str, why: object, kind: str = "") -> ApiError:
    version = api_version.rpartition("/")[2] or "v1"
    name = type_.__name__
    return bad_request(f'{kind or name} in version "{version}" cannot be handled as a {name}: {why}')


def _truncate_to_second(moment: datetime) -> datetime:
    if moment.tzinfo is UTC and not moment.microsecond:
        return moment
    try:
        return moment.astimezone(UTC).replace(microsecond=0)
    except OverflowError:
        raise time_parse_error(moment.isoformat()) from None


def _format_micro_time(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise time_parse_error(text) from None
    normalized = f"{moment.isoformat(timespec='microseconds')[:26]}Z"
    return text if text == normalized else normalized


_TIME_NORMALIZERS: dict[Sort, Settle] = {"time": _truncate_to_second, "micro": _format_micro_time}
