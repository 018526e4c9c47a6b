"""Rules in CEL: which are evaluated, on what, and what their failures say."""

from typing import Any

import pytest

from app.machinery.custom.rules import cause_of, evaluate, find_evaluations
from app.machinery.custom.structural_schema import compile_schema


def broken(schema: dict[str, Any], new: dict[str, Any], old: dict[str, Any] | None = None) -> list[str]:
    found = []
    for each in find_evaluations(new, old, compile_schema(schema)):
        found += [cause_of(each, failure) for failure in evaluate(each.rules, each.inputs)]
    return [f"{each.field}: {each.message}" for each in found]


def ruled(rule: str, **more: Any) -> dict[str, Any]:
    return {"type": "object", "x-kubernetes-validations": [{"rule": rule, **more}]}


BOTH = [{"rule": "self == 'y'"}, {"rule": "self != oldSelf"}]  # of what did not change, only the second is evaluated


@pytest.mark.parametrize(
    ("schema", "new", "old", "causes"),
    [
        (ruled("self.a > 1"), {"a": 2}, None, []),
        (ruled("self.a > 1"), {"a": 1}, None, ["<nil>: Invalid value: failed rule: self.a > 1"]),
        (ruled("self.a > 1"), {"a": 1}, {"a": 1}, []),
        (ruled("self.a > oldSelf.a"), {"a": 1}, None, []),
        (ruled("self.a > oldSelf.a", message=" less "), {"a": 1}, {"a": 2}, ["<nil>: Invalid value: less"]),
        (ruled("oldSelf.hasValue()", optionalOldSelf=True, message="new"), {}, None, ["<nil>: Invalid value: new"]),
        (ruled("oldSelf.value().a == 1", optionalOldSelf=True), {"a": 2}, {"a": 1}, []),
        (ruled("self.a != oldSelf.a", message="same"), {"a": 1}, {"a": 1}, ["<nil>: Invalid value: same"]),
        (
            {"type": "object", "properties": {"f": {"type": "string", "x-kubernetes-validations": BOTH}}},
            {"f": "x"},
            {"f": "x"},
            ["f: Invalid value: failed rule: self != oldSelf"],
        ),
        (ruled("self.b == 1", message="b"), {}, None, ["<nil>: Invalid value: no such key: b evaluating rule: b"]),
        (
            ruled("false", reason="FieldValueRequired", fieldPath=".x['y']", message="y"),
            {},
            None,
            ["x.y: Required value: y"],
        ),
        (
            {"type": "object", "additionalProperties": ruled("self.n__dash__x < 2") | {"properties": {"n-x": {}}}},
            {"k": {"n-x": 2}},
            None,
            ["[k]: Invalid value: failed rule: self.n__dash__x < 2"],
        ),
    ],
)
def test_what_a_rule_says(
    schema: dict[str, Any], new: dict[str, Any], old: dict[str, Any] | None, causes: list[str]
) -> None:
    assert broken(schema, new, old) == causes


def test_what_costs_too_much_ends_the_evaluation() -> None:
    costly = {"rule": "self.l.all(a, self.l.all(b, a == b))", "message": "m"}
    schema = {"type": "object", "x-kubernetes-validations": [costly, {"rule": "false"}]}

    [cause] = broken(schema, {"l": [1] * 725})

    assert cause == (
        "<nil>: Invalid value: 'operation cancelled: actual cost limit exceeded': "
        "no further validation rules will be run due to call cost exceeds limit for rule: m"
    )
