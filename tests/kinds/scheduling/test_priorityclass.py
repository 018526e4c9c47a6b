"""Priority classes as clients send them and see them."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.kinds.scheduling.priorityclass import KIND as CLASSES
from app.kinds.scheduling.priorityclass import SYSTEM, PriorityClass
from app.machinery.base import ObjectMeta
from tests.build import NOW


def a_class(name: str = "high", **parts: Any) -> PriorityClass:
    return CLASSES.prepare(PriorityClass(metadata=ObjectMeta(name=name, creation_timestamp=NOW), **parts))


RESERVED = "Forbidden: priority class names with 'system-' prefix are reserved for system use only. error: "


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        pytest.param(a_class(value=1_000_000_000), [], id="as high as users may"),
        pytest.param(a_class(value=-5, preemption_policy="Never"), [], id="below nothing"),
        pytest.param(
            a_class(value=1_000_000_001),
            ["value: Forbidden: maximum allowed value of a user defined priority is 1000000000"],
            id="too high",
        ),
        pytest.param(
            a_class(preemption_policy="Now"),
            ['preemptionPolicy: Unsupported value: "Now": supported values: "PreemptLowerPriority", "Never"'],
            id="with an unknown policy",
        ),
        pytest.param(
            a_class("system-mine"),
            [f"metadata.name: {RESERVED}system-mine is not a known system priority class"],
            id="with a name that is not for users",
        ),
        pytest.param(
            a_class("system-node-critical", value=1),
            [f"metadata.name: {RESERVED}value of system-node-critical PriorityClass must be 2000001000"],
            id="like the system's, but with another value",
        ),
        pytest.param(
            a_class("system-node-critical", value=2_000_001_000, global_default=True),
            [f"metadata.name: {RESERVED}globalDefault of system-node-critical PriorityClass must be false"],
            id="like the system's, but the default",
        ),
    ],
)
def test_validation(made: PriorityClass, expected: list[str]) -> None:
    assert [f"{each.field}: {each.message}" for each in CLASSES.validate(made)] == expected


@pytest.mark.parametrize("given", SYSTEM, ids=lambda each: each.metadata.name)
def test_the_systems_own_are_valid(given: PriorityClass) -> None:
    assert CLASSES.validate(CLASSES.prepare(given)) == []


def test_what_pods_were_given_cannot_change() -> None:
    old = a_class(value=1)
    new = replace(old, value=2, preemption_policy="Never", description="new", global_default=True)

    assert [(each.field, each.message) for each in CLASSES.validate_update(new, old)] == [
        ("value", "Forbidden: may not be changed in an update."),
        ("preemptionPolicy", 'Invalid value: "Never": field is immutable'),
    ]


def test_a_value_of_nothing_is_said() -> None:
    assert b'"value":0' in msgspec.json.encode(a_class())


def test_it_is_shown_as_kubectl_shows_it() -> None:
    row = CLASSES.row(a_class(value=7, preemption_policy="Never"), NOW + timedelta(minutes=3))

    assert row == ["high", 7, False, "3m", "Never"]
