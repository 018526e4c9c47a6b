"""Sets of fields, in the very form that `managedFields` have on the wire: a tree of marks.

A mark is `f:name` for a field, `k:{"name":"a"}` for a list's element by its keys, `v:"x"` for one by its value. What a
mark holds is in the set if it is empty or has a `.`; without a `.`, only what it holds is. The set itself is empty when
its root is. `field_ownership` makes sets, `managed_fields` and `server_side_apply` reckon with them. Sets are never changed.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from app.machinery.errors import ApiError
from app.machinery.json_document import parse

FieldSet = dict[str, Any]
Path = tuple[str, ...]

SELF = "."
_encode = msgspec.json.Encoder(order="sorted").encode


def field_mark(name: str) -> str:
    return f"f:{name}"


def key_mark(keys: Mapping[str, Any]) -> str:
    return f"k:{_encode(keys).decode()}"


def value_mark(value: Any) -> str:
    return f"v:{_encode(value).decode()}"


def with_self(inner: FieldSet) -> FieldSet:
    """What a mark holds when it is in the set itself, besides what is in `inner`."""
    return {SELF: {}, **inner} if inner else inner


def _holds_self(node: FieldSet) -> bool:
    return not node or SELF in node


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """Whatever is in one of the two."""
    if not one or not other:
        return one or other
    result = dict(one)
    for mark, node in other.items():
        result[mark] = _joined(result[mark], node) if mark in result else node
    return result


def _joined(one: FieldSet, other: FieldSet) -> FieldSet:
    if not one or not other:
        return with_self(one or other)
    return union(one, other)


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """What is in `one` and not in `other`. A parent goes without its children, and they without it."""
    if not other:
        return one
    result = {}
    for mark, node in one.items():
        if mark not in other:
            result[mark] = node
        elif mark != SELF:
            rest = difference({key: each for key, each in node.items() if key != SELF}, other[mark])
            is_in = _holds_self(node) and not _holds_self(other[mark])
            if rest or is_in:
                result[mark] = with_self(rest) if is_in else rest
    return result


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    """What is in both."""
    result = {}
    for mark, node in one.items():
        if mark == SELF or mark not in other:
            continue
        both = intersection(node, other[mark])
        is_in = _holds_self(node) and _holds_self(other[mark])
        if both or is_in:
            result[mark] = with_self(both) if is_in else both
    return result


def has(fields: FieldSet, path: Path) -> bool:
    for mark in path:
        if mark not in fields:
            return False
        fields = fields[mark]
    return _holds_self(fields)


def paths(fields: FieldSet, above: Path = ()) -> Iterator[Path]:
    """Everything in an ordered set: what is directly under a parent comes before what is deeper."""
    marks = [mark for mark in fields if mark != SELF]
    yield from ((*above, mark) for mark in marks if _holds_self(fields[mark]))
    for mark in marks:
        yield from paths(fields[mark], (*above, mark))


def ordered(fields: FieldSet) -> FieldSet:
    """The set as it is written: fields by name, elements by their keys or values, numbers as numbers."""
    marks = sorted(fields)
    if marks and marks[-1][0] in "kvi":
        marks.sort(key=_place)
    return {mark: ordered(fields[mark]) if fields[mark] else {} for mark in marks}


def _place(mark: str) -> tuple[int, Any]:
    sort = ".fkvi".index(mark[0])
    content = mark[2:]
    if sort < 2:
        return sort, content
    value = msgspec.json.decode(content)
    if sort == 2:
        return sort, [(key, _rank(each)) for key, each in value.items()]
    return sort, _rank(value)


def _rank(value: Any) -> tuple[int, Any]:
    match value:
        case bool():
            return 2, value
        case int() | float():
            return 0, value
        case str():
            return 1, value
    return 3, _encode(value)


def shown(path: Path) -> str:
    """A path as messages print it: .spec.containers[name="a"].image"""
    return "".join(map(_shown, path))


def _shown(mark: str) -> str:
    content = mark[2:]
    match mark[0]:
        case "f":
            return f".{content}"
        case "k":
            keys = msgspec.json.decode(content)
            return f"[{','.join(f'{key}={_encode(value).decode()}' for key, value in keys.items())}]"
        case "v":
            return f"[={content}]"
    return f"[{content}]"


def read(document: Any) -> FieldSet:
    """The set that a client wrote. Marks of an unknown sort are dropped; whatever is no set is a ValueError."""
    if not isinstance(document, dict):
        raise ValueError("a set of fields must be an object")
    found: FieldSet = {}
    for text, inner in document.items():
        mark = SELF if text == SELF else _read_mark(text)
        if mark is None:
            continue
        node = {} if mark == SELF else _read_node(inner)
        if node is not None:
            found[mark] = _joined(found[mark], node) if mark in found else node
    return found


def _read_node(document: Any) -> FieldSet | None:
    """None if nothing is left of what it held."""
    node = read(document)
    inner = {mark: each for mark, each in node.items() if mark != SELF}
    if SELF in node or not document:
        return with_self(inner)
    return inner or None


def _read_mark(text: str) -> str | None:
    """The mark as we would write it."""
    if text[1:2] != ":":
        raise ValueError(f"missing colon: {text}")
    content = text[2:]
    match text[0]:
        case "f":
            return text
        case "k":
            return key_mark(_keys(content))
        case "v":
            return value_mark(_value(content))
        case "i":
            return f"i:{int(content)}"
    return None


def _keys(content: str) -> dict[str, Any]:
    keys = _value(content)
    if not isinstance(keys, dict):
        raise ValueError(f"keys must be an object: {content}")
    return keys


def _value(content: str) -> Any:
    """What a client wrote into a mark: it may nest as deep as a body, not deeper."""
    try:
        return parse(content.encode())
    except ApiError as error:
        raise ValueError(error.message) from None
