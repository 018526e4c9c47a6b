"""Structural rules: faults of the schema in a CustomResourceDefinition (apiextensions' schema/validation.go). Pure.

`definition_validation` asks it for each version of a definition. Texts are Kubernetes'.
"""

import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from app.kinds.apiextensions.schema_keywords import find_type_faults
from app.machinery import cel
from app.machinery.custom.checks import find_value_causes
from app.machinery.custom.completion import Completion
from app.machinery.custom.list_checks import find_embedded_causes
from app.machinery.custom.patterns import PatternError, compile_pattern
from app.machinery.custom.rules import compile_rule, rules_of
from app.machinery.custom.structural_schema import compile_schema
from app.machinery.errors import Cause, forbidden, invalid, not_supported, required

Document = Mapping[str, Any]
TYPES = ("array", "boolean", "integer", "number", "object", "string")
_EMPTY_TYPE = {
    "root": "must not be empty at the root",
    "items": "must not be empty for specified array items",
    "field": "must not be empty for specified object fields",
}
_UNSUPPORTED = ("$ref", "definitions", "dependencies", "patternProperties", "additionalItems", "id")
_PLAIN_ONLY = {  # outside of alternatives
    "type": "empty",
    "additionalProperties": "undefined",
    "default": "undefined",
    "title": "empty",
    "description": "empty",
    "nullable": "false",
    "x-kubernetes-preserve-unknown-fields": "false",
    "x-kubernetes-embedded-resource": "false",
    "x-kubernetes-int-or-string": "false",
    "x-kubernetes-list-map-keys": "empty",
    "x-kubernetes-list-type": "undefined",
    "x-kubernetes-map-type": "undefined",
    "x-kubernetes-validations": "empty",
}
_REASONS = ("FieldValueDuplicate", "FieldValueForbidden", "FieldValueInvalid", "FieldValueRequired")
_JUNCTORS = ("allOf", "anyOf", "oneOf")
_MOST = 100


def find_faults(schema: Document, path: str) -> list[Cause]:
    """Return why a schema cannot be served; an empty list if it can."""
    found = []
    for cause in _walk(schema, path, "root"):
        found.append(cause)
        if len(found) == _MOST:
            break
    return found


def _walk(schema: Any, path: str, level: str, *, defaults: bool = True) -> Iterator[Cause]:
    """Yield faults of a part of a schema. `defaults` says whether defaults are checked: below additionalProperties none is."""
    if not isinstance(schema, Mapping):
        yield invalid(path, schema, "must be a schema")
        return
    if faults := find_type_faults(schema, path):
        yield from faults
        return
    yield from _check_type(schema, path, level)
    yield from _check_keywords(schema, path)
    yield from _check_lists(schema, path)
    if level == "root":
        yield from _check_root(schema, path)
    yield from _walk_below(schema, path, defaults=defaults)
    yield from _check_junctors(schema, path)
    yield from _check_rules(schema, path)
    if defaults and schema.get("default") is not None:
        yield from _check_default(schema, path)


def _walk_below(schema: Document, path: str, *, defaults: bool) -> Iterator[Cause]:
    properties, items, additional = (schema.get(word) for word in ("properties", "items", "additionalProperties"))
    for name, each in (properties or {}).items():
        yield from _walk(each, f"{path}.properties[{name}]", "field", defaults=defaults)
    if schema.get("type") == "array" and items is None:
        yield required(f"{path}.items", "must be specified")
    if isinstance(items, list):
        yield forbidden(f"{path}.items", "items must be a schema object and not an array")
    elif items is not None:
        yield from _walk(items, f"{path}.items", "items", defaults=defaults)
    if isinstance(additional, Mapping):
        yield from _walk(additional, f"{path}.additionalProperties", "field", defaults=False)
    if additional is False:
        yield forbidden(f"{path}.additionalProperties", "additionalProperties cannot be set to false")
    elif additional is not None and properties:
        why = "additionalProperties and properties are mutual exclusive"
        yield forbidden(f"{path}.additionalProperties", why)


def _check_type(schema: Document, path: str, level: str) -> Iterator[Cause]:
    type_ = schema.get("type") or ""
    int_or_string = schema.get("x-kubernetes-int-or-string") is True
    if type_ == "null":
        yield forbidden(f"{path}.type", "type cannot be set to null, use nullable as an alternative")
    elif type_ and type_ not in TYPES:
        yield not_supported(f"{path}.type", type_, TYPES)
    if level == "root" and type_ not in ("object", ""):
        yield invalid(f"{path}.type", type_, "must be object at the root")
    if int_or_string and type_:
        yield invalid(f"{path}.type", type_, "must be empty if x-kubernetes-int-or-string is true")
    keeps = schema.get("x-kubernetes-preserve-unknown-fields") is True and level != "root"
    if not type_ and not int_or_string and not keeps:
        yield required(f"{path}.type", _EMPTY_TYPE[level])
    if schema.get("x-kubernetes-embedded-resource") is True:
        yield from _demand_type(type_, "object", "x-kubernetes-embedded-resource is true", path)
        if not schema.get("properties") and schema.get("x-kubernetes-preserve-unknown-fields") is not True:
            yield required(f"{path}.properties", "must not be empty if x-kubernetes-embedded-resource is true without "
                                                 "x-kubernetes-preserve-unknown-fields")  # fmt: skip


