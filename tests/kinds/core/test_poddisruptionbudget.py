"""PodDisruptionBudgets: what is refused, and the row of `kubectl get`."""

from typing import Any

import msgspec
import pytest

from app.kinds.core.poddisruptionbudget import (
    KIND,
    PodDisruptionBudget,
    PodDisruptionBudgetSpec,
    PodDisruptionBudgetStatus,
)
from app.machinery.base import LabelSelector, LabelSelectorRequirement, ObjectMeta
from app.machinery.meta.meta_condition import Condition
from tests.build import LONG_AGO, NOW


def a_budget(**spec: Any) -> PodDisruptionBudget:
    metadata = ObjectMeta(name="w", creation_timestamp=LONG_AGO)
    return PodDisruptionBudget(metadata=metadata, spec=PodDisruptionBudgetSpec(**spec))


def faults(budget: PodDisruptionBudget) -> list[str]:
    return [f"{cause.field}: {cause.message}" for cause in KIND.validate(budget)]


@pytest.mark.parametrize(
    ("spec", "fault"),
    [
        pytest.param(
            {"min_available": 1, "max_unavailable": 1},
            'spec: Invalid value: {"minAvailable":1,"maxUnavailable":1}: '
            "minAvailable and maxUnavailable cannot be both set",
            id="both",
        ),
        pytest.param(
            {"min_available": -1},
            "spec.minAvailable: Invalid value: -1: must be greater than or equal to 0",
            id="fewer than none",
        ),
        pytest.param(
            {"max_unavailable": "101%"},
            'spec.maxUnavailable: Invalid value: "101%": must not be greater than 100%',
            id="more than all",
        ),
        pytest.param(
            {"min_available": "some"},
            'spec.minAvailable: Invalid value: "some": a valid percent string must be a numeric string followed by '
            "an ending '%' (e.g. '1%',  or '93%', regex used for validation is '[0-9]+%')",
            id="a word",
        ),
        pytest.param(
            {"unhealthy_pod_eviction_policy": "Never"},
            'spec.unhealthyPodEvictionPolicy: Unsupported value: "Never": '
            'supported values: "AlwaysAllow", "IfHealthyBudget"',
            id="an unknown policy",
        ),
        pytest.param(
            {"selector": LabelSelector(match_expressions=(LabelSelectorRequirement(key="a", operator="Is"),))},
            'spec.selector.matchExpressions[0].operator: Invalid value: "Is": not a valid selector operator',
            id="a bad selector",
        ),
    ],
)
def test_refused(spec: dict[str, Any], fault: str) -> None:
    assert faults(a_budget(**spec)) == [fault]


@pytest.mark.parametrize("spec", [{}, {"min_available": 0}, {"min_available": "50%"}, {"max_unavailable": "100%"}])
def test_accepted(spec: dict[str, Any]) -> None:
    assert faults(a_budget(**spec)) == []


def test_a_status_that_makes_no_sense_is_refused() -> None:
    condition = Condition(type="DisruptionAllowed", status="Perhaps", reason="no reason")
    status = PodDisruptionBudgetStatus(disruptions_allowed=-1, conditions=(condition,))
    budget = msgspec.structs.replace(a_budget(), status=status)

    fields = [cause.field for cause in KIND.validate_status(budget, a_budget())]

    path = "status.conditions[0]"
    assert fields == [f"{path}.status", f"{path}.lastTransitionTime", f"{path}.reason", "status.disruptionsAllowed"]


def test_counts_of_zero_are_told_because_clients_insist() -> None:
    status = msgspec.to_builtins(PodDisruptionBudgetStatus())

    assert status == {"disruptionsAllowed": 0, "currentHealthy": 0, "desiredHealthy": 0, "expectedPods": 0}


@pytest.mark.parametrize(
    ("spec", "cells"),
    [
        pytest.param({"min_available": 2}, ["2", "N/A"], id="that must stay"),
        pytest.param({"max_unavailable": "10%"}, ["N/A", "10%"], id="that may go"),
    ],
)
def test_the_row(spec: dict[str, Any], cells: list[str]) -> None:
    assert KIND.row(a_budget(**spec), NOW) == ["w", *cells, 0, "120m"]
