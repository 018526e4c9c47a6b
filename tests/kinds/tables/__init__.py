"""What is refused of Jobs and CronJobs, and why, as tables that read like a reference: what is wrong, field, message, manifest.

Used twice: on the kinds alone (`tests/kinds`), and over HTTP (`tests/conformance/test_validation`).
"""

from typing import Any, NamedTuple

from app.machinery.errors import Cause

REASONS = {
    "Required value": "FieldValueRequired",
    "Invalid value": "FieldValueInvalid",
    "Unsupported value": "FieldValueNotSupported",
    "Forbidden": "FieldValueForbidden",
    "Duplicate value": "FieldValueDuplicate",
    "Too long": "FieldValueTooLong",
    "Too many": "FieldValueTooMany",
}
IMMUTABLE = "field is immutable"
NEGATIVE = "Invalid value: -1: must be greater than or equal to 0"
INDEXED = {"completionMode": "Indexed", "completions": 10}

# Why a list of indexes is none, for a Job of ten.
BAD_INDEXES = {
    "1-2-3": 'the fragment "1-2-3" violates the requirement that an index interval can have at most two parts '
    "separated by '-'",
    "x": 'cannot convert string to integer for index: "x"',
    "1-10": 'too large index: "10"',
    "5,3": "non-increasing order, previous: 5, current: 3",
    "4-4": "non-increasing order, previous: 4, current: 4",
}


class Row(NamedTuple):
    """`sent`: parts of a manifest, as `tests.kinds.jobs.written` takes them; `before`: those of what it is to replace."""

    causes: tuple[Cause, ...]
    sent: dict[str, Any]
    before: dict[str, Any]


Table = dict[str, Row]


def cause(field: str, message: str) -> Cause:
    return Cause(REASONS[message.partition(":")[0]], message, field)


def row(field: str, message: str, /, *more: tuple[str, str], before: dict[str, Any] | None = None, **sent: Any) -> Row:
    """One cause, or more."""
    causes = (cause(field, message), *(cause(*each) for each in more))
    return Row(causes, sent, before or {})


def invalid(value: str, detail: str) -> str:
    """The message about a value, which is given as it is printed."""
    return f"Invalid value: {value}: {detail}"
