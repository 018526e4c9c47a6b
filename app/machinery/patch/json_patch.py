"""JSON patches (RFC 6902) and JSON merge patches (RFC 7386) on plain documents.

The API's PATCH calls these, beside `strategic_merge_patch`. The given document is never changed. A malformed patch is a
400; a patch that does not apply, such as a failed test, a 422, as in apiserver's patch.go.
"""

import re
from collections.abc import Callable
from typing import Any, ClassVar

import msgspec

from app.machinery.errors import ApiError, bad_request, format_value

MOST_OPERATIONS = 10_000
MOST_COPIED = 3 * 1024 * 1024  # bytes that all copy operations of a patch together may add
DEEPEST = 100

_INDEX = re.compile(r"0|[1-9][0-9]{0,8}")
_BAD_ESCAPE = re.compile(r"~(?![01])")


def patch_error(why: str) -> ApiError:
    """422: the patch is well-formed, but this document does not allow it."""
    cause = {"reason": "UnexpectedServerResponse", "message": why, "field": "patch"}
    return ApiError(422, "Invalid", "the server rejected our request due to an error in our request", causes=[cause])


def not_an_object_error(patch: Any) -> ApiError:
    return bad_request(f"json: cannot unmarshal {_json_type(patch)} into Go value of type map[string]interface {{}}")


def apply_merge_patch(doc: dict[str, Any], patch: Any) -> dict[str, Any]:
    """Return the document with the patch merged in: objects key by key, everything else replaced, null removes."""
    if not isinstance(patch, dict):
        raise not_an_object_error(patch)
    try:
        return _merge(doc, patch)
    except RecursionError:
        raise patch_error("the document nests too deep") from None


