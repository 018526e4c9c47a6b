"""Adoption and release: which pods a Job claims."""

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod
from app.machinery.base import OwnerReference
from app.plans.jobs.finalizers import TRACKING
from app.plans.jobs.job import plan
from app.plans.plan import Plan, Update
from tests.build import (
    NOW,
    a_job,
    a_pod,
    names,
    pods,
    said,
    status_of,
    updated,
)


def planned(job: Job, *seen: Pod) -> Plan:
    return plan(job, seen, NOW, names())


def an_orphan(phase: str = "Running", **labels: str) -> Pod:
    pod = a_pod(phase)
    meta = replace(pod.metadata, owner_references=(), finalizers=(), labels=pod.metadata.labels | labels)
    return replace(pod, metadata=meta)


def test_an_orphan_that_matches_is_adopted() -> None:
    orphan = an_orphan()
    result = planned(a_job(), orphan)

    (update,) = [each for each in result.actions if isinstance(each, Update)]
    assert update.old is orphan
    assert update.object.metadata.owner_references == (
        OwnerReference(
            api_version="batch/v1",
            kind="Job",
            name="pi",
            uid="uid-of-pi",
            controller=True,
            block_owner_deletion=True,
        ),
    )
    assert update.object.metadata.finalizers == (TRACKING,)
    assert said(result) == "nothing"


def test_an_orphan_that_has_ended_is_adopted_and_counted_in_one() -> None:
    (pod,) = updated(planned(a_job(), an_orphan("Succeeded")))

    assert pod.metadata.owner_references
    assert pod.metadata.finalizers == ()


@pytest.mark.parametrize(
    "orphan",
    [
        pytest.param(an_orphan(**{"batch.kubernetes.io/controller-uid": "another"}), id="of other labels"),
        pytest.param(
            replace(an_orphan(), metadata=replace(an_orphan().metadata, deletion_timestamp=NOW)), id="deleted"
        ),
        pytest.param(a_pod(job=a_job(metadata={"uid": "another"})), id="of another job"),
    ],
)
def test_no_other_pod_is_touched(orphan: Pod) -> None:
    result = planned(a_job(parallelism=0), orphan)

    assert updated(result) == []
    assert status_of(result).active == 0


def test_a_pod_that_matches_no_more_is_released_and_replaced() -> None:
    (pod,) = pods("r")
    strayed = replace(pod, metadata=replace(pod.metadata, labels={}))

    result = planned(a_job(), strayed)

    (released,) = updated(result)
    assert (released.metadata.owner_references, released.metadata.finalizers) == ((), ())
    assert said(result) == "create 1"
