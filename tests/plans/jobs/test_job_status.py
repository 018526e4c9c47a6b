"""How a Job ends: outcomes, limits, deadlines; and how it pauses."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import Job, JobStatus
from app.kinds.pod.pod import Pod
from app.machinery.base import Condition
from app.plans.jobs.finalizers import untrack_all
from app.plans.jobs.job import plan
from app.plans.plan import Plan, SetStatus, Update
from tests.build import (
    LONG_AGO,
    NOW,
    a_job,
    a_pod,
    a_template,
    names,
    pods,
    said,
    status_of,
    stored,
    told,
    updated,
)

WAITS_FOR_END = {"pod_replacement_policy": "Failed"}


def planned(job: Job, *seen: Pod) -> Plan:
    return plan(job, seen, NOW, names())


def test_an_end_repeats_its_reason_and_message() -> None:
    status = status_of(planned(a_job(backoff_limit=0), *pods("f")))

    said = [(each.type, each.status, each.reason, each.message) for each in status.conditions]
    why = ("True", "BackoffLimitExceeded", "Job has reached the specified backoff limit")
    assert said == [("FailureTarget", *why), ("Finished", *why), ("Failed", *why)]
    assert status.completion_time is None


def test_completion_has_a_time_and_a_reason() -> None:
    status = status_of(planned(a_job(), *pods("s")))

    said = [(each.type, each.reason, each.message) for each in status.conditions]
    why = ("CompletionsReached", "Reached expected number of succeeded pods")
    assert said == [("SuccessCriteriaMet", *why), ("Finished", *why), ("Complete", *why)]
    assert status.completion_time == status.conditions[-1].last_transition_time == NOW


@pytest.mark.parametrize(
    ("interim", "terminal", "event"),
    [("SuccessCriteriaMet", "Complete", "Completed"), ("FailureTarget", "Failed", "Why")],
)
def test_an_outcome_once_written_stands(interim: str, terminal: str, event: str) -> None:
    outcome = Condition(type=interim, status="True", reason="Why", message="because", last_transition_time=LONG_AGO)
    job = a_job(JobStatus(conditions=(outcome,), start_time=LONG_AGO))

    result = planned(job, *pods("S"))

    first, finished, last = status_of(result).conditions
    assert first == outcome
    assert (last.type, last.reason, last.message) == (terminal, "Why", "because")
    assert finished == replace(last, type="Finished")
    assert told(result) == [event]


def test_after_success_is_certain_the_remaining_pods_count_for_nothing() -> None:
    outcome = Condition(type="SuccessCriteriaMet", status="True", reason="SuccessPolicy")

    result = planned(a_job(JobStatus(conditions=(outcome,)), parallelism=3, completions=5), *pods("rrt"))

    assert said(result) == "delete 2, SuccessCriteriaMet"
    assert (status_of(result).terminating, status_of(result).failed) == (3, 1)


@pytest.mark.parametrize("terminal", ["Complete", "Failed"])
def test_a_finished_job_only_removes_the_finalizer_of_its_pods(terminal: str) -> None:
    job = a_job(JobStatus(conditions=(Condition(type=terminal, status="True"),)))
    theirs = a_pod("Failed", job=a_job(metadata={"uid": "another"}))

    result = planned(job, *pods("rS"), theirs)

    assert [type(each) for each in result.actions] == [Update]
    assert updated(result)[0].metadata.finalizers == ()


def test_pods_of_a_job_that_is_gone_lose_the_finalizer() -> None:
    assert [each.object.metadata.finalizers for each in untrack_all(None, pods("rS"))] == [()]


@pytest.mark.parametrize(
    ("manager", "expected"),
    [(None, "create 1"), ("kubernetes.io/job-controller", "create 1"), ("acme.io/other", "nothing")],
)
def test_a_job_of_another_manager_is_left_alone(manager: str | None, expected: str) -> None:
    assert said(planned(a_job(managed_by=manager))) == expected


def test_a_job_being_deleted_neither_starts_nor_stops_pods_and_lets_go_of_all() -> None:
    job = a_job(metadata={"deletion_timestamp": NOW}, parallelism=3, completions=5)

    result = planned(job, *pods("rs"))

    assert {type(each) for each in result.actions} == {Update, SetStatus}
    assert [pod.metadata.finalizers for pod in updated(result)] == [(), ()]


def test_an_unknown_completion_mode_is_said_and_nothing_else() -> None:
    result = planned(a_job(completion_mode="Fuzzy"))

    assert told(result) == ["UnknownCompletionMode"]
    assert len(result.actions) == 1


# Limits.


@pytest.mark.parametrize(
    ("limit", "restarts", "expected"),
    [
        pytest.param(0, (0,), "nothing", id="no restart is none"),
        pytest.param(0, (1,), "delete 1, FailureTarget", id="limit 0 allows none"),
        pytest.param(3, (2,), "nothing", id="below the limit"),
        pytest.param(3, (2, 1), "delete 2, FailureTarget", id="at the limit, over all pods"),
    ],
)
def test_restarts_in_place_use_up_the_limit(limit: int, restarts: tuple[int, ...], expected: str) -> None:
    template = a_template(restart_policy="OnFailure")
    job = a_job(backoff_limit=limit, parallelism=len(restarts), completions=5, template=template)
    seen = [a_pod(name=f"pi-{number}", restarts=each) for number, each in enumerate(restarts)]

    assert said(planned(job, *seen)) == expected


def test_restarts_do_not_matter_to_pods_that_never_restart() -> None:
    assert said(planned(a_job(backoff_limit=0), a_pod(restarts=3))) == "nothing"


@pytest.mark.parametrize(
    ("age", "spec", "expected"),
    [
        pytest.param(59, {}, "nothing", id="in time"),
        pytest.param(60, {}, "delete 1, FailureTarget", id="overdue"),
        pytest.param(60, {"suspend": True}, "delete 1, Suspended", id="suspended is never overdue"),
    ],
)
def test_deadline(age: int, spec: dict[str, Any], expected: str) -> None:
    start = NOW - timedelta(seconds=age)
    job = a_job(JobStatus(start_time=start), active_deadline_seconds=60, **spec)

    assert said(planned(job, *pods("r"))) == expected


def test_a_deadline_of_nothing_fails_at_once() -> None:
    assert said(planned(a_job(active_deadline_seconds=0))) == "Failed"


def test_a_deadline_without_measure_never_comes() -> None:
    again_at = planned(a_job(active_deadline_seconds=2**63 - 1)).again_at

    assert again_at
    assert again_at > NOW + timedelta(days=100_000)


def test_it_looks_again_at_the_deadline() -> None:
    assert planned(a_job(active_deadline_seconds=60)).again_at == NOW + timedelta(seconds=60)


def test_too_many_failures_are_told_before_the_deadline() -> None:
    job = a_job(JobStatus(start_time=LONG_AGO), active_deadline_seconds=1, backoff_limit=0)

    assert status_of(planned(job, *pods("f"))).conditions[-1].reason == "BackoffLimitExceeded"


# Suspending and resuming.


def test_suspending_clears_the_start_time() -> None:
    result = planned(a_job(JobStatus(start_time=LONG_AGO), suspend=True), *pods("r"))

    (condition,) = status_of(result).conditions
    assert (condition.reason, condition.message) == ("JobSuspended", "Job suspended")
    assert status_of(result).start_time is None
    assert told(result) == ["SuccessfulDelete", "Suspended"]


@pytest.mark.parametrize("start", [None, LONG_AGO], ids=["cleared", "left by an older version"])
def test_resuming_starts_the_clock_anew(start: Any) -> None:
    suspended = Condition(type="Suspended", status="True", reason="JobSuspended")
    job = a_job(JobStatus(conditions=(suspended,), start_time=start), active_deadline_seconds=60)

    result = planned(job)

    (condition,) = status_of(result).conditions
    assert (condition.status, condition.reason, condition.message) == ("False", "JobResumed", "Job resumed")
    assert status_of(result).start_time == NOW
    assert result.again_at == NOW + timedelta(seconds=60)
    assert told(result) == ["SuccessfulCreate", "Resumed"]


def test_the_clock_starts_once_for_a_job_that_ends_as_it_is_resumed() -> None:
    suspended = Condition(type="Suspended", status="True", reason="JobSuspended")
    job, seen = a_job(JobStatus(conditions=(suspended,)), completions=0), pods("T")
    job = stored(planned(job, *seen), job)

    assert plan(job, seen, NOW + timedelta(seconds=1), names()) == Plan()


def test_a_job_that_never_was_suspended_says_nothing_of_it() -> None:
    assert status_of(planned(a_job(suspend=False))).conditions == ()
