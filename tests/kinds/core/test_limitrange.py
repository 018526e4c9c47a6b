"""Limit ranges as clients send them and see them."""

from typing import Any

import msgspec
import pytest

from app.kinds.core.limitrange import KIND as LIMIT_RANGES
from app.kinds.core.limitrange import LimitRange
from tests.build import NOW


def a_range(*limits: dict[str, Any], **metadata: Any) -> LimitRange:
    return LIMIT_RANGES.prepare(msgspec.convert({"metadata": metadata, "spec": {"limits": limits}}, LimitRange))


def causes(*limits: dict[str, Any]) -> list[str]:
    return [f"{each.field}: {each.message}" for each in LIMIT_RANGES.validate(a_range(*limits))]


@pytest.mark.parametrize(
    ("given", "default", "request_"),
    [
        pytest.param({"max": {"cpu": "2"}}, {"cpu": "2"}, {"cpu": "2"}, id="the most is the default limit and request"),
        pytest.param({"min": {"cpu": "1"}}, {}, {"cpu": "1"}, id="the least is the default request"),
        pytest.param(
            {"min": {"cpu": "1"}, "default": {"cpu": 2}},
            {"cpu": "2"},
            {"cpu": "2"},
            id="a default limit goes before the least",
        ),
        pytest.param(
            {"max": {"cpu": "3"}, "default": {"cpu": "2"}, "defaultRequest": {"cpu": "0.5"}},
            {"cpu": "2"},
            {"cpu": "500m"},
            id="what is said stays",
        ),
    ],
)
def test_what_is_missing_for_containers_follows(given: dict, default: dict, request_: dict) -> None:
    (item,) = a_range({"type": "Container", **given}).spec.limits

    assert (item.default, item.default_request) == (default, request_)


def test_nothing_follows_for_pods() -> None:
    (item,) = a_range({"type": "Pod", "max": {"cpu": "2"}}).spec.limits

    assert (item.default, item.default_request) == ({}, {})


def container(**parts: Any) -> dict[str, Any]:
    return {"type": "Container", **parts}


L = "spec.limits[0]"


@pytest.mark.parametrize(
    ("limits", "expected"),
    [
        pytest.param([container(max={"cpu": "1"}), {"type": "Pod", "max": {"memory": "1Gi"}}], [], id="all is well"),
        pytest.param(
            [{"type": "Box"}],
            [f'{L}.type: Invalid value: "Box": must be a standard limit type or fully qualified'],
            id="an unknown type",
        ),
        pytest.param(
            [{"type": "Pod"}, {"type": "Pod"}], ['spec.limits[1].type: Duplicate value: "Pod"'], id="a type twice"
        ),
        pytest.param(
            [{"type": "Pod", "default": {"cpu": "1"}}],
            [f"{L}.default: Forbidden: may not be specified when `type` is 'Pod'"],
            id="defaults for pods",
        ),
        pytest.param(
            [{"type": "Pod", "max": {"pods": "1"}}],
            [f'{L}.max[pods]: Invalid value: "pods": must be a standard resource for containers'],
            id="what containers cannot ask for",
        ),
        pytest.param(
            [{"type": "PersistentVolumeClaim", "max": {"requests.storage": "1"}}],
            [
                f"{L}.limits: Required value: either minimum or maximum storage value is required, but neither was provided"
            ],
            id="no storage for claims",
        ),
        pytest.param(
            [{"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "1"}}],
            [f'{L}.min[cpu]: Invalid value: "2": min value 2 is greater than max value 1'],
            id="more at least than at most",
        ),
        pytest.param(
            [container(default={"cpu": "1"}, defaultRequest={"cpu": "2"})],
            [
                f'{L}.defaultRequest[cpu]: Invalid value: "2": default request value 2 is greater than default limit value 1'
            ],
            id="a request over its limit",
        ),
        pytest.param(
            [container(max={"cpu": "1"}, default={"cpu": "2"}, defaultRequest={"cpu": "1"})],
            [f'{L}.default[cpu]: Invalid value: "1": default value 2 is greater than max value 1'],
            id="a default over the most",
        ),
        pytest.param(
            [{"type": "Pod", "maxLimitRequestRatio": {"cpu": "500m"}}],
            [f'{L}.maxLimitRequestRatio[cpu]: Invalid value: "500m": ratio 500m is less than 1'],
            id="a ratio under one",
        ),
        pytest.param(
            [{"type": "Pod", "min": {"cpu": "2"}, "max": {"cpu": "3"}, "maxLimitRequestRatio": {"cpu": "2"}}],
            [f'{L}.maxLimitRequestRatio[cpu]: Invalid value: "2": ratio 2 is greater than max/min = 1.500000'],
            id="a ratio that nothing can reach",
        ),
        pytest.param(
            [container(default={"nvidia.com/gpu": "2"}, defaultRequest={"nvidia.com/gpu": "1"})],
            [
                f'{L}.defaultRequest[nvidia.com/gpu]: Invalid value: "1": '
                "default value 2 must equal to defaultRequest value 1 in nvidia.com/gpu"
            ],
            id="a device that is promised twice",
        ),
    ],
)
def test_validation(limits: list[dict], expected: list[str]) -> None:
    assert causes(*limits) == expected


def test_it_is_shown_with_the_moment_of_its_creation() -> None:
    row = LIMIT_RANGES.row(a_range(name="sizes", creationTimestamp=NOW), NOW)

    assert row == ["sizes", "2026-07-24T12:00:00Z"]
