"""The LocalQueue kind: what it may say, what it is taken to say, and what `kubectl get` shows."""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.scheduling.localqueue import KIND, LocalQueue, LocalQueuePreemption, LocalQueueSpec, LocalQueueStatus
from app.machinery.base import ObjectMeta
from app.machinery.meta.meta_condition import Condition

NOW = datetime(2026, 11, 1, tzinfo=UTC)


def a_queue(**spec: Any) -> LocalQueue:
    meta = ObjectMeta(name="default", namespace="team", creation_timestamp=NOW - timedelta(minutes=5))
    return LocalQueue(metadata=meta, spec=LocalQueueSpec(**spec))


def test_what_is_not_said_is_filled_in() -> None:
    spec = KIND.prepare(a_queue()).spec

    assert (spec.weight, spec.cohort) == (1, "default")
    assert spec.preemption == LocalQueuePreemption(reclaim_within_cohort="Never")


def test_amounts_are_kept_in_canonical_form() -> None:
    queue = KIND.prepare(a_queue(nominal_quota={"cpu": "1500m", "memory": "1024Mi"}, borrowing_limit={"cpu": 0.5}))

    assert queue.spec.nominal_quota == {"cpu": "1500m", "memory": "1Gi"}
    assert queue.spec.borrowing_limit == {"cpu": "500m"}


@pytest.mark.parametrize(
    ("spec", "causes"),
    [
        pytest.param({}, [], id="nothing needs to be said"),
        pytest.param({"nominal_quota": {"cpu": "1", "pods": 5, "nvidia.com/gpu": 2}}, [], id="resources of pods"),
        pytest.param(
            {"weight": 0},
            [("FieldValueInvalid", "spec.weight", "Invalid value: 0: must be between 1 and 1000000, inclusive")],
            id="a weight of nothing",
        ),
        pytest.param(
            {"nominal_quota": {"cpu": "-1"}},
            [
                (
                    "FieldValueInvalid",
                    "spec.nominalQuota[cpu]",
                    'Invalid value: "-1": must be greater than or equal to 0',
                )
            ],
            id="less than nothing",
        ),
        pytest.param(
            {"nominal_quota": {"requests.cpu": "1"}},
            [
                (
                    "FieldValueInvalid",
                    "spec.nominalQuota[requests.cpu]",
                    'Invalid value: "requests.cpu": must be a standard resource for containers',
                )
            ],
            id="what pods do not request by that name",
        ),
        pytest.param(
            {"nominal_quota": {"nvidia.com/gpu": "500m"}},
            [("FieldValueInvalid", "spec.nominalQuota[nvidia.com/gpu]", 'Invalid value: "500m": must be an integer')],
            id="half a device",
        ),
        pytest.param(
            {"borrowing_limit": {"cpu": "1"}},
            [
                (
                    "FieldValueRequired",
                    "spec.nominalQuota[cpu]",
                    "Required value: what has a borrowing limit must have a quota, which may be 0",
                )
            ],
            id="a limit without a quota",
        ),
        pytest.param(
            {"preemption": LocalQueuePreemption(reclaim_within_cohort="Always")},
            [
                (
                    "FieldValueNotSupported",
                    "spec.preemption.reclaimWithinCohort",
                    'Unsupported value: "Always": supported values: "Any", "Never"',
                )
            ],
            id="a word that nobody knows",
        ),
    ],
)
def test_faults_are_named(spec: dict[str, Any], causes: list[tuple[str, str, str]]) -> None:
    found = KIND.validate(KIND.prepare(a_queue(**spec)))

    assert [(each.reason, each.field, each.message) for each in found] == causes


def test_a_cohort_is_a_label() -> None:
    assert [each.field for each in KIND.validate(a_queue(cohort="Not A Label"))] == ["spec.cohort"]


def test_an_update_leaves_the_status_and_counts_changes_of_the_spec() -> None:
    old = replace(KIND.on_create(a_queue(), NOW), status=LocalQueueStatus(pending_pods=3))
    new = KIND.on_update(replace(old, spec=LocalQueueSpec(weight=5), status=LocalQueueStatus()), old)

    assert (new.metadata.generation, new.status.pending_pods) == (2, 3)


def test_a_row_shows_use_and_quota() -> None:
    active = Condition(type="Active", status="True", reason="Ready", last_transition_time=NOW)
    status = LocalQueueStatus(conditions=(active,), pending_pods=7, running_pods=4, usage={"cpu": "4"})
    queue = replace(KIND.prepare(a_queue(weight=2, nominal_quota={"cpu": "10", "memory": "8Gi"})), status=status)

    assert KIND.row(queue, NOW) == ["default", 2, "cpu: 4/10, memory: 0/8Gi", 7, 4, "True", "5m", "default"]