def _check_keywords(schema: Document, path: str) -> Iterator[Cause]:
    for word in _UNSUPPORTED:
        if schema.get(word):
            yield forbidden(f"{path}.{word}", f"{word} is not supported")
    if schema.get("uniqueItems") is True:
        why = "uniqueItems cannot be set to true since the runtime complexity becomes quadratic"
        yield forbidden(f"{path}.uniqueItems", why)
    if schema.get("x-kubernetes-preserve-unknown-fields") is False:
        yield invalid(f"{path}.x-kubernetes-preserve-unknown-fields", False, "must be true or undefined")
    if pattern := schema.get("pattern"):
        try:
            compile_pattern(pattern)
        except PatternError as error:
            yield invalid(f"{path}.pattern", pattern, f"must be a valid regular expression, but isn't: {error}")


def _check_lists(schema: Document, path: str) -> Iterator[Cause]:
    list_type = schema.get("x-kubernetes-list-type")
    keys, type_, items = schema.get("x-kubernetes-list-map-keys") or [], schema.get("type") or "", schema.get("items")
    if list_type is not None:
        if list_type not in ("atomic", "map", "set"):
            yield not_supported(f"{path}.x-kubernetes-list-type", list_type, ("atomic", "set", "map"))
        yield from _demand_type(type_, "array", "x-kubernetes-list-type is specified", path)
    if keys and list_type != "map":
        place, why = f"{path}.x-kubernetes-list-type", "must be map if x-kubernetes-list-map-keys is non-empty"
        yield required(place, why) if list_type is None else invalid(place, list_type, why)
    if list_type in ("set", "map") and isinstance(items, Mapping):
        if items.get("nullable") is True:
            why = f"cannot be nullable when x-kubernetes-list-type is {list_type}"
            yield forbidden(f"{path}.items.nullable", why)
        yield from _check_set(items, path) if list_type == "set" and type_ == "array" else ()
    if list_type == "map":
        yield from _check_list_map(items, keys, path)
    yield from _check_map_type(schema, path)


def _check_set(items: Document, path: str) -> Iterator[Cause]:
    """Elements of a set are compared as a whole."""
    word = {"array": "x-kubernetes-list-type", "object": "x-kubernetes-map-type"}.get(items.get("type") or "")
    if word is None or items.get(word, "atomic" if items.get("type") == "array" else None) == "atomic":
        return
    why = "must be atomic as item of a list with x-kubernetes-list-type=set"
    yield invalid(f"{path}.items.{word}", items.get("x-kubernetes-list-type"), why)


def _check_list_map(items: Any, keys: list[str], path: str) -> Iterator[Cause]:
    if not keys:
        yield required(f"{path}.x-kubernetes-list-map-keys", "must not be empty if x-kubernetes-list-type is map")
    if items is None:
        yield required(f"{path}.items", "must have a schema if x-kubernetes-list-type is map")
    if not isinstance(items, Mapping):
        return
    if items.get("type") != "object":
        why = "must be object if parent array's x-kubernetes-list-type is map"
        yield invalid(f"{path}.items.type", items.get("type") or "", why)
        return
    properties = items.get("properties") or {}
    for index, key in enumerate(keys):
        if key not in properties:
            yield invalid(f"{path}.x-kubernetes-list-map-keys", keys, "entries must all be names of item properties")
        elif (properties[key] or {}).get("type") in ("array", "object"):
            why = "must be a scalar type if parent array's x-kubernetes-list-type is map"
            yield invalid(f"{path}.items.properties[{key}].type", "object", why)
        if key in keys[:index]:
            yield invalid(f"{path}.x-kubernetes-list-map-keys", keys, "must not contain duplicate entries")
    yield from _check_keys(items, [key for key in keys if key in properties], f"{path}.items")


def _check_keys(items: Document, keys: list[str], path: str) -> Iterator[Cause]:
    """Every element has its keys."""
    for key in keys:
        described, place = items["properties"][key], f"{path}.properties[{key}]"
        if not isinstance(described, Mapping):
            continue
        if key not in (items.get("required") or ()) and described.get("default") is None:
            why = "this property is in x-kubernetes-list-map-keys, so it must have a default or be a required property"
            yield required(f"{place}.default", why)
        if described.get("nullable") is True:
            why = "this property is in x-kubernetes-list-map-keys, so it cannot be nullable"
            yield forbidden(f"{place}.nullable", why)


