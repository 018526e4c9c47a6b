"""Keywords of schemas in definitions, and the types of their values: what Kubernetes checks when it decodes JSONSchemaProps.

Used by `structural_rules`, so that what compiles a schema may rely on it, and for warnings of keywords that mean nothing.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from app.machinery.errors import Cause, invalid

_TEXT, _FLAG, _NUMBER, _COUNT, _LIST, _MAP = (str,), (bool,), (int, float), (int,), (list,), (dict,)
_TYPES: Mapping[str, tuple[type, ...]] = {
    **dict.fromkeys(("type", "format", "description", "title", "pattern", "id", "$schema", "$ref"), _TEXT),
    **dict.fromkeys(("x-kubernetes-list-type", "x-kubernetes-map-type"), _TEXT),
    **dict.fromkeys(("nullable", "uniqueItems", "exclusiveMinimum", "exclusiveMaximum"), _FLAG),
    "x-kubernetes-int-or-string": _FLAG,
    "x-kubernetes-preserve-unknown-fields": _FLAG,
    "x-kubernetes-embedded-resource": _FLAG,
    **dict.fromkeys(("minimum", "maximum", "multipleOf"), _NUMBER),
    **dict.fromkeys(
        ("minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"),
        _COUNT,
    ),
    **dict.fromkeys(("enum", "required", "allOf", "anyOf", "oneOf"), _LIST),
    **dict.fromkeys(("x-kubernetes-list-map-keys", "x-kubernetes-validations"), _LIST),
    **dict.fromkeys(("not", "properties", "definitions", "patternProperties", "dependencies", "externalDocs"), _MAP),
    "items": (dict, list),
    "additionalProperties": (dict, bool),
    "additionalItems": (dict, bool),
    "default": (),
    "example": (),
}
_WORDS = {str: "a string", bool: "a boolean", int: "a number", float: "a number", list: "a list", dict: "an object"}


def find_type_faults(schema: Mapping[str, Any], path: str) -> list[Cause]:
    """Return the keywords whose values cannot be read."""
    found = []
    for word, value in schema.items():
        types = _TYPES.get(word, ())
        if value is not None and types and type(value) not in types:
            wanted = " or ".join(dict.fromkeys(_WORDS[each] for each in types))
            found.append(invalid(f"{path}.{word}", value, f"must be {wanted}"))
    for word in ("required", "x-kubernetes-list-map-keys"):
        names = schema.get(word)
        if isinstance(names, list) and not all(isinstance(each, str) for each in names):
            found.append(invalid(f"{path}.{word}", names, "must be a list of strings"))
    return found


def find_unknown_keywords(schema: Any, path: str) -> Iterator[str]:
    """Yield the paths of keywords that mean nothing, in the whole of a schema."""
    if not isinstance(schema, dict):
        return
    for word, value in schema.items():
        place = f"{path}.{word}"
        if word not in _TYPES:
            yield place
        elif word == "properties" and isinstance(value, dict):
            for name, each in value.items():
                yield from find_unknown_keywords(each, f"{place}.{name}")
        elif word in ("items", "additionalProperties", "not"):
            yield from find_unknown_keywords(value, place)
        elif word in ("allOf", "anyOf", "oneOf") and isinstance(value, list):
            for index, each in enumerate(value):
                yield from find_unknown_keywords(each, f"{place}[{index}]")
