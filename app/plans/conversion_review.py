"""ConversionReview: what is sent to a conversion webhook, and how its response is read. Pure. Texts are Kubernetes'.

`app.registry.conversion` sends it. Objects are documents in JSON. A webhook may change all of an object but its identity; of the
metadata, what it says of labels and annotations counts, and the rest stays as it was.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from app.kinds.admission.webhook_defaults import REVIEW_VERSIONS
from app.machinery.errors import Cause
from app.machinery.meta.metadata_validation import validate_annotations, validate_labels

GROUP = "apiextensions.k8s.io"
_GO_TYPES = {dict: "map[string]interface {}", list: "[]interface {}", bool: "bool", int: "int64", float: "float64"}


class ConversionError(Exception):
    """A webhook has not converted. The message is what a client is told."""


class Wanted(NamedTuple):
    """What a webhook is asked for: the version of the review, its uid, and the apiVersion that objects shall have."""

    review_version: str
    uid: str
    api_version: str


class _Head(msgspec.Struct, rename={"api_version": "apiVersion"}):
    """The parts of an object that conversion compares."""

    api_version: str = ""
    kind: str = ""
    metadata: dict[str, Any] = msgspec.field(default_factory=dict)


class _Result(msgspec.Struct):
    status: str = ""
    message: str = ""


class _Response(msgspec.Struct, rename={"converted_objects": "convertedObjects"}):
    uid: str = ""
    result: _Result = msgspec.field(default_factory=_Result)
    converted_objects: list[msgspec.Raw] | None = None
    """Decoded one by one: of a whole page at once, no other thread could do anything."""


class _Review(msgspec.Struct, rename={"api_version": "apiVersion"}):
    api_version: str = ""
    kind: str = ""
    response: _Response | None = None


_decode_head = msgspec.json.Decoder(_Head).decode
_decode_review = msgspec.json.Decoder(_Review).decode
_decode_object = msgspec.json.Decoder(dict[str, Any]).decode


def choose_review_version(versions: Sequence[str]) -> str:
    """Return the version of ConversionReview to send: the first that is known."""
    for version in versions:
        if version in REVIEW_VERSIONS:
            return version
    raise ConversionError("no supported conversion review versions")


def encode_review(wanted: Wanted, originals: Sequence[bytes]) -> bytes:
    """Return the body of a call that asks for all of the objects."""
    objects = [msgspec.Raw(each) for each in originals]
    request = {"uid": wanted.uid, "desiredAPIVersion": wanted.api_version, "objects": objects}
    review = {"kind": "ConversionReview", "apiVersion": f"{GROUP}/{wanted.review_version}", "request": request}
    return msgspec.json.encode(review)


def read_response(wanted: Wanted, originals: Sequence[bytes], body: bytes) -> list[dict[str, Any]]:
    """Return the converted objects, in the order of the originals. Raises ConversionError."""
    heads = [_decode_head(each) for each in originals]
    prefix = f"conversion webhook for {describe_kind(heads[0].api_version, heads[0].kind)}"
    try:
        converted = _read_objects(wanted, body)
    except ConversionError as error:
        raise ConversionError(f"{prefix} failed: {error}") from None
    if len(converted) != len(originals):
        raise ConversionError(f"{prefix} returned {len(converted)} objects, expected {len(originals)}")
    is_list = len(originals) > 1
    made = []
    for index, (head, raw) in enumerate(zip(heads, converted, strict=True)):
        try:
            document = _read_object(raw)
            _check_type(wanted, head, document)
            _check_identity(head.metadata, document.get("metadata"))
        except _InvalidTypeError as error:
            what = f"invalid {'converted ' if is_list else ''}object at index {index}"
            raise ConversionError(f"{prefix} returned {what}: {error}") from None
        except ConversionError as error:
            what = f"invalid converted object at index {index}" if is_list else "invalid object"
            raise ConversionError(f"{prefix} returned {what}: {error}") from None
        try:
            made.append({**document, "metadata": _restore_metadata(head.metadata, document)})
        except ConversionError as error:
            where = f" in object at index {index}" if is_list else ""
            raise ConversionError(f"{prefix} returned invalid metadata{where}: {error}") from None
    return made


def describe_kind(api_version: str, kind: str) -> str:
    """Return a kind as Go's GroupVersionKind prints it."""
    return f"{api_version}, Kind={kind}"


