"""API errors: field causes (apimachinery's `field.Error`), and the exception that becomes a `Status` on the wire.

Kinds and plans return causes; the registry raises `ApiError`; the API writes its `status`. Messages are those of
apimachinery's `field` and `api/errors` packages, because clients match on them.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

import msgspec


class Cause(NamedTuple):
    """One reason why an object is invalid: a StatusCause."""

    reason: str  # FieldValueInvalid, FieldValueRequired, ...
    message: str  # without the field: `Invalid value: -1: must be greater than or equal to 0`
    field: str  # spec.parallelism


def format_value(value: Any) -> str:
    """Format a value as field errors print it: numbers and booleans bare, strings quoted, the rest JSON."""
    return msgspec.json.encode(value, order="deterministic").decode()


def invalid(field: str, value: Any, detail: str) -> Cause:
    return Cause("FieldValueInvalid", f"Invalid value: {format_value(value)}: {detail}", field)


def required(field: str, detail: str = "") -> Cause:
    return Cause("FieldValueRequired", "Required value" + (f": {detail}" if detail else ""), field)


def not_supported(field: str, value: Any, supported: tuple[str, ...]) -> Cause:
    values = ", ".join(f'"{each}"' for each in supported)
    return Cause(
        "FieldValueNotSupported", f"Unsupported value: {format_value(value)}: supported values: {values}", field
    )


def one_of(field: str, value: str, supported: tuple[str, ...]) -> list[Cause]:
    """Return the causes of a value that is required and must be one of `supported`; an empty list if it is valid."""
    if not value:
        return [required(field)]
    return [] if value in supported else [not_supported(field, value, supported)]


def forbidden(field: str, detail: str) -> Cause:
    return Cause("FieldValueForbidden", f"Forbidden: {detail}", field)


def duplicate(field: str, value: Any) -> Cause:
    return Cause("FieldValueDuplicate", f"Duplicate value: {format_value(value)}", field)


def too_long(field: str, limit: int) -> Cause:
    return Cause("FieldValueTooLong", f"Too long: may not be more than {_count(limit, 'byte')}", field)


def too_many(field: str, count: int, limit: int) -> Cause:
    return Cause("FieldValueTooMany", f"Too many: {count}: must have at most {_count(limit, 'item')}", field)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


class ApiError(Exception):
    """A refused request, with everything that its `Status` object has.

    audit_annotations: what an audit log should note of the refusal, as in an audit event's `annotations`.
    """

    audit_annotations: Mapping[str, str] = {}

    def __init__(self, code: int, reason: str, message: str, **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = {name: value for name, value in details.items() if value not in ("", None, [])}

    def status(self) -> dict[str, Any]:
        """The wire form: meta/v1 Status."""
        body = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {},
            "status": "Failure",
            "message": self.message,
            "reason": self.reason,
            "details": self.details,
            "code": self.code,
        }
        return {name: value for name, value in body.items() if value or name == "metadata"}


def _split_resource(resource: str) -> tuple[str, str]:
    plural, _, group = resource.partition(".")
    return plural, group


def not_found(resource: str, name: str) -> ApiError:
    plural, group = _split_resource(resource)
    return ApiError(404, "NotFound", f'{resource} "{name}" not found', name=name, group=group, kind=plural)


def already_exists(resource: str, name: str) -> ApiError:
    plural, group = _split_resource(resource)
    return ApiError(409, "AlreadyExists", f'{resource} "{name}" already exists', name=name, group=group, kind=plural)


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def conflict(resource: str, name: str, why: str = STALE) -> ApiError:
    plural, group = _split_resource(resource)
    message = f'Operation cannot be fulfilled on {resource} "{name}": {why}'
    return ApiError(409, "Conflict", message, name=name, group=group, kind=plural)


def forbidden_error(resource: str, name: str, why: str, **details: Any) -> ApiError:
    """403 Forbidden, as apimachinery's NewForbidden."""
    plural, group = _split_resource(resource)
    message = f'{resource} "{name}" is forbidden: {why}' if name else f"{resource} is forbidden: {why}"
    return ApiError(403, "Forbidden", message, name=name, group=group, kind=plural, **details)


def unprocessable(kind: str, group: str, name: str, causes: list[Cause]) -> ApiError:
    """422 Invalid, as apimachinery's NewInvalid: one message with every distinct cause, and each cause in the details."""
    texts = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in causes))
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    full = f"{kind}.{group}" if group else kind
    return ApiError(
        422,
        "Invalid",
        f'{full} "{name}" is invalid: {listed}',
        name=name,
        group=group,
        kind=kind,
        causes=[cause._asdict() for cause in causes],
    )


def bad_request(message: str) -> ApiError:
    return ApiError(400, "BadRequest", message)


def gone(message: str) -> ApiError:
    return ApiError(410, "Expired", message)
