"""A finished Job goes when its time has come, and not before."""

from datetime import timedelta

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import Job, JobStatus
from app.machinery.base import Condition
from app.machinery.durations import LAST
from app.plans.jobs import ttl_after_finished
from app.plans.plan import Delete, Plan
from tests.build import NOW, a_job


def ended(kind: str = "Complete", ago: int = 60, status: str = "True", **spec: object) -> Job:
    at = NOW - timedelta(seconds=ago)
    return a_job(JobStatus(conditions=(Condition(type=kind, status=status, last_transition_time=at),)), **spec)


@pytest.mark.parametrize("kind", ["Complete", "Failed"])
def test_goes_with_its_pods_first_when_its_time_has_come(kind: str) -> None:
    job = ended(kind, ttl_seconds_after_finished=60)

    assert ttl_after_finished.plan(job, NOW) == Plan((Delete(job, propagation="Foreground"),))


def test_zero_is_at_once() -> None:
    assert ttl_after_finished.plan(ended(ago=0, ttl_seconds_after_finished=0), NOW).actions


def test_waits_for_its_time() -> None:
    assert ttl_after_finished.plan(ended(ttl_seconds_after_finished=100), NOW) == Plan(
        again_at=NOW + timedelta(seconds=40)
    )


def test_a_clock_that_was_wrong_only_delays() -> None:
    assert ttl_after_finished.plan(ended(ago=-50, ttl_seconds_after_finished=0), NOW).again_at == NOW + timedelta(
        seconds=50
    )


def test_an_end_at_the_end_of_time_is_waited_for() -> None:
    last = Condition(type="Complete", status="True", last_transition_time=LAST)
    job = a_job(JobStatus(conditions=(last,)), ttl_seconds_after_finished=60)

    assert ttl_after_finished.plan(job, NOW) == Plan(again_at=LAST)


@pytest.mark.parametrize(
    "job",
    [
        pytest.param(ended(), id="of which nobody said so"),
        pytest.param(a_job(ttl_seconds_after_finished=0), id="that runs"),
        pytest.param(ended("FailureTarget", ttl_seconds_after_finished=0), id="that is only about to fail"),
        pytest.param(ended("Complete", status="False", ttl_seconds_after_finished=0), id="whose condition is false"),
    ],
)
def test_stays(job: Job) -> None:
    assert ttl_after_finished.plan(job, NOW) == Plan()


def test_is_not_deleted_twice() -> None:
    job = ended(ttl_seconds_after_finished=0)
    going = replace(job, metadata=replace(job.metadata, deletion_timestamp=NOW))

    assert ttl_after_finished.plan(going, NOW) == Plan()
