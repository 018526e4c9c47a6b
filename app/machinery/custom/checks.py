"""Checks of custom objects against their schema, with kube-openapi's texts. Called as `validate` of a custom kind.

The order of causes is kube-openapi's: of one value its type, alternatives, text, format, number, items, enumeration, fields. Then
follow those of embedded objects and of lists whose elements differ (`list_checks`).
"""

from collections.abc import Mapping
from typing import Any

from app.machinery.custom.correlation import elements_by_key, field_of, is_same, is_same_json, old_element
from app.machinery.custom.formats import FORMATS, INTEGER_RANGES, LARGEST_FLOAT
from app.machinery.custom.list_checks import find_embedded_causes, find_list_causes
from app.machinery.custom.patterns import PatternError, compile_pattern
from app.machinery.custom.quick_check import Fits
from app.machinery.custom.structural_schema import ABSENT, SchemaNode
from app.machinery.errors import Cause, format_value, invalid, required, too_long, too_many

BLOCKING = frozenset({"FieldValueRequired", "FieldValueTooLong", "FieldValueTooMany", "FieldValueTypeInvalid"})
UNCHECKED = (
    "some validation rules were not checked because the object was invalid; "
    "correct the existing errors to complete validation"
)
MOST_CAUSES = 100


def find_causes(
    document: Mapping[str, Any], root: SchemaNode, old: Any = ABSENT, *, fits: Fits = lambda _: False
) -> list[Cause]:
    """Return why a complete object is invalid; an empty list if it is valid. What is as in `old` is not judged (ratcheting).

    `fits`: the quick check of the schema, if there is one.
    """
    if fits(document):
        return []
    causes = find_value_causes(document, root, old)
    if root.has_embedded:
        causes += find_embedded_causes(document, root)
    if root.has_keyed_lists:
        found = find_list_causes(document, root)
        if found and (old is ABSENT or not find_list_causes(old, root)):
            causes += found
    causes = causes[:MOST_CAUSES]
    if root.has_rules and any(each.reason in BLOCKING for each in causes):
        causes.append(Cause("FieldValueInvalid", f"Invalid value: null: {UNCHECKED}", "<nil>"))
    return causes


def has_no_causes(value: Any, node: SchemaNode) -> bool:
    """Return whether a value fits its part of a schema, apart from embedded objects and lists whose elements differ."""
    return not find_value_causes(value, node)


def find_value_causes(value: Any, node: SchemaNode, old: Any = ABSENT) -> list[Cause]:
    """Return why a value does not fit its part of a schema. Paths begin at the value, which is `<nil>`."""
    walker = _Walker()
    walker.check_value(value, node, "", old)
    return list(dict.fromkeys(walker.causes))


_TYPE_NAMES = {
    str: "string",
    bool: "boolean",
    int: "integer",
    float: "number",
    list: "array",
    tuple: "array",
    type(None): "null",
}
_NUMBER_FORMATS = {int: "int64", float: "float64"}


def type_name(value: Any) -> str:
    """Return the JSON type of a value."""
    return _TYPE_NAMES.get(type(value), "object")


def _has_type(value: Any, types: tuple[str, ...]) -> bool:
    name = type_name(value)
    if name in types or (name == "integer" and "number" in types):
        return True
    return name == "number" and "integer" in types and value.is_integer()