def _merge(doc: Any, patch: dict[str, Any]) -> dict[str, Any]:
    result = dict(doc) if isinstance(doc, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            result[key] = _merge(result.get(key), value)
        else:
            result[key] = value
    return result


def _json_type(value: Any) -> str:
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


def apply_json_patch(doc: dict[str, Any], operations: Any) -> dict[str, Any]:
    """Return the document after all operations, in order; if one fails, none is applied."""
    if not isinstance(operations, list):
        raise bad_request(f"json: cannot unmarshal {_json_type(operations)} into Go value of type jsonpatch.Patch")
    if len(operations) > MOST_OPERATIONS:
        why = f"The allowed maximum operations in a JSON patch is {MOST_OPERATIONS}, got {len(operations)}"
        raise ApiError(413, "RequestEntityTooLarge", f"Request entity too large: {why}")
    try:
        patched = _PatchedDocument(doc)
        for operation in operations:
            patched.apply(operation)
    except RecursionError:
        raise patch_error("the document nests too deep") from None
    if not isinstance(patched.doc, dict):
        raise patch_error(f"a patched object cannot be of type {_json_type(patched.doc)}")
    return patched.doc


class _PatchedDocument:
    """A deep copy of the document, on which operations work in place."""

    def __init__(self, doc: Any) -> None:
        self.doc, _ = _deep_copy(doc)
        self._copied = 0

    def apply(self, operation: Any) -> None:
        if not isinstance(operation, dict):
            raise bad_request(
                f"json: cannot unmarshal {_json_type(operation)} into Go value of type jsonpatch.Operation"
            )
        name = operation.get("op")
        act = self._OPERATIONS.get(name) if isinstance(name, str) else None
        if act is None:
            raise patch_error(f"Unexpected kind: {name if isinstance(name, str) else 'unknown'}")
        act(self, operation, _parse_pointer(operation, "path"))

    def _add(self, operation: dict[str, Any], path: list[str]) -> None:
        self._put(path, _deep_copy(_require_value(operation))[0])

    def _remove(self, _: dict[str, Any], path: list[str]) -> None:
        self._take(path)

    def _replace(self, operation: dict[str, Any], path: list[str]) -> None:
        value, _ = _deep_copy(_require_value(operation))
        if not path:
            self.doc = value
            return
        parent = self._find(path[:-1])
        parent[_find_key(parent, path[-1], path)] = value

    def _move(self, operation: dict[str, Any], path: list[str]) -> None:
        source = _parse_pointer(operation, "from")
        if path[: len(source)] == source:
            if path != source:
                raise patch_error("a value cannot move into itself")
            self._find(source)
            return
        self._put(path, self._take(source))

    def _copy(self, operation: dict[str, Any], path: list[str]) -> None:
        value, size = _deep_copy(self._find(_parse_pointer(operation, "from")))
        self._copied += size
        if self._copied > MOST_COPIED:
            raise patch_error(f"the copy operations add more than {MOST_COPIED} bytes")
        self._put(path, value)

    def _test(self, operation: dict[str, Any], path: list[str]) -> None:
        if not _equals(self._find(path), _require_value(operation)):
            raise patch_error(f"testing value {_format_pointer(path)} failed")

    _OPERATIONS: ClassVar[dict[str, Callable[["_PatchedDocument", dict[str, Any], list[str]], None]]] = {
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
            found = found[_find_key(found, part, path)]
        return found

    def _take(self, path: list[str]) -> Any:
        if not path:
            raise patch_error("the whole document cannot be removed")
        parent = self._find(path[:-1])
        key = _find_key(parent, path[-1], path)  # first: it refuses a parent that is no list or object
        return parent.pop(key)

    def _put(self, path: list[str], value: Any) -> None:
        """Set a key, or insert before an index, as the operation add; - is the end of a list."""
        if not path:
            self.doc = value
            return
        parent = self._find(path[:-1])
        if isinstance(parent, list):
            last = path[-1]
            parent.insert(len(parent) if last == "-" else _parse_index(last, len(parent) + 1, path), value)
        elif isinstance(parent, dict):
            parent[path[-1]] = value
        else:
            raise _missing_path_error(path)


def _parse_pointer(operation: dict[str, Any], name: str) -> list[str]:
    text = operation.get(name)
    if not isinstance(text, str) or (text and text[0] != "/") or _BAD_ESCAPE.search(text):
        raise patch_error(f"{name} of a JSON patch operation must be a JSON pointer: {format_value(text)}")
    parts = [part.replace("~1", "/").replace("~0", "~") for part in text.split("/")[1:]]
    if len(parts) > DEEPEST:
        raise patch_error("the document nests too deep")
    return parts


def _format_pointer(path: list[str]) -> str:
    return "".join("/" + part.replace("~", "~0").replace("/", "~1") for part in path)


def _require_value(operation: dict[str, Any]) -> Any:
    if "value" not in operation:
        raise patch_error(f"a JSON patch operation {format_value(operation['op'])} must have a value")
    return operation["value"]


def _missing_path_error(path: list[str]) -> ApiError:
    return patch_error(f"path {_format_pointer(path)} does not exist")


def _find_key(parent: Any, part: str, path: list[str]) -> Any:
    """Return the key or index of a part of the path; 422 if it does not exist."""
    if isinstance(parent, list):
        return _parse_index(part, len(parent), path)
    if isinstance(parent, dict) and part in parent:
        return part
    raise _missing_path_error(path)


def _parse_index(part: str, length: int, path: list[str]) -> int:
    if not _INDEX.fullmatch(part) or int(part) >= length:
        raise _missing_path_error(path)
    return int(part)


def _deep_copy(value: Any) -> tuple[Any, int]:
    """Return a deep copy, and its size in bytes as JSON."""
    encoded = msgspec.json.encode(value)
    return msgspec.json.decode(encoded), len(encoded)


def _equals(one: Any, other: Any) -> bool:
    """Compare as JSON: 1 equals 1.0, but not true."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_equals(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_equals, one, other))
    return isinstance(one, bool) == isinstance(other, bool) and bool(one == other)
