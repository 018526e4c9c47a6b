"""JSON patches (RFC 6902) and JSON merge patches (RFC 7386) on plain documents.

The API applies what clients PATCH with these, and with `strategic_merge_patch`. The document given is never changed. A
malformed patch is a 400; one that does not apply, such as a failed test, a 422, as in Kubernetes.
"""

import re
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from app.machinery.errors import ApiError, bad_request, shown

MOST_OPERATIONS = 10_000
MOST_COPIED = 3 * 1024 * 1024  # bytes that all copy operations of a patch together may add
DEEPEST = 100

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_BAD_ESCAPE = re.compile(r"~(?![01])")


def inapplicable(why: str) -> ApiError:
    """422: the patch is well-formed, but this document does not allow it."""
    cause = {"reason": "UnexpectedServerResponse", "message": why, "field": "patch"}
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", causes=[cause])


def not_an_object(patch: Any) -> ApiError:
    return bad_request(f"json: cannot unmarshal {_sort(patch)} into Go value of type map[string]interface {{}}")


def merge_patch(doc: dict[str, Any], patch: Any) -> dict[str, Any]:
    """The document with the patch merged in: objects key by key, all else replaced, null removes."""
    if not isinstance(patch, dict):
        raise not_an_object(patch)
    try:
        return _merged(doc, patch)
    except RecursionError:
        raise inapplicable("the document nests too deep") from None


def _merged(doc: Any, patch: dict[str, Any]) -> dict[str, Any]:
    result = dict(doc) if isinstance(doc, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _merged(result.get(key), value)
        else:
            result[key] = value
    return result


def _sort(value: Any) -> str:
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case str():
            return "string"
        case list():
            return "array"
    return "number" if isinstance(value, int | float) else "object"


def json_patch(doc: dict[str, Any], operations: Any) -> dict[str, Any]:
    """The document after all operations, in order; if one fails, none counts."""
    if not isinstance(operations, list):
        raise bad_request(f"json: cannot unmarshal {_sort(operations)} into Go value of type jsonpatch.Patch")
    if len(operations) > MOST_OPERATIONS:
        why = f"The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {len(operations)}"
        raise ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {why}")
    try:
        patched = _Patched(doc)
        for operation in operations:
            patched.apply(operation)
    except RecursionError:
        raise inapplicable("the document nests too deep") from None
    if not isinstance(patched.doc, dict):
        raise inapplicable(f"a patched object cannot be of type {_sort(patched.doc)}")
    return patched.doc


class _Patched:
    """A document of its own, changed in place by one operation after the other."""

    def __init__(self, doc: Any) -> None:
        self.doc, _ = _copy(doc)
        self._copied = 0

    def apply(self, operation: Any) -> None:
        if not isinstance(operation, dict):
            raise bad_request(f"json: cannot unmarshal {_sort(operation)} into Go value of type jsonpatch.Operation")
        name = operation.get("op")
        act = self._ACTS.get(name) if isinstance(name, str) else None
        if act is None:
            raise inapplicable(f"Unexpected kind: {name if isinstance(name, str) else 'unknown'}")
        act(self, operation, _pointer(operation, "path"))

    def _add(self, operation: dict[str, Any], path: list[str]) -> None:
        self._put(path, _copy(_value(operation))[0])

    def _remove(self, _: dict[str, Any], path: list[str]) -> None:
        self._take(path)

    def _replace(self, operation: dict[str, Any], path: list[str]) -> None:
        value, _ = _copy(_value(operation))
        if not path:
            self.doc = value
            return
        parent = self._find(path[:-1])
        parent[_existing(parent, path[-1], path)] = value

    def _move(self, operation: dict[str, Any], path: list[str]) -> None:
        source = _pointer(operation, "from")
        if path[: len(source)] == source:
            if path != source:
                raise inapplicable("a value cannot move into itself")
            self._find(source)
            return
        self._put(path, self._take(source))

    def _copy(self, operation: dict[str, Any], path: list[str]) -> None:
        value, size = _copy(self._find(_pointer(operation, "from")))
        self._copied += size
        if self._copied > MOST_COPIED:
            raise inapplicable(f"the copy operations add more than {MOST_COPIED} bytes")
        self._put(path, value)

    def _test(self, operation: dict[str, Any], path: list[str]) -> None:
        if not _equal(self._find(path), _value(operation)):
            raise inapplicable(f"testing value {_text(path)} failed")

    _ACTS: ClassVar[dict[str, Callable[["_Patched", dict[str, Any], list[str]], None]]] = {
        "add": _add,
        "remove": _remove,
        "replace": _replace,
        "move": _move,
        "copy": _copy,
        "test": _test,
    }

    def _find(self, path: list[str]) -> Any:
        found = self.doc
        for part in path:
            found = found[_existing(found, part, path)]
        return found

    def _take(self, path: list[str]) -> Any:
        if not path:
            raise inapplicable("the whole document cannot be removed")
        parent = self._find(path[:-1])
        key = _existing(parent, path[-1], path)  # first: what is no list or object has no `pop`
        return parent.pop(key)

    def _put(self, path: list[str], value: Any) -> None:
        """As add does: sets a key, or inserts before an index; - is the end of a list."""
        if not path:
            self.doc = value
            return
        parent = self._find(path[:-1])
        if isinstance(parent, list):
            last = path[-1]
            parent.insert(len(parent) if last == "-" else _index(last, len(parent) + 1, path), value)
        elif isinstance(parent, dict):
            parent[path[-1]] = value
        else:
            raise _missing(path)


def _pointer(operation: dict[str, Any], name: str) -> list[str]:
    text = operation.get(name)
    if not isinstance(text, str) or (text and text[0] != "/") or _BAD_ESCAPE.search(text):
        raise inapplicable(f"{name} of a JSON patch operation must be a JSON pointer: {shown(text)}")
    parts = [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]
    if len(parts) > DEEPEST:
        raise inapplicable("the document nests too deep")
    return parts


def _text(path: list[str]) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def _value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise inapplicable(f"a JSON patch operation {shown(operation['op'])} must have a value")
    return operation["value"]


def _missing(path: list[str]) -> ApiError:
    return inapplicable(f"path {_text(path)} does not exist")


def _existing(parent: Any, part: str, path: list[str]) -> Any:
    """The key or index that a part of the path stands for, which must be there."""
    if isinstance(parent, list):
        return _index(part, len(parent), path)
    if isinstance(parent, dict) and part in parent:
        return part
    raise _missing(path)


def _index(part: str, length: int, path: list[str]) -> int:
    if not _INDEX.fullmatch(part) or int(part) >= length:
        raise _missing(path)
    return int(part)


def _copy(value: Any) -> tuple[Any, int]:
    """A copy that shares nothing, and its size as JSON."""
    encoded = msgspec.json.encode(value)
    return msgspec.json.decode(encoded), len(encoded)


def _equal(one: Any, other: Any) -> bool:
    """As JSON sees it: 1 is 1.0, but not true."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equal, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
