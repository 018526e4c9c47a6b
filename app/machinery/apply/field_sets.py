"""Field sets (FieldsV1): trees of path elements, in the form that `managedFields` has on the wire.

A path element is `f:name` for a field, `k:{"name":"a"}` for a list element by its keys, `v:"x"` for one by its value. A node
is itself a member of the set if it is empty or has a `.`; without a `.`, only its children are members. `field_ownership`
makes sets; `managed_fields` and `server_side_apply` compute with them. Sets are never changed in place.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from app.machinery.decoding.json_document import parse
from app.machinery.errors import ApiError

FieldSet = dict[str, Any]
Path = tuple[str, ...]

SELF = "."
NO_CHILDREN: FieldSet = {}
"""The node of a leaf. One for all: a new Job has thirty leaves, and its field set is kept as long as the Job."""
_encode = msgspec.json.Encoder(order="sorted").encode


def field_path_element(name: str) -> str:
    return f"f:{name}"


def key_path_element(keys: Mapping[str, Any]) -> str:
    return f"k:{_encode(keys).decode()}"


def value_path_element(value: Any) -> str:
    return f"v:{_encode(value).decode()}"


def with_self(inner: FieldSet) -> FieldSet:
    """Return the node of a path element that is itself a member, with these children."""
    return {SELF: NO_CHILDREN, **inner} if inner else inner


def _holds_self(node: FieldSet) -> bool:
    return not node or SELF in node


def union(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the members of either set."""
    if not one or not other:
        return one or other
    result = dict(one)
    for path_element, node in other.items():
        result[path_element] = _union_nodes(result[path_element], node) if path_element in result else node
    return result


def _union_nodes(one: FieldSet, other: FieldSet) -> FieldSet:
    if not one or not other:
        return with_self(one or other)
    return union(one, other)


def difference(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the members of `one` that are not in `other`. Parents and children are removed independently."""
    if not other:
        return one
    result = {}
    for path_element, node in one.items():
        if path_element not in other:
            result[path_element] = node
        elif path_element != SELF:
            rest = difference({key: each for key, each in node.items() if key != SELF}, other[path_element])
            is_in = _holds_self(node) and not _holds_self(other[path_element])
            if rest or is_in:
                result[path_element] = with_self(rest) if is_in else rest
    return result


def intersection(one: FieldSet, other: FieldSet) -> FieldSet:
    """Return the members of both sets."""
    result = {}
    for path_element, node in one.items():
        if path_element == SELF or path_element not in other:
            continue
        both = intersection(node, other[path_element])
        is_in = _holds_self(node) and _holds_self(other[path_element])
        if both or is_in:
            result[path_element] = with_self(both) if is_in else both
    return result


def has(fields: FieldSet, path: Path) -> bool:
    for path_element in path:
        if path_element not in fields:
            return False
        fields = fields[path_element]
    return _holds_self(fields)


def iterate_paths(fields: FieldSet, above: Path = ()) -> Iterator[Path]:
    """Yield the path of every member of a sorted set, direct children of a parent before deeper ones."""
    path_elements = [path_element for path_element in fields if path_element != SELF]
    yield from ((*above, path_element) for path_element in path_elements if _holds_self(fields[path_element]))
    for path_element in path_elements:
        yield from iterate_paths(fields[path_element], (*above, path_element))


def sort_fields(fields: FieldSet) -> FieldSet:
    """Return the set in wire order: fields by name, elements by their keys or values, numbers as numbers."""
    path_elements = sorted(fields)
    if path_elements and path_elements[-1][0] in "kvi":
        path_elements.sort(key=_sort_key)
    return {
        path_element: sort_fields(fields[path_element]) if fields[path_element] else NO_CHILDREN
        for path_element in path_elements
    }


def _sort_key(path_element: str) -> tuple[int, Any]:
    sort = ".fkvi".index(path_element[0])
    content = path_element[2:]
    if sort < 2:
        return sort, content
    value = msgspec.json.decode(content)
    if sort == 2:
        return sort, [(key, _value_sort_key(each)) for key, each in value.items()]
    return sort, _value_sort_key(value)


def _value_sort_key(value: Any) -> tuple[int, Any]:
    match value:
        case bool():
            return 2, value
        case int() | float():
            return 0, value
        case str():
            return 1, value
    return 3, _encode(value)


def format_path(path: Path) -> str:
    """Format a path as conflict messages print it: .spec.containers[name="a"].image"""
    return "".join(map(_format_path_element, path))


def _format_path_element(path_element: str) -> str:
    content = path_element[2:]
    match path_element[0]:
        case "f":
            return f".{content}"
        case "k":
            keys = msgspec.json.decode(content)
            return f"[{','.join(f'{key}={_encode(value).decode()}' for key, value in keys.items())}]"
        case "v":
            return f"[={content}]"
    return f"[{content}]"


def parse_field_set(document: Any) -> FieldSet:
    """Parse FieldsV1 from a client. Unknown kinds of path elements are dropped; ValueError for anything that is no set."""
    if not isinstance(document, dict):
        raise ValueError("a set of fields must be an object")
    found: FieldSet = {}
    for text, inner in document.items():
        path_element = SELF if text == SELF else _parse_path_element(text)
        if path_element is None:
            continue
        node = {} if path_element == SELF else _parse_node(inner)
        if node is not None:
            found[path_element] = _union_nodes(found[path_element], node) if path_element in found else node
    return found


def _parse_node(document: Any) -> FieldSet | None:
    """None if all of its children were dropped."""
    node = parse_field_set(document)
    inner = {path_element: each for path_element, each in node.items() if path_element != SELF}
    if SELF in node or not document:
        return with_self(inner)
    return inner or None


def _parse_path_element(text: str) -> str | None:
    """Return the path element in canonical form; None for an unknown kind."""
    if text[1:2] != ":":
        raise ValueError(f"missing colon: {text}")
    content = text[2:]
    match text[0]:
        case "f":
            return text
        case "k":
            return key_path_element(_parse_keys(content))
        case "v":
            return value_path_element(_parse_value(content))
        case "i":
            return f"i:{int(content)}"
    return None


def _parse_keys(content: str) -> dict[str, Any]:
    keys = _parse_value(content)
    if not isinstance(keys, dict):
        raise ValueError(f"keys must be an object: {content}")
    return keys


def _parse_value(content: str) -> Any:
    """Parse the JSON in a path element, with the limits of a request body."""
    try:
        return parse(content.encode())
    except ApiError as error:
        raise ValueError(error.message) from None
