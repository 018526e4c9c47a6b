"""Quotas as clients send them and see them."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from app.kinds.core.resourcequota import KIND as QUOTAS
from app.kinds.core.resourcequota import ResourceQuota
from tests.build import NOW


def a_quota(**parts: Any) -> ResourceQuota:
    quota = msgspec.convert(parts, ResourceQuota)
    return QUOTAS.prepare(quota)


def causes(**spec: Any) -> list[str]:
    return [f"{each.field}: {each.message}" for each in QUOTAS.validate(a_quota(spec=spec))]


@pytest.mark.parametrize(
    "name",
    [
        "pods",
        "cpu",
        "requests.memory",
        "limits.ephemeral-storage",
        "count/jobs.batch",
        "count/pods",
        "requests.nvidia.com/gpu",
        "hugepages-2Mi",
        "requests.hugepages-1Gi",
        "services.nodeports",
        "gold.storageclass.storage.k8s.io/requests.storage",
    ],
)
def test_a_quota_may_limit(name: str) -> None:
    assert causes(hard={name: "3"}) == []


@pytest.mark.parametrize(
    ("hard", "expected"),
    [
        pytest.param(
            {"gold": "1"},
            [
                'spec.hard[gold]: Invalid value: "gold": must be a standard resource type or fully qualified',
                'spec.hard[gold]: Invalid value: "gold": must be a standard resource for quota',
            ],
            id="something unknown",
        ),
        pytest.param(
            {"storage": "1"},
            ['spec.hard[storage]: Invalid value: "storage": must be a standard resource for quota'],
            id="what only volumes have",
        ),
        pytest.param(
            {"pods": "-1"},
            ['spec.hard[pods]: Invalid value: "-1": must be greater than or equal to 0'],
            id="to less than nothing",
        ),
        pytest.param(
            {"pods": "1500m"},
            ['spec.hard[pods]: Invalid value: "1500m": must be an integer'],
            id="to half a pod",
        ),
    ],
)
def test_a_quota_may_not_limit(hard: dict[str, str], expected: list[str]) -> None:
    assert causes(hard=hard) == expected


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({"hard": {"pods": "1"}, "scopes": ["BestEffort"]}, [], id="fits"),
        pytest.param(
            {"hard": {"count/pods": "1"}, "scopes": ["BestEffort"]}, [], id="is about a name that is not standard"
        ),
        pytest.param(
            {"hard": {"cpu": "1"}, "scopes": ["BestEffort"]},
            ['spec.scopes: Invalid value: ["BestEffort"]: unsupported scope applied to resource'],
            id="has none of the resource",
        ),
        pytest.param(
            {"scopes": ["Sunny"]}, ['spec.scopes: Invalid value: ["Sunny"]: unsupported scope'], id="is unknown"
        ),
        pytest.param(
            {"scopes": ["Terminating", "NotTerminating"]},
            ['spec.scopes: Invalid value: ["Terminating","NotTerminating"]: conflicting scopes'],
            id="excludes another",
        ),
    ],
)
def test_a_scope(spec: dict[str, Any], expected: list[str]) -> None:
    assert causes(**spec) == expected


def demand(**parts: Any) -> dict[str, Any]:
    return {"scopeSelector": {"matchExpressions": [parts]}}


AT = "spec.scopeSelector.matchExpressions"


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param(demand(scopeName="PriorityClass", operator="In", values=["high"]), [], id="fits"),
        pytest.param(
            demand(scopeName="PriorityClass", operator="In"),
            [
                f"{AT}.values: Required value: must be at least one value when `operator` is 'In' or 'NotIn' for scope selector"
            ],
            id="names no values",
        ),
        pytest.param(
            demand(scopeName="PriorityClass", operator="Exists", values=["high"]),
            [
                f'{AT}.values: Invalid value: ["high"]: '
                "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector"
            ],
            id="names values in vain",
        ),
        pytest.param(
            demand(scopeName="PriorityClass", operator="Like"),
            [f'{AT}.operator: Invalid value: "Like": not a valid selector operator'],
            id="has an unknown operator",
        ),
    ],
)
def test_a_demand_of_a_selector(spec: dict[str, Any], expected: list[str]) -> None:
    assert causes(**spec) == expected


def test_only_exists_goes_with_a_scope_that_has_no_values() -> None:
    (text,) = causes(**demand(scopeName="BestEffort", operator="NotIn", values=["x"]))

    assert text.startswith(f"{AT}.operator: Invalid value: \"NotIn\": must be 'Exist' when scope is any of ")


def test_scopes_cannot_change() -> None:
    old, new = a_quota(spec={"scopes": ["BestEffort"]}), a_quota(spec={"scopes": []})

    assert [(each.field, each.message) for each in QUOTAS.validate_update(new, old)] == [
        ("spec.scopes", "Invalid value: []: field is immutable")
    ]
    assert QUOTAS.validate_update(old, old) == []


def test_a_client_does_not_get_to_say_what_is_used() -> None:
    sent = a_quota(spec={"hard": {"pods": "1"}}, status={"hard": {"pods": "9"}, "used": {"pods": "0"}})
    old = a_quota(status={"used": {"pods": "1"}})

    assert QUOTAS.on_create(sent, NOW).status.hard == {}
    assert QUOTAS.on_update(sent, old).status == old.status


def test_a_status_is_checked_like_a_spec() -> None:
    new = a_quota(status={"hard": {"gold": "1"}, "used": {"pods": "-1"}})

    assert {each.field for each in QUOTAS.validate_status(new, new)} == {"status.hard[gold]", "status.used[pods]"}


def test_it_is_shown_as_kubectl_shows_it() -> None:
    quota = a_quota(
        metadata={"name": "q", "creationTimestamp": NOW},
        status={"hard": {"pods": "10", "cpu": "2", "limits.cpu": 4}, "used": {"pods": "3", "cpu": "1.5"}},
    )

    assert QUOTAS.row(quota, NOW + timedelta(seconds=5)) == ["q", "cpu: 1500m/2, pods: 3/10", "limits.cpu: 0/4", "5s"]
