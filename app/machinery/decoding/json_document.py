"""JSON documents: request bodies, checked and parsed into plain values.

`decode` and patches read bodies through this. An accepted body is UTF-8, nests no deeper than 100 levels, and holds no
NUL (Postgres cannot store one), no lone surrogate and no NaN; any other is a 400. More than 100,000 values are a 413,
because parsing them would block the event loop.
"""

import json
import re
from itertools import accumulate
from typing import Any, Literal

import msgspec

from app.machinery.errors import ApiError, bad_request

ContentType = Literal["json", "yaml"]

DEEPEST = 100
MOST_VALUES = 100_000
_START = 64 << 10  # bytes

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def malformed_error(why: object) -> ApiError:
    return bad_request(f"couldn't get version/kind; json parse error: {why}")


def to_json(body: bytes, content_type: ContentType) -> bytes:
    """Return the body as JSON within the limits above; well-formedness is checked by the parser later."""
    if content_type == "yaml":
        from app.machinery.decoding import yaml_document  # late: PyYAML takes a megabyte, and agents never need it

        body = encode(yaml_document.load(_decode_utf8(body)))
    elif not body.isascii():
        _decode_utf8(body)
    if b"\\u0000" in body and _NUL.search(body):
        raise malformed_error("strings may not contain NUL characters")
    if body.count(b",") >= MOST_VALUES:
        _check_commas(body)
    if body.count(b"{") + body.count(b"[") > DEEPEST:
        _check_brackets(_find_brackets(body[:_START]))  # hostile depth shows at the start: cheap before the full scan
        _check_brackets(_find_brackets(body))
    return body


def _too_many_values() -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MOST_VALUES} values")


def _check_commas(body: bytes) -> None:
    """Refuse too many commas outside of strings. One string at a time: a single long regex call would hold the GIL."""
    found = at = 0
    for string in _STRING.finditer(body):
        found += body.count(b",", at, string.start())
        at = string.end()
        if found >= MOST_VALUES:
            break
    if found + body.count(b",", at) >= MOST_VALUES:
        raise _too_many_values()


def _check_brackets(brackets: bytes) -> None:
    """Refuse too deep nesting, and too many objects and lists, which have two brackets each."""
    if _measure_depth(brackets[: 2 * MOST_VALUES]) > DEEPEST:
        raise malformed_error(f"exceeded max depth of {DEEPEST}")
    if len(brackets) > 2 * MOST_VALUES:
        raise _too_many_values()


def _decode_utf8(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise malformed_error(f"invalid UTF-8 at byte {error.start}") from None


def _measure_depth(brackets: bytes) -> int:
    """Return the nesting depth, or an upper bound within `DEEPEST`. Fast for the common body of many short values."""
    rest = brackets
    for rounds in range(DEEPEST // 2):
        if not rest:
            return 2 * rounds
        before, rest = rest, rest.replace(b"[]", b"").replace(b"{}", b"")  # removes one or two innermost levels
        if len(rest) == len(before):
            break  # mismatched brackets
    return next((depth for depth in accumulate(map(_STEP.__getitem__, brackets)) if depth > DEEPEST), DEEPEST)


def _find_brackets(body: bytes) -> bytes:
    """Return the brackets outside of strings."""
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(body.translate(None, _NOT_STRUCTURE).split(b'"')[::2])


def encode(value: Any) -> bytes:
    """Encode a plain value as JSON; 400 for a value that JSON cannot express."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise malformed_error(error) from None


def parse(body: bytes, content_type: ContentType = "json") -> Any:
    """Check and parse a body into a plain value, such as a patch."""
    return decode(to_json(body, content_type))


def decode(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise malformed_error(error) from None


class ObjectWithDuplicates(dict[str, Any]):
    """An object with duplicate keys; the last value of each counts. A duplicate key stands where it came for the second time."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__()
        self.duplicate_keys: dict[str, None] = {}  # in order
        for key, value in pairs:
            if key in self and key not in self.duplicate_keys:
                del self[key]
                self.duplicate_keys[key] = None
            self[key] = value


def has_duplicates(body: bytes, value: Any) -> bool:
    """Return whether the body has duplicate keys: then it has more colons than the value parsed from it."""
    again = encode(value)
    if b"\\u" not in body and body.count(b":") == again.count(b":"):
        return False  # colons within strings are in both
    return _STRING.sub(b"", body).count(b":") != _STRING.sub(b"", again).count(b":")


def decode_with_duplicates(body: bytes) -> Any:
    """As `decode`, but objects with duplicate keys become `ObjectWithDuplicates`. Several times slower."""
    decode(body)  # first: the stricter of the two parsers
    try:
        return json.loads(body.decode(), object_pairs_hook=_build_object)
    except (ValueError, RecursionError) as error:
        raise malformed_error(error) from None


def _build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else ObjectWithDuplicates(pairs)