def _check_map_type(schema: Document, path: str) -> Iterator[Cause]:
    map_type, type_ = schema.get("x-kubernetes-map-type"), schema.get("type") or ""
    if map_type is not None:
        if map_type not in ("atomic", "granular"):
            yield not_supported(f"{path}.x-kubernetes-map-type", map_type, ("atomic", "granular"))
        yield from _demand_type(type_, "object", "x-kubernetes-map-type is specified", path)


def _demand_type(type_: str, wanted: str, condition: str, path: str) -> Iterator[Cause]:
    if not type_:
        yield required(f"{path}.type", f"must be {wanted} if {condition}")
    elif type_ != wanted:
        yield invalid(f"{path}.type", type_, f"must be {wanted} if {condition}")


def _check_root(schema: Document, path: str) -> Iterator[Cause]:
    if schema.get("nullable") is True:
        yield forbidden(f"{path}.nullable", "nullable cannot be true at the root")
    if schema.get("additionalProperties") is not None:
        yield forbidden(f"{path}.additionalProperties", "must not be used at the root")
    yield from _check_metadata(schema, path)


def _check_metadata(schema: Document, path: str) -> Iterator[Cause]:
    metadata = (schema.get("properties") or {}).get("metadata")
    if not isinstance(metadata, Mapping):
        return
    if set(metadata) - {"type", "properties", "description"} or set(metadata.get("properties") or {}) - {
        "name",
        "generateName",
    }:
        why = "must not specify anything other than name and generateName, but metadata is implicitly specified"
        yield forbidden(f"{path}.properties[metadata]", why)


def _check_junctors(schema: Document, path: str) -> Iterator[Cause]:
    """Alternatives only constrain values: what fields there are stands outside of them."""
    is_either = schema.get("x-kubernetes-int-or-string") is True
    for word in _JUNCTORS:
        for index, each in enumerate(schema.get(word) or ()):
            yield from _check_alternative(each, schema, f"{path}.{word}[{index}]", typed=is_either)
    if schema.get("not"):
        yield from _check_alternative(schema["not"], schema, f"{path}.not", typed=False)


def _check_alternative(part: Any, outside: Any, path: str, *, typed: bool) -> Iterator[Cause]:
    if not isinstance(part, Mapping):
        yield invalid(path, part, "must be a schema")
        return
    if faults := find_type_faults(part, path):
        yield from faults
        return
    for word, wanted in _PLAIN_ONLY.items():
        if part.get(word) not in (None, "", False) and not (typed and word == "type"):
            yield forbidden(f"{path}.{word}", f"must be {wanted} to be structural")
    known = outside.get("properties") or {} if isinstance(outside, Mapping) else {}
    for name, each in (part.get("properties") or {}).items():
        if name == "metadata":
            yield forbidden(f"{path}.properties[metadata]", "must not be specified in a nested context")
        if name not in known:
            where = re.sub(r"\.(allOf|anyOf|oneOf)\[\d+\]|\.not", "", f"{path}.properties[{name}]")
            yield required(where, f"because it is defined in {path}.properties[{name}]")
        else:
            yield from _check_alternative(each, known[name], f"{path}.properties[{name}]", typed=False)
    for word in _JUNCTORS:
        for index, each in enumerate(part.get(word) or ()):
            yield from _check_alternative(each, outside, f"{path}.{word}[{index}]", typed=typed)


def _check_rules(schema: Document, path: str) -> Iterator[Cause]:
    """Rules compile. Without CEL they are not looked at."""
    given = schema.get("x-kubernetes-validations") or ()
    try:
        rules = rules_of(schema)
    except (msgspec.ValidationError, TypeError) as error:
        yield invalid(f"{path}.x-kubernetes-validations", given, str(error))
        return
    for index, rule in enumerate(rules):
        place = f"{path}.x-kubernetes-validations[{index}]"
        for name, expression in (("rule", rule.rule), ("messageExpression", rule.message_expression)):
            if not expression.strip():
                if name == "rule":
                    yield required(f"{place}.rule", "rule is not specified")
            elif cel.is_installed():
                try:
                    compile_rule(rule, expression)
                except cel.CelError as error:
                    yield invalid(f"{place}.{name}", given[index], f"compilation failed: {error}")
        if rule.reason and rule.reason not in _REASONS:
            yield not_supported(f"{place}.reason", rule.reason, _REASONS)


def _check_default(schema: Document, path: str) -> Iterator[Cause]:
    """A default is valid as it stands, without the defaults inside."""
    try:
        node = compile_schema(schema)
    except (AttributeError, TypeError):
        return  # which was told
    completion, default = Completion(), schema["default"]
    completion.complete(default, node)
    if completion.unknown:
        yield invalid(f"{path}.default", default, "must not have unknown fields")
    embedded = find_embedded_causes(default, node) if node.has_embedded else []
    for cause in embedded or find_value_causes(default, node):
        inner = "" if cause.field == "<nil>" else f".{cause.field.removeprefix('.')}"
        yield Cause(cause.reason, cause.message, f"{path}.default{inner}")
