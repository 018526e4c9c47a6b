"""Scaling: which of a Job's pods are deleted first."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod
from app.plans.jobs.job import plan
from app.plans.plan import Plan
from tests.build import NOW, a_job, a_pod, deleted, names


def planned(job: Job, *seen: Pod) -> Plan:
    return plan(job, seen, NOW, names())


@pytest.mark.parametrize(
    ("first", "second"),
    [
        pytest.param({"node_name": ""}, {}, id="one without a node"),
        pytest.param({"phase": "Pending"}, {}, id="one that does not run yet"),
        pytest.param({}, {"ready": True}, id="one that is not ready"),
        pytest.param({"restarts": 3}, {"restarts": 1}, id="one that restarts more often"),
    ],
)
def test_deletes_first(first: dict[str, Any], second: dict[str, Any]) -> None:
    pair = [a_pod(name="second", **second), a_pod(name="first", **first)]

    assert [pod.metadata.name for pod in deleted(planned(a_job(), *pair))] == ["first"]


@pytest.mark.parametrize("ready", [True, False], ids=["that is ready for less time", "that is younger"])
def test_deletes_first_the_pod(ready: bool) -> None:
    old = a_pod(name="old", ready=ready)
    young = a_pod(name="young", ready=ready)
    since = tuple(replace(each, last_transition_time=NOW) for each in young.status.conditions)
    young = replace(
        young,
        metadata=replace(young.metadata, creation_timestamp=NOW),
        status=replace(young.status, conditions=since),
    )

    assert [pod.metadata.name for pod in deleted(planned(a_job(), old, young))] == ["young"]
