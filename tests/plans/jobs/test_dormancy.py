"""Which finished objects controllers need not hold: those about which there is nothing left to do."""

from collections.abc import Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import Job, JobStatus, UncountedTerminatedPods
from app.kinds.core.configmap import ConfigMap
from app.kinds.pod.pod import Pod
from app.machinery.base import Condition, OwnerReference
from app.plans.jobs.dormancy import CONTROLLER_UID, SHORTEST_TTL, Summary, find_dormancy, is_dormant, read_summary
from app.plans.jobs.finalizers import remove_tracking
from tests.build import NOW, a_job, pods

NOTHING: Mapping[str, Any] = MappingProxyType({})
OTHER = OwnerReference(api_version="v1", kind="ConfigMap", name="a", uid="a")


def ended(kind: str = "Complete", metadata: Mapping[str, Any] = NOTHING, ttl: int | None = None, **status: Any) -> Job:
    condition = Condition(type=kind, status="True", last_transition_time=NOW)
    job = a_job(JobStatus(conditions=(condition,), succeeded=2, failed=1), ttl_seconds_after_finished=ttl)
    return replace(
        job, metadata=replace(job.metadata, **metadata), status=replace(job.status, **status) if status else job.status
    )


def counted(phase: str = "s", **metadata: Any) -> Pod:
    job = a_job()
    pod = remove_tracking(pods(phase, job)[0])
    labels = {CONTROLLER_UID: job.metadata.uid}
    return replace(pod, metadata=replace(pod.metadata, **{"labels": labels} | metadata))


@pytest.mark.parametrize("kind", ["Complete", "Failed"])
def test_a_finished_job_is_dormant(kind: str) -> None:
    found = find_dormancy(ended(kind))

    assert found is not None
    assert found.expires_at is None
    assert read_summary(found.summary) == Summary(kind, 2, 1)


def test_one_with_a_ttl_tells_when_it_is_to_go() -> None:
    found = find_dormancy(ended(ttl=SHORTEST_TTL))

    assert found is not None
    assert found.expires_at == NOW + timedelta(seconds=SHORTEST_TTL)


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(a_job(), id="runs"),
        pytest.param(ended("SuccessCriteriaMet"), id="is about to complete"),
        pytest.param(ended(ttl=SHORTEST_TTL - 1), id="is deleted soon"),
        pytest.param(ended(active=1), id="has a pod"),
        pytest.param(ended(terminating=1), id="has a pod that ends"),
        pytest.param(ended(uncounted_terminated_pods=UncountedTerminatedPods(failed=("a",))), id="counts"),
        pytest.param(ended(metadata={"finalizers": ("mine/hold",)}), id="is held"),
        pytest.param(ended(metadata={"deletion_timestamp": NOW}), id="is on its way out"),
        pytest.param(ended(metadata={"owner_references": (OTHER,)}), id="is owned"),
    ],
)
def test_a_job_is_awake_that(job: Job) -> None:
    assert find_dormancy(job) is None


@pytest.mark.parametrize(("state", "phase"), [("s", "Succeeded"), ("f", "Failed")])
def test_a_pod_that_its_job_has_counted_is_dormant(state: str, phase: str) -> None:
    found = find_dormancy(counted(state))

    assert found is not None
    assert read_summary(found.summary).result == phase


@pytest.mark.parametrize(
    "pod",
    [
        pytest.param(counted("r"), id="runs"),
        pytest.param(pods("s", a_job())[0], id="is not counted"),
        pytest.param(counted(owner_references=()), id="belongs to nobody"),
        pytest.param(counted(owner_references=(*counted().metadata.owner_references, OTHER)), id="has two owners"),
        pytest.param(counted(labels={}), id="its Job does not select"),
        pytest.param(counted(deletion_timestamp=NOW), id="is on its way out"),
        pytest.param(counted(finalizers=("mine/hold",)), id="is held"),
    ],
)
def test_a_pod_is_awake_that(pod: Pod) -> None:
    assert not is_dormant(pod)


def test_nothing_else_is_ever_dormant() -> None:
    assert not is_dormant(ConfigMap())
