"""Correlation of an object with the one before it: which old value a new one is compared with, and whether both are the same.

`checks` and `rules` do not judge again what did not change (Kubernetes' ratcheting). Only what a schema describes is
compared, and of lists only those that are maps, by the keys of their elements.
"""

from typing import Any

from app.machinery.custom.structural_schema import ABSENT, SchemaNode


def is_same(value: Any, old: Any, node: SchemaNode) -> bool:
    """Return whether a value is as before. Elements of a map may be in another order; a field that no schema describes is new."""
    if isinstance(value, dict) and isinstance(old, dict):
        return len(value) == len(old) and all(_is_same_field(name, value, old, node) for name in value)
    if isinstance(value, list) and isinstance(old, list) and node.list_type == "map" and node.items is not None:
        if len(value) != len(old):
            return False
        before = elements_by_key(old, node)
        pairs = [(each, old_element(each, before, node)) for each in value]
        return all(other is not ABSENT and is_same(each, other, node.items) for each, other in pairs)
    return is_same_json(value, old)


def _is_same_field(name: str, value: dict[str, Any], old: dict[str, Any], node: SchemaNode) -> bool:
    below = node.properties.get(name) or node.additional
    return below is not None and name in old and is_same(value[name], old[name], below)


def is_same_json(one: Any, other: Any) -> bool:
    """Return whether two values are the same in JSON: true is not 1."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(is_same_json(each, other[name]) for name, each in one.items())
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(is_same_json, one, other))
    return bool(one == other)


def field_of(old: Any, name: str) -> Any:
    """The value that a field had; ABSENT if there was none."""
    return old.get(name, ABSENT) if isinstance(old, dict) else ABSENT


def elements_by_key(old: Any, node: SchemaNode) -> dict[Any, Any]:
    """The old elements that new ones are compared with: only those of a map can be told apart. The first of equals counts."""
    if node.list_type != "map" or not isinstance(old, list):
        return {}
    found: dict[Any, Any] = {}
    for each in old:
        key = _key_of(each, node)
        if key is not None:
            found.setdefault(key, each)
    return found


def old_element(element: Any, before: dict[Any, Any], node: SchemaNode) -> Any:
    """The old element of the same key; ABSENT if there was none."""
    return before.get(_key_of(element, node), ABSENT) if before else ABSENT


def _key_of(element: Any, node: SchemaNode) -> Any:
    """What tells an element from others; None if a key is missing or no scalar."""
    values = [element.get(key) for key in node.list_keys] if isinstance(element, dict) else [None]
    if any(not isinstance(each, str | int | float) for each in values):
        return None
    return tuple((type(each), each) for each in values)