class _Walker:
    """Collects causes. `matches` counts what held: of alternatives that all fail, that with the most is told of."""

    def __init__(self) -> None:
        self.causes: list[Cause] = []
        self.matches = 0

    def check(self, value: Any, node: SchemaNode, path: str, old: Any) -> None:
        if len(self.causes) >= MOST_CAUSES or (old is not ABSENT and is_same(value, old, node)):
            return
        self.check_value(value, node, path, old)

    def check_value(self, value: Any, node: SchemaNode, path: str, old: Any) -> None:
        is_typed = self._check_type(value, node, path) if node.types or node.format else False
        document = node.document
        if value is not None:
            self.matches += 4 + is_typed
            for word, parts in node.branches:
                self._check_branches(value, word, parts, path)
            if isinstance(value, str):
                self._check_text(value, node, path)
            elif isinstance(value, int | float) and not isinstance(value, bool):
                self._check_number(value, node, path)
            elif isinstance(value, list):
                self._check_items(value, node, path, old)
        allowed = document.get("enum")
        if allowed and (value is None or not any(is_same_json(value, each) for each in allowed)):
            self._refuse_enum(value, allowed, path)
        if isinstance(value, dict):
            self._check_object(value, node, path, old)

    def _check_type(self, value: Any, node: SchemaNode, path: str) -> bool:
        """Return whether the type was looked at. A text's format takes the place of its type in what is said."""
        if value is None:
            if node.types and not node.nullable:
                self._refuse_type(",".join(node.types), "null", path)
            else:
                self.matches += 1
        elif not _has_type(value, node.types):
            if node.format and not isinstance(value, str | list):
                self._refuse_type(node.format, _NUMBER_FORMATS.get(type(value), ""), path)
            elif node.types:
                self._refuse_type(",".join(node.types), type_name(value), path)
        else:
            self.matches += 1
        return True

    def _refuse_type(self, types: str, found: str, path: str) -> None:
        text = f'Invalid value: "{found}": {path} in body must be of type {types}: "{found}"'
        self.causes.append(Cause("FieldValueTypeInvalid", text, _field(path)))

    def _refuse(self, value: Any, path: str, why: str) -> None:
        self.causes.append(invalid(_field(path), value, f"{path} in body {why}"))

    def _refuse_enum(self, value: Any, allowed: Any, path: str) -> None:
        texts = (each if isinstance(each, str) else format_value(each) for each in allowed)
        quoted = ", ".join(map(format_value, texts))
        text = f"Unsupported value: {format_value(value)}: supported values: {quoted}"
        self.causes.append(Cause("FieldValueNotSupported", text, _field(path)))

    def _check_text(self, value: str, node: SchemaNode, path: str) -> None:
        self.matches += 1
        document = node.document
        longest, shortest, pattern = (document.get(word) for word in ("maxLength", "minLength", "pattern"))
        if longest is not None and len(value) > longest:
            self.causes.append(too_long(_field(path), longest))
        elif shortest is not None and len(value) < shortest:
            self._refuse(value, path, f"should be at least {shortest} chars long")
        elif pattern:
            self._check_pattern(value, pattern, path)
        is_valid = FORMATS.get(node.format)
        if is_valid is not None:
            self.matches += 1
            if not is_valid(value):
                text = f"{path} in body must be of type {node.format}: {format_value(value)}"
                text = f"Invalid value: {format_value(value)}: {text}"
                self.causes.append(Cause("FieldValueTypeInvalid", text, _field(path)))

    def _check_pattern(self, value: str, pattern: str, path: str) -> None:
        try:
            matches = compile_pattern(pattern).search(value)
        except PatternError as error:  # the definition was written where RE2 is installed
            self._refuse(value, path, str(error))
            return
        if not matches:
            self._refuse(value, path, f"should match '{pattern}'")

    def _check_number(self, value: float, node: SchemaNode, path: str) -> None:
        self.matches += 2
        document = node.document
        step, most, least = (document.get(word) for word in ("multipleOf", "maximum", "minimum"))
        if not _is_in_range(value, node):
            named = f"with format {node.format}" if node.format else "(default format)"
            text = f'Invalid value: "": Checked value must be of type {node.types[0]} {named} in {path}'
            self.causes.append(Cause("FieldValueInvalid", text, "<nil>"))
        if step and not _is_multiple(value, step):
            self._refuse(value, path, f"should be a multiple of {format_number(step)}")
        if least is not None:
            is_open = document.get("exclusiveMinimum") is True
            if value < least or (is_open and value == least):
                words = "greater than " if is_open else "greater than or equal to "
                self._refuse(value, path, f"should be {words}{format_number(least)}")
        if most is not None:
            is_open = document.get("exclusiveMaximum") is True
            if value > most or (is_open and value == most):
                words = "less than " if is_open else "less than or equal to "
                self._refuse(value, path, f"should be {words}{format_number(most)}")

    def _check_items(self, value: list[Any], node: SchemaNode, path: str, old: Any) -> None:
        self.matches += 2
        if node.items is not None:
            before = elements_by_key(old, node)
            for index, each in enumerate(value):
                self.check(each, node.items, f"{path}[{index}]", old_element(each, before, node))
        fewest, most = node.document.get("minItems"), node.document.get("maxItems")
        if fewest is not None and len(value) < fewest:
            self._refuse(len(value), path, f"should have at least {fewest} items")
        if most is not None and len(value) > most:
            self.causes.append(too_many(_field(path), len(value), most))

    def _check_object(self, value: dict[str, Any], node: SchemaNode, path: str, old: Any) -> None:
        self.matches += 1
        fewest, most = node.document.get("minProperties"), node.document.get("maxProperties")
        if fewest is not None and len(value) < fewest:
            self._refuse(len(value), path, f"should have at least {fewest} properties")
        if most is not None and len(value) > most:
            self.causes.append(too_many(_field(path), len(value), most))
        for name, each in value.items():
            if (below := node.properties.get(name)) is not None:
                self.check(each, below, f"{path}.{name}" if path else name, field_of(old, name))
            elif node.additional is not None:
                self.check(each, node.additional, f"{path}.{name}", field_of(old, name))
        for name in node.required:
            if name not in value:
                self.causes.append(required(_field(f"{path}.{name}")))

    def _check_branches(self, value: Any, word: str, parts: tuple[SchemaNode, ...], path: str) -> None:
        tried = []
        for each in parts:
            tried.append(_try(value, each, path))
            if word == "anyOf" and not tried[-1].causes:
                break
        valid = [each for each in tried if not each.causes]
        found = "Found none valid" if not valid else f"Found {len(valid)} valid alternatives"
        is_wanted = {
            "allOf": len(valid) == len(parts),
            "anyOf": bool(valid),
            "oneOf": len(valid) == 1,
            "not": not valid,
        }[word]
        if word == "allOf":
            found = "" if valid else ". None validated"
            self._take(*tried)
        elif word != "not" and (is_wanted or not valid):  # the closest one says more than that there is none
            self._take(max(valid or tried, key=lambda each: each.matches) if not valid else valid[0])
        if not is_wanted:
            text = _BRANCH_TEXTS[word].format(path=path, found=found)
            self.causes.append(Cause("FieldValueInvalid", f'Invalid value: "": {text}', "<nil>"))

    def _take(self, *walkers: "_Walker") -> None:
        for each in walkers:
            self.causes += each.causes
            self.matches += each.matches


_BRANCH_TEXTS = {
    "allOf": '"{path}" must validate all the schemas (allOf){found}',
    "anyOf": '"{path}" must validate at least one schema (anyOf)',
    "oneOf": '"{path}" must validate one and only one schema (oneOf). {found}',
    "not": '"{path}" must not validate the schema (not)',
}


def _try(value: Any, node: SchemaNode, path: str) -> _Walker:
    walker = _Walker()
    walker.check_value(value, node, path, ABSENT)
    return walker


def _field(path: str) -> str:
    return path.removeprefix(".") or "<nil>"


def _is_in_range(value: float, node: SchemaNode) -> bool:
    if len(node.types) != 1:
        return True
    if node.types[0] == "integer":
        least, most = INTEGER_RANGES[node.format or "int64"]
        return float(value).is_integer() and least <= value <= most
    return node.format != "float" or abs(value) <= LARGEST_FLOAT


def _is_multiple(value: float, step: float) -> bool:
    if isinstance(value, int) and isinstance(step, int):
        return value % step == 0
    return (value / step).is_integer()


def format_number(number: float) -> str:
    return str(int(number)) if float(number).is_integer() else str(number)
