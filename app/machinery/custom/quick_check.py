"""Quick check: whether a value fits its schema, without a word on why it does not. Most objects fit: `checks` asks this first.

A schema is compiled into one function for each node. What such a function does not know, it leaves to the given slow check,
or says no: then `checks` looks again, and finds the causes, or none.
"""

from collections.abc import Callable, Mapping
from typing import Any

from app.machinery.custom.formats import INTEGER_RANGES
from app.machinery.custom.patterns import PatternError, compile_pattern
from app.machinery.custom.structural_schema import SchemaNode

Fits = Callable[[Any], bool]
SlowCheck = Callable[[Any, SchemaNode], bool]
_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,),
    "boolean": (bool,),
    "integer": (int,),
    "number": (int, float),
    "object": (dict,),
    "array": (list,),
}
_LIMITS = {
    "string": {"maxLength", "minLength", "pattern", "enum"},
    "integer": {"minimum", "maximum"},
    "number": {"minimum", "maximum"},
    "object": set[str](),
    "array": {"minItems", "maxItems"},
}
_LIMITING = frozenset(
    {"enum", "maxLength", "minLength", "pattern", "multipleOf", "minimum", "maximum", "exclusiveMinimum"}
    | {"exclusiveMaximum", "minItems", "maxItems", "minProperties", "maxProperties"}
)


def compile_quick_check(node: SchemaNode, slow: SlowCheck) -> Fits:
    """Compile the check of a schema. `slow` tells whether a value fits a part of it, but for elements of lists that differ."""
    if node.embedded or (_is_unusual(node) and (node.has_keyed_lists or node.has_embedded)):
        return lambda _: False
    if _is_unusual(node):
        return lambda value: slow(value, node)
    fits = _COMPILERS[node.types[0]](node, slow)
    types, nullable = _TYPES[node.types[0]], node.nullable and "enum" not in node.document
    return lambda value: fits(value) if type(value) in types else value is None and nullable


def _is_unusual(node: SchemaNode) -> bool:
    """Return whether a node says more than the functions below know."""
    if len(node.types) != 1 or node.types[0] not in _TYPES or node.branches:
        return True
    type_ = node.types[0]
    if node.format and type_ != "integer":
        return True
    return bool((node.document.keys() & _LIMITING) - _LIMITS.get(type_, set()))


def _compile_text(node: SchemaNode, _: SlowCheck) -> Fits:
    document = node.document
    longest, shortest = document.get("maxLength"), document.get("minLength")
    checks: list[Fits] = []
    if longest is not None:
        checks.append(lambda value: len(value) <= longest)
    if shortest is not None:
        checks.append(lambda value: len(value) >= shortest)
    if document.get("pattern"):
        checks.append(_pattern_check(document["pattern"]))
    if document.get("enum"):
        allowed = frozenset(each for each in document["enum"] if isinstance(each, str))
        checks.append(allowed.__contains__)
    return _all_of(checks)


def _pattern_check(pattern: str) -> Fits:
    def fits(value: str) -> bool:
        try:
            return bool(compile_pattern(pattern).search(value))
        except PatternError:
            return False

    return fits


def _all_of(checks: list[Fits]) -> Fits:
    if len(checks) == 1:
        return checks[0]
    return (lambda value: all(check(value) for check in checks)) if checks else lambda _: True


def _compile_number(node: SchemaNode, _: SlowCheck) -> Fits:
    least, most = node.document.get("minimum"), node.document.get("maximum")
    checks: list[Fits] = []
    if node.types[0] == "integer":
        low, high = INTEGER_RANGES[node.format or "int64"]
        checks.append(lambda value: low <= value <= high)
    if least is not None:
        checks.append(lambda value: bool(value >= least))
    if most is not None:
        checks.append(lambda value: bool(value <= most))
    return _all_of(checks)


def _compile_items(node: SchemaNode, slow: SlowCheck) -> Fits:
    inner = compile_quick_check(node.items, slow) if node.items is not None else None
    fewest, most = node.document.get("minItems") or 0, node.document.get("maxItems")
    differ = _difference_check(node)

    def fits(value: list[Any]) -> bool:
        if len(value) < fewest or (most is not None and len(value) > most):
            return False
        return (inner is None or all(map(inner, value))) and (differ is None or len(value) < 1 or differ(value))

    return fits


def _difference_check(node: SchemaNode) -> Fits | None:
    """Whether the elements of a set or map differ. Only texts are compared here."""
    keys = node.list_keys
    if node.list_type == "set":
        return lambda value: all(type(each) is str for each in value) and len(set(value)) == len(value)
    if node.list_type != "map":
        return None

    def fits(value: list[Any]) -> bool:
        if not all(type(each) is dict for each in value):
            return False
        found = {tuple([each.get(key) for key in keys if type(each.get(key)) is str]) for each in value}
        return len(found) == len(value) and all(len(each) == len(keys) for each in found)

    return fits


def _compile_fields(node: SchemaNode, slow: SlowCheck) -> Fits:
    below = {name: compile_quick_check(each, slow) for name, each in node.properties.items()}
    other = compile_quick_check(node.additional, slow) if node.additional is not None else None
    required, find = frozenset(node.required), below.get

    def fits(value: dict[str, Any]) -> bool:
        for name, each in value.items():
            check = find(name, other)
            if check is not None and not check(each):
                return False
        return required <= value.keys()

    return fits


_COMPILERS: Mapping[str, Callable[[SchemaNode, SlowCheck], Fits]] = {
    "string": _compile_text,
    "boolean": lambda _, __: lambda _: True,
    "integer": _compile_number,
    "number": _compile_number,
    "object": _compile_fields,
    "array": _compile_items,
}
