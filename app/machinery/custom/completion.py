"""Completion of custom objects: unknown fields are pruned, nulls that mean nothing left out, defaults filled in.

Called where bodies and patches are decoded. Values are never changed in place: what comes out shares the parts that stay.
"""

from collections.abc import Mapping
from typing import Any

from app.machinery.custom.structural_schema import ABSENT, SchemaNode

MOST_FAULTS = 100
MOST_EXACT = 2**53  # whole numbers of which a float has each
_COMPLETE = frozenset({str, int, bool})  # nothing is added to values of these types, or taken from them
_EMBEDDED = frozenset({"apiVersion", "kind", "metadata"})


class Completion:
    """Completes one document. `unknown` collects the paths of the fields that were pruned.

    fills: whether defaults are filled in; without it fields are pruned, and nothing else.
    """

    def __init__(self, *, fills: bool = True) -> None:
        self.unknown: list[str] = []
        self._fills = fills

    def complete(self, value: Any, node: SchemaNode, path: str = "", *, keeps: bool = False) -> Any:
        """Return the value, completed. `keeps` says that a list around it keeps unknown fields."""
        keeps = keeps or node.preserves
        if isinstance(value, dict):
            return self._complete_object(value, node, path, keeps=keeps)
        if isinstance(value, list):
            return self._complete_list(value, node, path, keeps=keeps)
        if type(value) is float and value.is_integer() and abs(value) < MOST_EXACT:
            return int(value)  # 2.0 is written as 2
        return value

    def _complete_object(self, value: dict[str, Any], node: SchemaNode, path: str, *, keeps: bool) -> dict[str, Any]:
        completed = {}
        find, additional = node.properties.get, node.additional
        for name, each in value.items():
            below = find(name) or additional
            if below is not None and type(each) in _COMPLETE and not node.embedded:
                completed[name] = each
                continue
            inner = f"{path}.{name}" if path else name
            if node.embedded and name in _EMBEDDED:
                completed[name] = each
            elif below is not None:
                if each is not None or below.nullable or below.default is not ABSENT:
                    completed[name] = self._complete_value(each, below, inner)
            elif node.allows_additional:
                completed[name] = self._prune(each, inner)
            elif keeps:
                completed[name] = each
            else:
                self._note(inner)
        for name, below in node.defaults if self._fills else ():
            if name not in completed:
                completed[name] = _complete_default(below)
        return completed

    def _complete_list(self, value: list[Any], node: SchemaNode, path: str, *, keeps: bool) -> list[Any]:
        places = [(each, f"{path}[{index}]") for index, each in enumerate(value)]
        if node.items is not None:
            return [self._complete_value(each, node.items, inner, keeps=keeps) for each, inner in places]
        return value if keeps else [self._prune(each, inner) for each, inner in places]

    def _complete_value(self, value: Any, node: SchemaNode, path: str, *, keeps: bool = False) -> Any:
        """A null stands for the default where null is no value."""
        if self._fills and value is None and not node.nullable and node.default is not ABSENT:
            return _complete_default(node, keeps=keeps)
        return self.complete(value, node, path, keeps=keeps)

    def _prune(self, value: Any, path: str) -> Any:
        """Objects of which nothing is said lose everything."""
        if isinstance(value, list):
            return [self._prune(each, f"{path}[{index}]") for index, each in enumerate(value)]
        if not isinstance(value, dict):
            return value
        for name in value:
            self._note(f"{path}.{name}")
        return {}

    def _note(self, path: str) -> None:
        if len(self.unknown) < MOST_FAULTS:
            self.unknown.append(path)


def _complete_default(node: SchemaNode, *, keeps: bool = False) -> Any:
    """A default that is completed itself. What is pruned of it is no fault of the client's."""
    return Completion().complete(node.default, node, keeps=keeps)


def complete_content(document: Mapping[str, Any], root: SchemaNode) -> tuple[dict[str, Any], list[str]]:
    """Return the content of an object, completed, and the paths of its unknown fields. Type and metadata are left out."""
    completion = Completion()
    return _complete_content(document, root, completion), completion.unknown


def prune_content(document: Mapping[str, Any], root: SchemaNode) -> dict[str, Any]:
    """Return the content of an object without its unknown fields. Type and metadata are left out."""
    return _complete_content(document, root, Completion(fills=False))


def _complete_content(document: Mapping[str, Any], root: SchemaNode, completion: Completion) -> dict[str, Any]:
    content = {name: value for name, value in document.items() if name not in _EMBEDDED}
    completed = completion.complete(content, root)
    return {name: value for name, value in completed.items() if name not in _EMBEDDED}
