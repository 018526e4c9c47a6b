"""Checks of what a schema cannot say of one value alone: elements of sets and maps differ, embedded objects say what they are.

`checks` calls it for a whole object, where the schema has any of that. A list that was faulty before is not judged in an update.
"""

import re
from collections.abc import Callable, Iterator
from typing import Any

from app.machinery.custom.structural_schema import SchemaNode
from app.machinery.errors import Cause, duplicate, format_value, invalid, required
from app.machinery.name_validation import dns_label_1035

Finder = Callable[[Any, SchemaNode, str], Iterator[Cause]]


def find_list_causes(document: Any, root: SchemaNode) -> list[Cause]:
    """Return which elements of sets and maps occur twice."""
    return list(_walk(document, root, "", _check_list))


def find_embedded_causes(document: Any, root: SchemaNode) -> list[Cause]:
    """Return which embedded objects do not say what they are."""
    return list(_walk(document, root, "", _check_embedded))


def _walk(value: Any, node: SchemaNode, path: str, check: Finder) -> Iterator[Cause]:
    if not (node.has_keyed_lists or node.has_embedded):
        return
    yield from check(value, node, path)
    if isinstance(value, list) and node.items is not None:
        for index, each in enumerate(value):
            yield from _walk(each, node.items, f"{path}[{index}]", check)
    elif isinstance(value, dict):
        for name, each in value.items():
            if (below := node.properties.get(name)) is not None:
                yield from _walk(each, below, f"{path}.{name}" if path else name, check)
            elif node.additional is not None:
                yield from _walk(each, node.additional, f"{path}[{name}]", check)


def _check_list(value: Any, node: SchemaNode, path: str) -> Iterator[Cause]:
    if not isinstance(value, list) or node.list_type not in ("set", "map"):
        return
    if node.list_type == "map":
        for index, each in enumerate(value):
            if each is not None and not isinstance(each, dict):
                yield invalid(f"{path}[{index}]", each, "must be an object for an array of list-type map")
                return
    seen: dict[str, int] = {}
    for index, each in enumerate(value):
        identity = _keys_of(each, node) if node.list_type == "map" else each
        text = format_value(identity)
        seen[text] = seen.get(text, 0) + 1
        if seen[text] == 2:  # a third one is not told of
            yield duplicate(f"{path}[{index}]", identity)


def _keys_of(element: Any, node: SchemaNode) -> dict[str, Any]:
    return {key: element[key] for key in node.list_keys if key in element} if element else {}


def _check_embedded(value: Any, node: SchemaNode, path: str) -> Iterator[Cause]:
    if not node.embedded or not isinstance(value, dict):
        return
    for name, find_faults in (("apiVersion", _version_faults), ("kind", _kind_faults)):
        place, found = f"{path}.{name}", value.get(name)
        if name not in value:
            yield required(place)
        elif not isinstance(found, str):
            yield invalid(place, found, "must be a string")
        elif not found:
            yield invalid(place, found, "must not be empty")
        elif why := find_faults(found):
            yield invalid(place, found, why)


def _version_faults(version: str) -> str:
    return f"unexpected GroupVersion string: {version}" if version.count("/") > 1 else ""


def _kind_faults(kind: str) -> str:
    faults = dns_label_1035(re.sub("[A-Z]", lambda found: found[0].lower(), kind))
    return f"may have mixed case, but should otherwise match: {','.join(faults)}" if faults else ""
