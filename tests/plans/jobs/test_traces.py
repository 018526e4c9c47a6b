"""The trace of a Job: which spans, from when to when, whose they are, and what they say of failures."""

from datetime import datetime, timedelta

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import Job, JobStatus
from app.kinds.pod.container import ContainerState, ContainerStateTerminated, ContainerStatus
from app.kinds.pod.pod import Pod, PodStatus
from app.machinery.base import Condition
from app.plans.jobs.traces import TRACEPARENT, Span, parent_of, spans_of
from tests.build import LONG_AGO, a_job, a_pod

TRACE, SUBMITTER = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"


def at(seconds: float) -> datetime:
    return LONG_AGO + timedelta(seconds=seconds)


def ended_job(type_: str = "Complete", *, traceparent: str = "", **status: int) -> Job:
    """A Job that was made at 0 and ended at 100 seconds."""
    why = Condition(type=type_, status="True", reason="BackoffLimitExceeded", message="", last_transition_time=at(100))
    annotations = {TRACEPARENT: traceparent} if traceparent else {}
    return a_job(JobStatus(conditions=(why,), **status), {"annotations": annotations})


def an_attempt(
    name: str = "pi-0",
    *,
    scheduled: float | None = 10,
    started: float | None = 30,
    ended: float = 90,
    exit_code: int = 0,
    restarted: bool = False,
) -> Pod:
    """A pod that was made at 0."""
    pod = a_pod("Failed" if exit_code else "Succeeded", name=name)
    conditions = (
        ()
        if scheduled is None
        else (Condition(type="PodScheduled", status="True", last_transition_time=at(scheduled)),)
    )
    last = ContainerStateTerminated(
        exit_code=exit_code, started_at=at(started or 0), finished_at=at(ended), reason="Error"
    )
    before = ContainerStateTerminated(started_at=at(15), finished_at=at(20), exit_code=1)
    main = ContainerStatus(
        name="main",
        state=ContainerState(terminated=last),
        last_state=ContainerState(terminated=before) if restarted else None,
    )
    status = PodStatus(phase=pod.status.phase, conditions=conditions, container_statuses=(main,) if started else ())
    return replace(pod, status=status)


def times(spans: list[Span]) -> list[tuple[str, float, float]]:
    return [
        (each.name, (each.start - LONG_AGO).total_seconds(), (each.end - LONG_AGO).total_seconds()) for each in spans
    ]


def test_a_job_has_a_span_and_each_attempt_its_parts() -> None:
    spans = spans_of(ended_job(succeeded=1), [an_attempt()])

    assert times(spans) == [
        ("job", 0, 100),
        ("attempt", 0, 90),
        ("queued", 0, 10),
        ("pulling", 10, 30),
        ("running", 30, 90),
    ]
    job, attempt, *parts = spans
    assert (job.parent_id, attempt.parent_id) == (b"", job.span_id)
    assert {each.parent_id for each in parts} == {attempt.span_id}
    assert {each.trace_id for each in spans} == {job.trace_id}
    assert len({each.span_id for each in spans}) == 5
    assert not [each for each in spans if each.error]


def test_attributes_name_the_job_the_pod_and_the_outcome() -> None:
    job, attempt, *_ = spans_of(ended_job("Failed", failed=1), [an_attempt(exit_code=3)])

    assert job.attributes["k8s.job.name"] == "pi"
    assert (job.attributes["jobplane.job.result"], job.attributes["jobplane.job.failed"]) == ("Failed", 1)
    assert job.error == "BackoffLimitExceeded"
    assert (attempt.attributes["k8s.node.name"], attempt.attributes["process.exit.code"]) == ("node-1", 3)
    assert attempt.error == "Error"


@pytest.mark.parametrize(
    ("attempt", "expected"),
    [
        pytest.param(an_attempt(scheduled=None, started=None), [("queued", 0, 100)], id="never scheduled"),
        pytest.param(an_attempt(started=None), [("queued", 0, 10), ("pulling", 10, 100)], id="never started"),
        pytest.param(
            an_attempt(restarted=True), [("queued", 0, 10), ("pulling", 10, 15), ("running", 15, 90)], id="restarted"
        ),
        pytest.param(
            an_attempt(scheduled=10, started=9),
            [("queued", 0, 10), ("pulling", 10, 10), ("running", 9, 90)],
            id="clocks",
        ),
    ],
)
def test_an_attempt_may_have_fewer_parts(attempt: Pod, expected: list[tuple[str, float, float]]) -> None:
    assert times(spans_of(ended_job(), [attempt]))[2:] == expected


def test_the_same_job_has_the_same_trace() -> None:
    attempts = [an_attempt(f"pi-{number}") for number in range(3)]

    assert spans_of(ended_job(), attempts) == spans_of(ended_job(), attempts)
    assert len({each.span_id for each in spans_of(ended_job(), attempts)}) == 13


def test_a_job_that_has_not_ended_has_none() -> None:
    assert spans_of(a_job(), [an_attempt()]) == []


def test_a_job_goes_on_with_the_trace_of_its_submitter() -> None:
    job, *_ = spans_of(ended_job(traceparent=f"00-{TRACE}-{SUBMITTER}-01"), [])

    assert (job.trace_id.hex(), job.parent_id.hex()) == (TRACE, SUBMITTER)


def test_what_the_submitter_does_not_sample_is_not_exported() -> None:
    assert spans_of(ended_job(traceparent=f"00-{TRACE}-{SUBMITTER}-00"), [an_attempt()]) == []


@pytest.mark.parametrize(
    "text",
    [
        "nonsense",
        f"ff-{TRACE}-{SUBMITTER}-01",
        f"00-{'0' * 32}-{SUBMITTER}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SUBMITTER}-01",
    ],
)
def test_an_annotation_that_is_malformed_is_ignored(text: str) -> None:
    parent = parent_of(ended_job(traceparent=text))

    assert parent == parent_of(ended_job())
    assert parent.span_id == b""
