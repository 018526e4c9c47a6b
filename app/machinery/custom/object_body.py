"""Bodies of objects of any kind: structs by `app.machinery.decoding`, custom objects by their schema.

The API calls `decode_body` for what clients send, and `convert_document` for what patches and server-side apply make.
"""

from typing import Any, NamedTuple

import msgspec

from app.machinery.base import Kind, Object, ObjectMeta
from app.machinery.custom.completion import MOST_FAULTS, complete_content
from app.machinery.custom.custom_object import CustomObject
from app.machinery.decoding import decode, json_document
from app.machinery.decoding.decode import Decoded, Validation
from app.machinery.decoding.json_document import ContentType
from app.machinery.decoding.strict_decoding import Converter
from app.machinery.errors import ApiError, bad_request
from app.machinery.shape import ANY


class _Envelope(msgspec.Struct):
    """The part of a custom object that is typed."""

    metadata: ObjectMeta = msgspec.field(default_factory=ObjectMeta)


class _Sent(NamedTuple):
    """A custom object as it was sent: its document, and the duplicate fields in it."""

    document: Any
    duplicates: list[str]


def is_custom(kind: Kind[Any]) -> bool:
    type_: type = kind.type
    return issubclass(type_, CustomObject)


def decode_body(kind: Kind[Any], body: bytes, content_type: ContentType, validation: Validation) -> Decoded[Any]:
    """Decode the body of a create or update; 400 if it is no object of the kind."""
    if not is_custom(kind):
        decoded: Decoded[Any] = decode.decode(
            body, kind.type, api_version=kind.api_version, content_type=content_type, validation=validation
        )
        return _with_unknown_fields(kind, decoded, validation)
    checked = json_document.to_json(body, content_type)
    plain = json_document.decode(checked)
    if validation == "Ignore" or not json_document.has_duplicates(checked, plain):
        return _complete(kind, _Sent(plain, []), validation)
    return _complete(kind, _note_duplicates(json_document.decode_with_duplicates(checked)), validation)


def convert_document(kind: Kind[Any], document: Any, validation: Validation = "Ignore") -> Decoded[Any]:
    """Convert a plain document by the rules of `decode_body`."""
    if not is_custom(kind):
        decoded: Decoded[Any] = decode.convert(document, kind.type, api_version=kind.api_version, validation=validation)
        return _with_unknown_fields(kind, decoded, validation)
    return _complete(kind, _Sent(json_document.decode(json_document.encode(document)), []), validation)


def _with_unknown_fields(kind: Kind[Any], decoded: Decoded[Any], validation: Validation) -> Decoded[Any]:
    """Add the unknown fields that the kind finds itself: a warning each, or the 400 if validation is Strict."""
    if validation == "Ignore":
        return decoded
    found = [f'unknown field "{path}"' for path in kind.unknown_fields(decoded.object)[:MOST_FAULTS]]
    if found and validation == "Strict":
        raise _decode_error(kind, f"strict decoding error: {', '.join(found)}")
    return Decoded(decoded.object, [*decoded.warnings, *found]) if found else decoded


def _note_duplicates(plain: Any) -> _Sent:
    """A document of plain objects, and which of its fields were there twice."""
    fit = Converter()
    return _Sent(fit.convert_document(plain, ANY), fit.faults)


def _complete(kind: Kind[Any], sent: _Sent, validation: Validation) -> Decoded[Any]:
    _check_type(kind, sent.document)
    envelope = _decode_metadata(kind, sent.document.get("metadata"))
    content, unknown = complete_content(sent.document, kind.type.structural_schema.root)
    faults = [*sent.duplicates, *(f'unknown field "{path}"' for path in unknown), *envelope.warnings][:MOST_FAULTS]
    if faults and validation == "Strict":
        raise _decode_error(kind, f"strict decoding error: {', '.join(faults)}")
    obj: Object = kind.type(
        api_version=kind.api_version,
        kind=sent.document["kind"],
        metadata=envelope.object.metadata,
        content=content,
    )
    return Decoded(obj, faults if validation == "Warn" else [])


def _check_type(kind: Kind[Any], plain: Any) -> None:
    """Check that the document says what it is. Another kind is refused when the object is validated, with 422."""
    if not isinstance(plain, dict):
        raise bad_request("couldn't get version/kind; json parse error: an object is expected")
    version, name = plain.get("apiVersion"), plain.get("kind")
    if not (name and isinstance(name, str)):
        raise bad_request(f"Object 'Kind' is missing in '{json_document.encode(plain).decode()[:1000]}'")
    if version and version != kind.api_version:
        raise bad_request(
            f"the API version in the data ({version}) does not match the expected API version ({kind.api_version})"
        )


def _decode_metadata(kind: Kind[Any], metadata: Any) -> Decoded[_Envelope]:
    document = {"metadata": metadata}
    try:
        return decode.convert_fitting(document, _Envelope) or decode.convert(document, _Envelope, validation="Warn")
    except ApiError as error:
        raise _decode_error(kind, error.message.rpartition("cannot be handled as a _Envelope: ")[2]) from None


def _decode_error(kind: Kind[Any], why: str) -> ApiError:
    return bad_request(f'{kind.name} in version "{kind.version}" cannot be handled as a {kind.name}: {why}')
