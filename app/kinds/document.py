"""From the bytes of a request to plain JSON values, whatever the bytes are.

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

from app.kinds.errors import ApiError, bad_request

ContentType = Literal["json", "yaml"]

DEEPEST = 100
MOST_VALUES = 100_000

_STRING = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"?', re.DOTALL)
_NUL = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_ESCAPE = re.compile(rb"\\.", re.DOTALL)
_NOT_STRUCTURE = bytes(set(range(256)) - set(b'[]{}"'))
_STEP = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}


def malformed(why: object) -> ApiError:
    return bad_request(f"couldn't get version/kind; json parse error: {why}")


def json_of(body: bytes, content_type: ContentType) -> bytes:
    """The body as checked JSON. Whether it is well-formed is left to those who parse it."""
    if content_type == "yaml":
        from app.kinds import yaml_document  # agents never need it, and it takes a megabyte

        body = encoded(yaml_document.load(_text(body)))
    elif not body.isascii():
        _text(body)
    if b"\\u0000" in body and _NUL.search(body):
        raise malformed("strings may not contain NUL characters")
    if body.count(b",") >= MOST_VALUES and _STRING.sub(b"", body).count(b",") >= MOST_VALUES:
        raise ApiError(413, "RequestEntityTooLarge", f"Request entity too large: limit is {MOST_VALUES} values")
    if body.count(b"{") + body.count(b"[") > DEEPEST and _depth(body) > DEEPEST:
        raise malformed(f"exceeded max depth of {DEEPEST}")
    return body


def _text(body: bytes) -> str:
    try:
        return body.decode()
    except UnicodeDecodeError as error:
        raise malformed(f"invalid UTF-8 at byte {error.start}") from None


def _depth(body: bytes) -> int:
    """How deep it nests, or a bound of that which is not too deep. Bodies of many short values are the common ones."""
    brackets = _brackets(body)
    rest = brackets
    for rounds in range(DEEPEST // 2):
        if not rest:
            return 2 * rounds
        rest = rest.replace(b"[]", b"").replace(b"{}", b"")  # one or two levels, from within
    return max(accumulate(map(_STEP.__getitem__, brackets)))


def _brackets(body: bytes) -> bytes:
    """Those outside of strings."""
    if b"\\" in body:
        body = _ESCAPE.sub(b"", body)
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