def _read_objects(wanted: Wanted, body: bytes) -> list[msgspec.Raw]:
    try:
        review = _decode_review(body)
    except msgspec.MsgspecError as error:
        raise ConversionError(f"couldn't decode response: {error}") from None
    response, sent = review.response, f"{GROUP}/{wanted.review_version}"
    is_checked = wanted.review_version == "v1"  # v1beta1 does without
    if is_checked and (review.api_version, review.kind) != (sent, "ConversionReview"):
        expected, got = describe_kind(sent, "ConversionReview"), describe_kind(review.api_version, review.kind)
        raise ConversionError(f"expected webhook response of {expected}, got {got}")
    if response is None:
        raise ConversionError("no response provided")
    if is_checked and response.uid != wanted.uid:
        raise ConversionError(f'expected response.uid="{wanted.uid}", got "{response.uid}"')
    result = response.result
    if result.status != "Success":
        raise ConversionError(result.message or f"response.result.status was '{result.status}', not 'Success'")
    return response.converted_objects or []


# --- one object


def _read_object(raw: msgspec.Raw) -> dict[str, Any]:
    try:
        return _decode_object(raw)
    except msgspec.MsgspecError as error:
        raise ConversionError(f"couldn't decode it: {error}") from None


class _InvalidTypeError(ConversionError):
    """The object is of another version or kind than was asked for."""


def _check_type(wanted: Wanted, original: _Head, converted: Mapping[str, Any]) -> None:
    for word, expected, got in (
        ("groupVersion", wanted.api_version, converted.get("apiVersion", "")),
        ("kind", original.kind, converted.get("kind", "")),
    ):
        if expected != got:
            raise _InvalidTypeError(f"invalid {word} (expected {expected}, received {got})")


def _check_identity(original: Mapping[str, Any], converted: Any) -> None:
    given = converted if isinstance(converted, dict) else {}
    for field, word in (("name", "name"), ("namespace", "namespace"), ("uid", "UID")):
        expected, got = original.get(field, ""), given.get(field, "")
        if expected != got:
            raise ConversionError(f"must have the same {word}: {expected} != {got}")


def _restore_metadata(original: Mapping[str, Any], converted: Mapping[str, Any]) -> dict[str, Any]:
    """Return the original's metadata with the labels and annotations of the converted object."""
    if "metadata" not in converted:
        raise ConversionError("missing metadata in converted object")
    given = converted["metadata"]
    if not isinstance(given, dict):
        raise ConversionError(f"invalid metadata of type {_type_name(given)} in converted object")
    metadata = dict(original)
    for field in ("labels", "annotations"):
        values = given.get(field)
        if values is None:
            metadata.pop(field, None)
            continue
        _check_strings(field, values)
        if values != original.get(field, {}):
            _check_values(field, values)
        metadata[field] = values
    return metadata


def _check_strings(field: str, values: Any) -> None:
    if not isinstance(values, dict):
        raise ConversionError(f"invalid metadata.{field} of type {_type_name(values)} in converted object")
    for key, value in values.items():
        if not isinstance(value, str):
            raise ConversionError(
                f"metadata.{field}[{key}] must be a string, but is {_type_name(value)} in converted object"
            )


def _check_values(field: str, values: dict[str, str]) -> None:
    causes: list[Cause] = (
        list(validate_labels(values, "metadata.labels"))
        if field == "labels"
        else list(validate_annotations(values, "metadata.annotation"))
    )
    texts = [f"{each.field}: {each.message}" for each in causes]
    if texts:
        raise ConversionError(texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]")


def _type_name(value: Any) -> str:
    """Return the name of Go's type of a decoded value."""
    return "<nil>" if value is None else _GO_TYPES.get(type(value), "string")
