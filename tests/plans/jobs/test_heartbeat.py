"""A Job whose submitter must renew a heartbeat: it fails at the exact time, and looks again then."""

from datetime import datetime, timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import Job
from app.kinds.batch.job_annotations import AFTER, HEARTBEAT, HEARTBEAT_TIMEOUT
from app.plans.annotation_state import moment
from app.plans.jobs.job import plan
from app.plans.plan import Plan
from tests.build import NOW, a_job, deleted, names, pods, status_of

TIMEOUT = timedelta(minutes=5)


def a_watched_job(created: datetime, beat: datetime | None = None, **spec: Any) -> Job:
    annotations = {HEARTBEAT_TIMEOUT: "5m"} | ({HEARTBEAT: moment(beat)} if beat else {})
    job = a_job(**spec)
    return replace(job, metadata=replace(job.metadata, creation_timestamp=created, annotations=annotations))


def planned(job: Job) -> Plan:
    return plan(job, pods("r"), NOW, names())


@pytest.mark.parametrize(
    ("created", "beat"),
    [
        pytest.param(NOW - TIMEOUT, None, id="the first one is its creation"),
        pytest.param(NOW - 3 * TIMEOUT, NOW - TIMEOUT, id="the last one counts"),
        pytest.param(NOW - TIMEOUT, NOW - 3 * TIMEOUT, id="one before its creation does not"),
    ],
)
def test_a_job_fails_when_its_heartbeat_is_missed(created: datetime, beat: datetime | None) -> None:
    second = timedelta(seconds=1)
    in_time = planned(a_watched_job(created + second, beat and beat + second))
    late = planned(a_watched_job(created, beat))

    assert (status_of(in_time).conditions, in_time.again_at) == ((), NOW + second)
    assert len(deleted(late)) == 1
    (target,) = status_of(late).conditions
    assert (target.type, target.reason) == ("FailureTarget", "HeartbeatMissed")
    assert target.message == ("Job's submitter has not renewed its heartbeat for 5m, since 2026-07-24T11:55:00Z")


@pytest.mark.parametrize("spec", [{"suspend": True}, {}], ids=["suspended", "waiting"])
def test_time_runs_also_for_a_job_that_may_not_run(spec: dict[str, Any]) -> None:
    job = a_watched_job(NOW - TIMEOUT, **spec)
    annotations = job.metadata.annotations | ({} if spec else {AFTER: "a"})
    waiting = replace(job, metadata=replace(job.metadata, annotations=annotations))

    assert status_of(plan(waiting, [], NOW, names())).conditions[-1].reason == "HeartbeatMissed"


def test_a_job_without_a_timeout_needs_no_heartbeat() -> None:
    job = a_watched_job(NOW - TIMEOUT)
    free = replace(job, metadata=replace(job.metadata, annotations={HEARTBEAT: moment(NOW - 3 * TIMEOUT)}))

    assert status_of(planned(free)).conditions == ()
    assert planned(free).again_at is None
