"""JSON documents: from the bytes of a request to plain values, whatever the bytes are.

`decode` and patches read bodies through this. A body that comes out is UTF-8, nests no deeper than 100 levels, and
holds no NUL (Postgres cannot store one), no lone surrogate, no NaN. What is wrong with another is said in a 400; one
of more than 100,000 values is a 413, because it would hold up everybody else.
"""

import json
import re
from collections import Counter
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


def malformed(why: object) -> ApiError:
    return bad_request(f"couldn't get version/kind; json parse error: {why}")


def json_of(body: bytes, content_type: ContentType) -> bytes:
    """The body as checked JSON. Whether it is well-formed is left to those who parse it."""
    if content_type == "yaml":
        from app.machinery import yaml_document  # agents never need it, and it takes a megabyte

        body = encoded(yaml_document.load(_text(body)))
    elif not body.isascii():
        _text(body)
    if b"\\u0000" in body and _NUL.search(body):
        raise malformed("strings may not contain NUL characters")
    if body.count(b",") >= MOST_VALUES:
        _check_commas(body)
    if body.count(b"{") + body.count(b"[") > DEEPEST:
        _check_brackets(_brackets(body[:_START]))  # what is too deep is so at once: the rest need not be looked at
        _check_brackets(_brackets(body))
    return body


def _too_many() -> ApiError:
    return ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MOST_VALUES} values")


def _check_commas(body: bytes) -> None:
    """Refuse too many commas outside of strings, one string after the other: a single long call would hold up every thread."""
    found = at = 0
    for string in _STRING.finditer(body):
        found += body.count(b",", at, string.start())
        at = string.end()
        if found >= MOST_VALUES:
            break
    if found + body.count(b",", at) >= MOST_VALUES:
        raise _too_many()


def _check_brackets(brackets: bytes) -> None:
    """Objects and lists are values, too, and each has two brackets."""
    if _depth(brackets[: 2 * MOST_VALUES]) > DEEPEST:
        raise malformed(f"exceeded max depth of {DEEPEST}")
    if len(brackets) > 2 * MOST_VALUES:
        raise _too_many()


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise malformed(f"invalid UTF-8 at byte {error.start}") from None


def _depth(brackets: bytes) -> int:
    """Depth of nesting, or a bound of it that is not too deep. Bodies of many short values are the common ones."""
    rest = brackets
    for rounds in range(DEEPEST // 2):
        if not rest:
            return 2 * rounds
        before, rest = rest, rest.replace(b"[]", b"").replace(b"{}", b"")  # one or two levels, from within
        if len(rest) == len(before):
            break  # they do not match
    return next((depth for depth in accumulate(map(_STEP.__getitem__, brackets)) if depth > DEEPEST), DEEPEST)


def _brackets(body: bytes) -> bytes:
    """Those outside of strings."""
    if b"\\" in body:
        body = body.replace(b"\\\\", b"").replace(b'\\"', b"")
    return b"".join(body.translate(None, _NOT_STRUCTURE).split(b'"')[::2])


def encoded(value: Any) -> bytes:
    """The JSON of a plain value. Not everything that Python holds has one."""
    try:
        return msgspec.json.encode(value)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise malformed(error) from None


def parse(body: bytes, content_type: ContentType = "json") -> Any:
    """The plain value in a body: what patches are made of."""
    return value_of(json_of(body, content_type))


def value_of(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise malformed(error) from None


class Repeating(dict[str, Any]):
    """An object in which some keys came more than once; the last of each counts."""

    def __init__(self, pairs: list[tuple[str, Any]]) -> None:
        super().__init__(pairs)
        counts = Counter(key for key, _ in pairs)
        self.repeated = [key for key, count in counts.items() if count > 1]


def has_duplicates(body: bytes, value: Any) -> bool:
    """Whether some key of the body came more than once: then it has more colons than the value that was read from it."""
    again = encoded(value)
    if b"\\u" not in body and body.count(b":") == again.count(b":"):
        return False  # colons within strings, too, are in both
    return _STRING.sub(b"", body).count(b":") != _STRING.sub(b"", again).count(b":")


def value_with_duplicates(body: bytes) -> Any:
    """As `value_of`, but objects with duplicate keys are `Repeating`. Several times slower."""
    value_of(body)  # the stricter parser of the two has to be content first
    try:
        return json.loads(body.decode(), object_pairs_hook=_object)
    except (ValueError, RecursionError) as error:
        raise malformed(error) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    return found if len(found) == len(pairs) else Repeating(pairs)
