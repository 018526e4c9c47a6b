"""Typed validation of an applied configuration against its kind, with the messages of `structured-merge-diff/typed`.

`server_side_apply` calls `find_faults` before it merges. Stricter than decoding: an unknown field is a fault whatever
fieldValidation says, because no manager could own it.
"""

from typing import Any

from app.machinery.apply.field_ownership import path_element_of
from app.machinery.apply.field_sets import format_path as shown_path
from app.machinery.apply.topology import Topology
from app.machinery.errors import format_value
from app.machinery.shape import Field, Shape, Sort

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


def find_faults(document: dict[str, Any], shape: Shape, topology: Topology) -> list[str]:
    """Return at most `MOST_FAULTS` messages, each with its path; an empty list if the document can be merged."""
    walk = _TypedWalker()
    walk.check_value(document, shape, topology, "")
    return walk.faults[:MOST_FAULTS]


class _TypedWalker:
    def __init__(self) -> None:
        self.faults: list[str] = []

    def check_value(self, value: Any, shape: Shape, topology: Topology, path: str) -> None:
        if value is None or shape.sort == "any":
            return
        types, expected = _EXPECTED[shape.sort]
        found = dict if isinstance(value, dict) else type(value)  # exactly: to Python, a bool is an int
        if found not in types:
            detail = expected.format(value=format_value(value), go=_GO_TYPES.get(found, "map[string]interface {}"))
            self._note(path, f"expected {detail}")
        elif shape.sort == "struct":
            self._check_struct(value, shape, topology, path)
        elif shape.item is not None and shape.sort == "map":
            for key, each in value.items():
                self.check_value(each, shape.item, topology, f"{path}.{key}")
        elif shape.item is not None:
            for index, each in enumerate(value):
                self.check_value(each, shape.item, topology, f"{path}[{index}]")

    def _check_struct(self, value: dict[str, Any], shape: Shape, topology: Topology, path: str) -> None:
        for name, each in value.items():
            field, inner = shape.fields.get(name), f"{path}.{name}"
            if field is None:
                self._note(inner, "field not declared in schema")
                continue
            member = topology.members.get(name)
            below = member.topology if member else topology
            if below.sort in ("list", "set") and isinstance(each, list):
                self._check_elements(each, field, below, inner)
            else:
                self.check_value(each, field.shape, below, inner)

    def _check_elements(self, values: list[Any], field: Field, topology: Topology, path: str) -> None:
        seen = set()
        for index, each in enumerate(values):
            if why := _find_key_fault(each, topology):
                self._note(path, f"element {index}: {why}")
                return
            path_element = path_element_of(each, topology)
            if path_element in seen:
                self._note(path, f"duplicate entries for key {shown_path((path_element,))}")
            seen.add(path_element)
            self.check_value(
                each, field.shape.item or field.shape, topology.item or topology, path + shown_path((path_element,))
            )

    def _note(self, path: str, fault: str) -> None:
        self.faults.append(f"{path}: {fault}")


def _find_key_fault(element: Any, topology: Topology) -> str:
    """Return why an element of a list or set has no usable key; empty if it has one."""
    if topology.sort == "set":
        kinds_of_element = {dict: "an element that's a map type", type(None): "an element that's an explicit null"}
        if isinstance(element, list):
            return "not supported: associative list with lists as elements"
        found = kinds_of_element.get(type(element))
        return f"associative list without keys has {found}" if found else ""
    if element is None:
        return "associative list with keys may not have a null element"
    if not isinstance(element, dict):
        return "associative list with keys may not have non-map elements"
    for key, default in topology.keys:
        if key not in element and default is None:
            return (
                "associative list with keys has an element that omits key field "
                f'"{key}" (and doesn\'t have default value)'
            )
    return ""
