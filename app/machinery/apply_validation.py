"""Validation of an applied configuration against its kind, in the words of Kubernetes' structured merges.

`server_side_apply` asks before it merges. Stricter than decoding: an unknown field is a fault, whatever fieldValidation
says, as nobody could own it.
"""

from typing import Any

from app.machinery.errors import shown
from app.machinery.field_ownership import mark_of
from app.machinery.field_sets import shown as shown_path
from app.machinery.shape import Field, Shape, Sort
from app.machinery.topology import Topology

MOST_FAULTS = 100

_GO_TYPES = {str: "string", bool: "bool", int: "int64", float: "float64", list: "[]interface {}"}
_EXPECTED: dict[Sort, tuple[tuple[type, ...], str]] = {
    "string": ((str,), "string, got &value.valueUnstructured{{Value:{value}}}"),
    "bytes": ((str,), "string, got &value.valueUnstructured{{Value:{value}}}"),
    "time": ((str,), "string, got &value.valueUnstructured{{Value:{value}}}"),
    "micro": ((str,), "string, got &value.valueUnstructured{{Value:{value}}}"),
    "integer": ((int, float), "numeric (int or float), got {go}"),
    "number": ((int, float), "numeric (int or float), got {go}"),
    "bool": ((bool,), "boolean, got &{{{value}}}"),
    "quantity": ((str, int, float, bool), "any scalar, got &{{{value}}}"),
    "either": ((str, int, float, bool), "any scalar, got &{{{value}}}"),
    "struct": ((dict,), "map, got &{{{value}}}"),
    "map": ((dict,), "map, got &{{{value}}}"),
    "list": ((list,), "list, got &{{{value}}}"),
}


def faults(document: dict[str, Any], shape: Shape, topology: Topology) -> list[str]:
    """What does not fit, each with its path. None: the document can be merged into an object."""
    walk = _Walk()
    walk.value(document, shape, topology, "")
    return walk.faults[:MOST_FAULTS]


class _Walk:
    def __init__(self) -> None:
        self.faults: list[str] = []

    def value(self, value: Any, shape: Shape, topology: Topology, path: str) -> None:
        if value is None or shape.sort == "any":
            return
        types, expected = _EXPECTED[shape.sort]
        found = dict if isinstance(value, dict) else type(value)  # exactly: to Python, a bool is an int
        if found not in types:
            told = expected.format(value=shown(value), go=_GO_TYPES.get(found, "map[string]interface {}"))
            self._note(path, f"expected {told}")
        elif shape.sort == "struct":
            self._struct(value, shape, topology, path)
        elif shape.item is not None and shape.sort == "map":
            for key, each in value.items():
                self.value(each, shape.item, topology, f"{path}.{key}")
        elif shape.item is not None:
            for index, each in enumerate(value):
                self.value(each, shape.item, topology, f"{path}[{index}]")

    def _struct(self, value: dict[str, Any], shape: Shape, topology: Topology, path: str) -> None:
        for name, each in value.items():
            field, inner = shape.fields.get(name), f"{path}.{name}"
            if field is None:
                self._note(inner, "field not declared in schema")
                continue
            member = topology.members.get(name)
            below = member.topology if member else topology
            if below.sort in ("list", "set") and isinstance(each, list):
                self._elements(each, field, below, inner)
            else:
                self.value(each, field.shape, below, inner)

    def _elements(self, values: list[Any], field: Field, topology: Topology, path: str) -> None:
        seen = set()
        for index, each in enumerate(values):
            if why := _unidentified(each, topology):
                self._note(path, f"element {index}: {why}")
                return
            mark = mark_of(each, topology)
            if mark in seen:
                self._note(path, f"duplicate entries for key {shown_path((mark,))}")
            seen.add(mark)
            self.value(each, field.shape.item or field.shape, topology.item or topology, path + shown_path((mark,)))

    def _note(self, path: str, fault: str) -> None:
        self.faults.append(f"{path}: {fault}")


def _unidentified(element: Any, topology: Topology) -> str:
    """Why an element of a list or set cannot be told from others; empty if it can."""
    if topology.sort == "set":
        sort = {dict: "an element that's a map type", type(None): "an element that's an explicit null"}
        if isinstance(element, list):
            return "not supported: associative list with lists as elements"
        told = sort.get(type(element))
        return f"associative list without keys has {told}" if told else ""
    if element is None:
        return "associative list with keys may not have a null element"
    if not isinstance(element, dict):
        return "associative list with keys may not have non-map elements"
    for key, stand_in in topology.keys:
        if key not in element and stand_in is None:
            return (
                "associative list with keys has an element that omits key field "
                f'"{key}" (and doesn\'t have default value)'
            )
    return ""
