"""Decoding: from a client's bytes to a struct, or a 400 in Kubernetes' words; never any other error.

The API decodes the bodies of creates and updates, and converts the documents that patches and protobuf make. null means
absent; unknown fields are dropped, warned of or refused; times come out in UTC and in whole seconds, micro times with six
decimals. A body that fits goes straight into the struct; only one that does not is walked, for a precise error.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache
from typing import Any, Generic, Literal, NamedTuple, TypeVar

import msgspec
from msgspec.structs import replace

from app.machinery import json_document
from app.machinery.conversion import Fit, MisfitError, unreadable_time
from app.machinery.errors import ApiError, bad_request
from app.machinery.json_document import ContentType
from app.machinery.shape import Settle, Sort, has_only, settled, shape_of

Validation = Literal["Ignore", "Warn", "Strict"]

T = TypeVar("T", bound=msgspec.Struct)


class Decoded(NamedTuple, Generic[T]):
    """A struct, and texts for Warning headers."""

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
    """The struct in a body. With an `api_version`, another one in the body is refused, and a missing one filled in."""
    checked = json_document.json_of(body, content_type)
    straight = _straight(checked, type_)
    if straight is not None and (validation == "Ignore" or _is_faultless(checked, type_)):
        return Decoded(_finished(straight, type_, api_version), [])
    doc = json_document.value_of(checked) if validation == "Ignore" else json_document.value_with_duplicates(checked)
    obj, faults = _walked(doc, type_, api_version)
    if faults and validation == "Strict":
        raise _unfit(type_, api_version, f"strict decoding error: {', '.join(faults)}")
    return Decoded(_finished(obj, type_, api_version), faults if validation == "Warn" else [])


def convert(
    doc: Mapping[str, Any], type_: type[T], *, api_version: str = "", validation: Validation = "Ignore"
) -> Decoded[T]:
    """The struct in a plain document, as patches or protobuf make one: the same rules, and bytes may be bytes."""
    return decode(json_document.encoded(doc), type_, api_version=api_version, validation=validation)


@cache
def _decoder(type_: type[T]) -> msgspec.json.Decoder[T]:
    return msgspec.json.Decoder(type_)


def _straight(body: bytes, type_: type[T]) -> T | None:
    """The fast path; None if something does not fit, be it only a null."""
    try:
        straight: T = _decoder(type_).decode(body)
    except msgspec.ValidationError:
        return None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise json_document.malformed(error) from None
    return straight


def _is_faultless(body: bytes, type_: type[T]) -> bool:
    """No field is unknown or comes twice. Told apart from the rare other case without looking at any value."""
    plain = json_document.value_of(body)
    return has_only(plain, shape_of(type_)) and not json_document.has_duplicates(body, plain)


def _walked(doc: Any, type_: type[T], api_version: str) -> tuple[T, list[str]]:
    if doc is None:
        doc = {}  # as Kubernetes reads it: an object of which nothing is told
    if isinstance(doc, dict):
        _check_head(doc.get("apiVersion"), doc.get("kind"), type_, api_version)
    fit = Fit()
    try:
        return msgspec.convert(fit.document(doc, shape_of(type_)), type_), fit.faults
    except (MisfitError, msgspec.ValidationError) as error:
        raise _unfit(type_, api_version, error) from None


def _finished(obj: T, type_: type[T], api_version: str) -> T:
    try:
        obj = settled(obj, shape_of(type_), _SETTLE)
    except MisfitError as misfit:
        raise _unfit(type_, api_version, misfit) from None
    if not api_version:
        return obj
    given, kind = getattr(obj, "api_version", ""), getattr(obj, "kind", "")
    if given == api_version and kind == type_.__name__:
        return obj
    _check_head(given, kind, type_, api_version)
    return replace(obj, api_version=api_version, kind=type_.__name__)


def _check_head(given: Any, kind: Any, type_: type[T], api_version: str) -> None:
    if not api_version:
        return
    if given and isinstance(given, str) and given != api_version:
        raise bad_request(
            f"the API version in the data ({given}) does not match the expected API version ({api_version})"
        )
    if kind and isinstance(kind, str) and kind != type_.__name__:
        why = f"converting (v1.{kind}) to (v1.{type_.__name__}): unknown conversion"
        raise _unfit(type_, api_version, why, kind=kind)


def _unfit(type_: type[T], api_version: str, why: object, kind: str = "") -> ApiError:
    version = api_version.rpartition("/")[2] or "v1"
    name = type_.__name__
    return bad_request(f'{kind or name} in version "{version}" cannot be handled as a {name}: {why}')


def _whole_second(moment: datetime) -> datetime:
    if moment.tzinfo is UTC and not moment.microsecond:
        return moment
    try:
        return moment.astimezone(UTC).replace(microsecond=0)
    except OverflowError:
        raise unreadable_time(moment.isoformat()) from None


def _six_decimals(text: str) -> str:
    try:
        moment = datetime.fromisoformat(text).astimezone(UTC)
    except (ValueError, OverflowError):
        raise unreadable_time(text) from None
    settled_text = f"{moment.isoformat(timespec='microseconds')[:26]}Z"
    return text if text == settled_text else settled_text


_SETTLE: dict[Sort, Settle] = {"time": _whole_second, "micro": _six_decimals}
