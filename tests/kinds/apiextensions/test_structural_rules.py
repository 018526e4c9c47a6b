"""Schemas that cannot be served are refused, with Kubernetes' words and paths; none of them crashes what compiles them."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.kinds.apiextensions.schema_keywords import _TYPES as KEYWORDS
from app.kinds.apiextensions.structural_rules import find_faults
from app.machinery.custom.checks import find_causes
from app.machinery.custom.completion import complete_content
from app.machinery.custom.schema_shape import shape_of_root, topology_of_root
from app.machinery.custom.structural_schema import compile_schema

OBJECT = {"type": "object"}
LIST = {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}}


def field(**schema: Any) -> dict[str, Any]:
    return {"type": "object", "properties": {"f": {name.replace("_", "-"): each for name, each in schema.items()}}}


@pytest.mark.parametrize(
    ("schema", "fault"),
    [
        ({}, ".type: Required value: must not be empty at the root"),
        ({"type": "array"}, '.type: Invalid value: "array": must be object at the root'),
        (field(), ".properties[f].type: Required value: must not be empty for specified object fields"),
        (
            field(type="array", items={}),
            ".properties[f].items.type: Required value: must not be empty for specified array items",
        ),
        (
            field(type="null"),
            ".properties[f].type: Forbidden: type cannot be set to null, use nullable as an alternative",
        ),
        (
            field(type="string", x_kubernetes_int_or_string=True),
            '.properties[f].type: Invalid value: "string": must be empty if x-kubernetes-int-or-string is true',
        ),
        (
            field(type="object", additionalProperties=OBJECT, properties={"a": OBJECT}),
            ".properties[f].additionalProperties: Forbidden: additionalProperties and properties are mutual exclusive",
        ),
        (
            field(**LIST, x_kubernetes_list_type="map"),
            ".properties[f].x-kubernetes-list-map-keys: Required value: "
            "must not be empty if x-kubernetes-list-type is map",
        ),
        (
            field(**LIST, x_kubernetes_list_type="map", x_kubernetes_list_map_keys=["b"]),
            '.properties[f].x-kubernetes-list-map-keys: Invalid value: ["b"]: entries must all be names of item properties',
        ),
        (field(type="string", pattern="["), ".properties[f].pattern: Invalid value: "),
        (field(type="string", maxLength="5"), '.properties[f].maxLength: Invalid value: "5": must be a number'),
        (field(type="integer", default="1"), ".properties[f].default: Invalid value: "),
        (
            {**OBJECT, "anyOf": [{"properties": {"a": {"type": "string"}}}]},
            ".properties[a]: Required value: because it is defined in .anyOf[0].properties[a]",
        ),
        (
            field(type="integer", anyOf=[{"type": "integer"}]),
            ".properties[f].anyOf[0].type: Forbidden: must be empty to be structural",
        ),
    ],
)
def test_a_schema_that_is_not_structural_is_refused(schema: dict[str, Any], fault: str) -> None:
    assert f"{fault}" in ", ".join(f"{each.field}: {each.message}" for each in find_faults(schema, ""))


VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-2, 2)
    | st.sampled_from(["", "a", "object", "array", "string", "map", "set"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["a", "type"]), inner, max_size=2),
    max_leaves=5,
)
SCHEMAS = st.recursive(
    st.fixed_dictionaries({"type": st.sampled_from(["object", "array", "string", "integer"])}),
    lambda inner: st.fixed_dictionaries(
        {"type": st.sampled_from(["object", "array"])},
        optional={
            "properties": st.dictionaries(st.sampled_from(["a", "b"]), inner, max_size=2),
            "items": inner,
            "additionalProperties": inner | st.booleans(),
            "anyOf": st.lists(inner, max_size=2),
            "not": inner,
            **{word: VALUES for word in KEYWORDS if word.startswith(("x-kube", "m", "e", "de"))},
        },
    ),
    max_leaves=6,
)


@given(SCHEMAS, st.dictionaries(st.sampled_from(["a", "b", "c"]), VALUES, max_size=3))
def test_what_is_accepted_can_be_compiled_and_walked(schema: dict[str, Any], document: dict[str, Any]) -> None:
    if find_faults(schema, ""):
        return
    root = compile_schema(schema)
    shape_of_root(root)
    topology_of_root(root)
    content, _ = complete_content(document, root)
    find_causes(content, root)
    assert complete_content(content, root) == (content, [])
