"""How long a Job waits after failures, and where it keeps that in mind."""

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec.structs import replace

from app.kinds.batch.job import Job
from app.machinery.base import Condition
from app.plans.jobs.backoff import ANNOTATION, Backoff, annotate, delay, ended_at, read, update
from app.plans.jobs.job import plan
from tests.build import LONG_AGO, NOW, a_job, a_pod, names, pods, said, stored


def ago(seconds: int) -> datetime:
    return NOW - timedelta(seconds=seconds)


def a_job_that_failed(failures: int, seconds_ago: int) -> Job:
    text = f"{failures};{ago(seconds_ago):%Y-%m-%dT%H:%M:%SZ}"
    return a_job(metadata={"annotations": {ANNOTATION: text}}, parallelism=2, completions=5)


@pytest.mark.parametrize(
    ("failures", "seconds"), [(0, 0), (1, 10), (2, 20), (3, 40), (6, 320), (7, 600), (8, 600), (10**9, 600)]
)
def test_delay_doubles_up_to_ten_minutes(failures: int, seconds: int) -> None:
    assert delay(failures) == timedelta(seconds=seconds)


def test_waits_before_it_retries() -> None:
    result = plan(a_job(), [a_pod("Failed", finished_at=NOW)], NOW, names())

    assert said(result) == "nothing"
    assert result.again_at == NOW + timedelta(seconds=10)


@pytest.mark.parametrize(
    ("failures", "seconds_ago", "expected"),
    [
        pytest.param(1, 9, "nothing", id="waits 10 s after one"),
        pytest.param(1, 10, "create 2", id="then goes on"),
        pytest.param(3, 39, "nothing", id="waits 40 s after three"),
        pytest.param(20, 601, "create 2", id="waits never over ten minutes"),
    ],
)
def test_failures_are_remembered_when_their_pods_are_gone(failures: int, seconds_ago: int, expected: str) -> None:
    assert said(plan(a_job_that_failed(failures, seconds_ago), [], NOW, names())) == expected


def test_a_wait_holds_up_pods_that_replace_nothing() -> None:
    assert said(plan(a_job_that_failed(1, 5), pods("r"), NOW, names())) == "nothing"


def test_a_wait_does_not_keep_pods_from_being_stopped() -> None:
    assert said(plan(a_job_that_failed(1, 5), pods("rrr"), NOW, names())) == "delete 1"


@pytest.mark.parametrize(
    ("letters", "expected"),
    [
        pytest.param("f", f"1;{LONG_AGO:%Y-%m-%dT%H:%M:%SZ}", id="a failure is noted"),
        pytest.param("s", None, id="a success is not"),
        pytest.param("r", None, id="a running pod is not"),
        pytest.param("F", None, id="a counted failure is not noted again"),
    ],
)
def test_annotation(letters: str, expected: str | None) -> None:
    job = stored(plan(a_job(completions=5), pods(letters), NOW, names()), a_job())

    assert job.metadata.annotations.get(ANNOTATION) == expected


@pytest.mark.parametrize("letters", ["s", "sssss"], ids=["with a success", "with the end"])
def test_the_annotation_goes(letters: str) -> None:
    job = stored(plan(a_job_that_failed(3, 5), pods(letters), NOW, names()), a_job())

    assert ANNOTATION not in job.metadata.annotations


@pytest.mark.parametrize(
    ("succeeded", "failed", "expected"),
    [
        pytest.param([], [], Backoff(2, ago(100)), id="nothing new, nothing changes"),
        pytest.param([], [50, 20], Backoff(4, ago(20)), id="failures add up"),
        pytest.param([], [500], Backoff(3, ago(100)), id="the latest failure is what counts"),
        pytest.param([30], [], Backoff(), id="a success ends it"),
        pytest.param([30], [50, 20, 10], Backoff(2, ago(10)), id="failures after the success start anew"),
        pytest.param([30], [50, 30], Backoff(), id="failures before the success are forgotten"),
    ],
)
def test_what_is_remembered(succeeded: list[int], failed: list[int], expected: Backoff) -> None:
    well = [a_pod("Succeeded", finished_at=ago(each)) for each in succeeded]
    ill = [a_pod("Failed", finished_at=ago(each)) for each in failed]

    assert update(Backoff(2, ago(100)), well, ill, NOW) == expected


@given(
    failures=some.integers(1, 10**6),
    seconds=some.integers(0, 10**8),
    others=some.dictionaries(some.text(), some.text()),
)
def test_what_is_noted_is_remembered(failures: int, seconds: int, others: dict[str, str]) -> None:
    backoff = Backoff(failures, ago(seconds))
    job = a_job(metadata={"annotations": annotate(others, backoff)})

    assert read(job, NOW) == backoff
    assert annotate(job.metadata.annotations, Backoff()) == {key: others[key] for key in others if key != ANNOTATION}


@pytest.mark.parametrize(
    "text",
    [
        *["", "3", "3;", "x;2026-07-24T12:00:00Z", "3;yesterday", "3;2026-07-24T12:00:00", ";;"],
        *["3;9999-12-31T23:59:59Z", "3;0001-01-01T00:00:00+12:00", "3;9999-12-31T23:59:59-12:00"],
        *["0;2026-07-24T12:00:00Z", "-3;2026-07-24T12:00:00Z", f"{2**31};2026-07-24T12:00:00Z"],
        *[f"{'9' * 4300};2026-07-24T12:00:00Z", f"{'9' * 5000};2026-07-24T12:00:00Z"],
    ],
)
def test_what_is_garbled_is_forgotten(text: str) -> None:
    assert read(a_job(metadata={"annotations": {ANNOTATION: text}}), NOW) == Backoff()


def test_a_failure_is_believed_of_a_clock_that_is_a_little_ahead_but_not_of_a_year_to_come() -> None:
    said = [f"3;{ago(-seconds):%Y-%m-%dT%H:%M:%SZ}" for seconds in (600, 601)]

    known = [read(a_job(metadata={"annotations": {ANNOTATION: each}}), NOW) for each in said]
    assert known == [Backoff(3, ago(-600)), Backoff()]


def test_a_pod_ended_with_its_last_container() -> None:
    assert ended_at(a_pod("Failed", finished_at=ago(7)), NOW) == ago(7)


def test_a_pod_ended_never_after_now() -> None:
    assert ended_at(a_pod("Failed", finished_at=ago(-3600)), NOW) == NOW


def test_a_pod_whose_containers_say_nothing_ended_when_it_was_no_longer_ready() -> None:
    pod = a_pod()
    unready = Condition(type="Ready", status="False", last_transition_time=ago(5))

    assert ended_at(replace(pod, status=replace(pod.status, conditions=(unready,))), NOW) == ago(5)


def test_a_deleted_pod_ended_when_that_was_asked_for() -> None:
    pod = a_pod(deleted_at=NOW)
    graceful = replace(pod, metadata=replace(pod.metadata, deletion_grace_period_seconds=30))

    assert ended_at(graceful, NOW) == ago(30)


def test_of_a_pod_that_says_nothing_all_that_is_left_is_when_it_was_created() -> None:
    assert ended_at(a_pod("Pending"), NOW) == LONG_AGO
