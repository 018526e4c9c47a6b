"""Random schemas and objects: what they are made into, and whether they are valid, compared with two others that know the rules.

`reference` is written plainly for this. kubernetes_answers.json has the words of Kubernetes itself, for schemas of the same
generator: kubernetes_answers.go tells how it is made. Cases are left out where Kubernetes goes wrong: it takes a list for a text
with a format, 1.5 for an enumeration with 1 in it, and 0 for a minimum of 0.5.
"""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from app.kinds.apiextensions.structural_rules import find_faults
from app.machinery.custom.checks import find_causes, has_no_causes
from app.machinery.custom.completion import complete_content
from app.machinery.custom.quick_check import compile_quick_check
from app.machinery.custom.structural_schema import ABSENT, SchemaNode, compile_schema
from app.machinery.errors import Cause
from tests.machinery.custom import reference
from tests.machinery.custom.random_schemas import make_case

PARTS = 4
CASES = (10_000 if os.environ.get("JOBPLANE_PROPERTIES") == "thorough" else 320) // PARTS
ANSWERS = Path(__file__).with_name("kubernetes_answers.json")
ROOT = "spec.validation.openAPIV3Schema"


@pytest.mark.parametrize("part", range(PARTS))
def test_objects_are_completed_and_checked_as_a_plain_reference_does(part: int) -> None:
    checked = 0
    for seed in range(part * CASES, (part + 1) * CASES):
        schema, objects = make_case(seed)
        if find_faults(schema, ROOT):
            continue
        root = compile_schema(schema)
        before: Any = ABSENT
        for sent in objects:
            before = compare(seed, schema, root, sent, before)
            checked += 1
    assert checked > CASES  # most schemas are accepted


def compare(seed: int, schema: dict[str, Any], root: SchemaNode, sent: dict[str, Any], old: Any) -> Any:
    """Compare what becomes of one object, as a new one and as an update; return it."""
    typed = {name: sent[name] for name in reference.META}
    made = {**typed, **complete_content(sent, root)[0]}
    expected = reference.prune(reference.fill(json.loads(json.dumps(sent)), schema), schema, is_object=True)
    assert made == expected, seed
    twice, missing = reference.further_faults(made, schema)
    assert_fields(seed, find_causes(made, root), reference.faults(made, schema) | twice | missing)
    if old is not ABSENT:
        if reference.further_faults(old, schema)[0]:
            twice = set()
        assert_fields(seed, find_causes(made, root, old), reference.faults(made, schema, old) | twice | missing)
    return made


def test_the_quick_check_never_says_yes_to_what_is_invalid_and_seldom_no_to_what_is_valid() -> None:
    valid = fitting = 0
    for seed in range(CASES):
        schema, objects = make_case(seed)
        if find_faults(schema, ROOT):
            continue
        root = compile_schema(schema)
        fits = compile_quick_check(root, has_no_causes)
        for sent in objects:
            made = {**{name: sent[name] for name in reference.META}, **complete_content(sent, root)[0]}
            causes = find_causes(made, root)
            assert not (fits(made) and causes), seed
            valid += not causes
            fitting += fits(made)
    assert valid / 2 < fitting <= valid


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        ({"type": "string", "enum": ["a", "b"]}, ["a"], ["c", None, 1]),
        ({"type": "string", "minLength": 2, "maxLength": 3, "pattern": "^a"}, ["ab"], ["a", "abcd", "bb"]),
        ({"type": "string", "nullable": True}, ["", None], [1, True]),
        ({"type": "integer", "minimum": 0, "maximum": 3}, [0, 3], [-1, 4, True, "1"]),
        ({"type": "integer", "format": "int32"}, [2**31 - 1], [2**31]),
        ({"type": "number", "minimum": 0.5}, [1, 0.5], [0, True]),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2}, [["a"]], [[], ["a"] * 3, [1]]),
        ({"type": "array", "items": {"type": "string"}, "x-kubernetes-list-type": "set"}, [["a", "b"]], [["a", "a"]]),
        (
            {
                "type": "array",
                "x-kubernetes-list-type": "map",
                "x-kubernetes-list-map-keys": ["k", "l"],
                "items": {"type": "object", "properties": {"k": {"type": "string"}, "l": {"type": "string"}}},
            },
            [[{"k": "a", "l": "b"}, {"k": "b", "l": "a"}], []],
            [[{"k": "a", "l": "b"}, {"k": "a", "l": "b"}], [None]],
        ),
        (
            {"type": "object", "required": ["a"], "properties": {"a": {"type": "boolean"}}},
            [{"a": True}],
            [{}, {"a": 1}],
        ),
        ({"type": "object", "additionalProperties": {"type": "string", "maxLength": 1}}, [{"x": "y"}], [{"x": "yy"}]),
        ({"x-kubernetes-int-or-string": True}, [1, "1"], [True, 1.5]),
        ({"type": "string", "format": "ipv4"}, ["10.0.0.1"], ["ten"]),
        ({"type": "object", "minProperties": 1}, [{"a": 1}], [{}]),
        ({"type": "integer", "multipleOf": 2}, [4], [3]),
        ({"type": "string", "anyOf": [{"maxLength": 1}, {"pattern": "^x"}]}, ["a", "xyz"], ["abc"]),
    ],
)
def test_the_quick_check_knows_what_most_schemas_say(schema: dict[str, Any], good: list[Any], bad: list[Any]) -> None:
    root = compile_schema({"type": "object", "properties": {"it": schema}})
    fits = compile_quick_check(root, has_no_causes)
    assert [fits({"it": each}) for each in (*good, *bad)] == [True] * len(good) + [False] * len(bad)
    assert [bool(find_causes({"it": each}, root)) for each in (*good, *bad)] == [False] * len(good) + [True] * len(bad)


def assert_fields(seed: int, causes: list[Cause], expected: set[str]) -> None:
    """The fields at fault are those expected; of alternatives, one word is enough."""
    assert bool(causes) == bool(expected), (seed, causes, expected)
    found = set(map(field_of, causes))
    assert {each.removeprefix(".") for each in expected if not each.endswith("?")} <= found, (seed, found, expected)
    if not any(each.endswith("?") for each in expected):
        assert found == {each.removeprefix(".") for each in expected}, (seed, found, expected)


def field_of(cause: Cause) -> str:
    if "Checked value" in cause.message:  # a range, which is told without a field
        return cause.message.rpartition(" in ")[2].removeprefix(".")
    return "" if cause.field == "<nil>" else cause.field


def test_answers_are_those_of_kubernetes() -> None:
    for case in json.loads(ANSWERS.read_text()):
        refused = find_faults(case["schema"], ROOT)
        assert texts(refused) == case["faults"]
        if refused:
            continue
        root = compile_schema(case["schema"])
        before: Any = ABSENT
        for sent, answer in zip(case["objects"], case["answers"], strict=True):
            content, unknown = complete_content(sent, root)
            made = {**{name: sent[name] for name in reference.META}, **content}
            assert made == answer["completed"]
            assert sorted(unknown) == answer["unknown"]
            assert texts(find_causes(made, root)) == answer["errors"]
            if before is not ABSENT:
                assert texts(find_causes(made, root, before)) == answer["update"]
            before = made


def texts(causes: list[Cause]) -> list[str]:
    return sorted(f"{each.field}: {each.message}" for each in causes)
