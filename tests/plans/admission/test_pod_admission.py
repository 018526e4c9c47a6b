"""Pod admission: which priority a new pod gets, and which PriorityClass may be the default."""

from typing import Any

import pytest

from app.kinds.pod.pod import Pod, PodSpec
from app.kinds.scheduling.priorityclass import PriorityClass
from app.machinery.base import ObjectMeta
from app.machinery.errors import ApiError
from app.plans.admission.pod_admission import check_single_default, with_priority

LESS, MORE = "PreemptLowerPriority", "Never"


def a_class(name: str, value: int, **parts: Any) -> PriorityClass:
    return PriorityClass(metadata=ObjectMeta(name=name), value=value, **({"preemption_policy": LESS} | parts))


def classes(*some: PriorityClass) -> dict[str, PriorityClass]:
    return {each.metadata.name: each for each in some}


HIGH = a_class("high", 1000, preemption_policy=MORE)
USUAL = a_class("usual", 10, global_default=True)
LOW = a_class("low", 5, global_default=True)


@pytest.mark.parametrize(
    ("spec", "known", "expected"),
    [
        pytest.param({}, [], ("", 0, LESS), id="none without classes"),
        pytest.param({}, [HIGH], ("", 0, LESS), id="none without a default class"),
        pytest.param({}, [HIGH, USUAL], ("usual", 10, LESS), id="that of the default class"),
        pytest.param({}, [LOW, USUAL], ("low", 5, LESS), id="that of the lowest, should two be the default"),
        pytest.param({"priority_class_name": "high"}, [HIGH, USUAL], ("high", 1000, MORE), id="that of its class"),
        pytest.param(
            {"priority_class_name": "high", "priority": 1000, "preemption_policy": MORE},
            [HIGH],
            ("high", 1000, MORE),
            id="what it says itself, if that is the same",
        ),
    ],
)
def test_a_pod_gets(spec: dict, known: list, expected: tuple) -> None:
    made = with_priority(Pod(spec=PodSpec(**spec)), classes(*known), "p").spec

    assert (made.priority_class_name, made.priority, made.preemption_policy) == expected


OWN = "must not be provided in pod spec; priority admission controller computed"


@pytest.mark.parametrize(
    ("spec", "why"),
    [
        pytest.param({"priority_class_name": "gold"}, "no PriorityClass with name gold was found", id="of no class"),
        pytest.param(
            {"priority": 7},
            f"the integer value of priority (7) {OWN} 0 from the given PriorityClass name",
            id="with a priority of its own",
        ),
        pytest.param(
            {"priority_class_name": "high", "preemption_policy": LESS},
            f"the string value of PreemptionPolicy (PreemptLowerPriority) {OWN} Never from the given PriorityClass name",
            id="with another policy than its class",
        ),
    ],
)
def test_a_pod_is_refused(spec: dict, why: str) -> None:
    with pytest.raises(ApiError) as refusal:
        with_priority(Pod(spec=PodSpec(**spec)), classes(HIGH), "p")

    assert (refusal.value.code, refusal.value.message) == (403, f'pods "p" is forbidden: {why}')


def test_only_one_class_is_the_default() -> None:
    error = check_single_default(LOW, classes(USUAL))

    assert error is not None
    assert error.message == (
        'priorityclasses.scheduling.k8s.io "low" is forbidden: '
        "PriorityClass usual is already marked as default. Only one default can exist"
    )
    assert check_single_default(USUAL, classes(USUAL)) is check_single_default(HIGH, classes(USUAL)) is None
