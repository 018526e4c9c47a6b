"""Records of Jobs: what is said of how a Job and its pods ended."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.kinds.batch.job import Job, JobSpec, JobStatus
from app.kinds.pod.container import ContainerState, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus
from app.kinds.pod.pod import Pod, PodSpec, PodStatus
from app.machinery.base import Condition, ObjectMeta, OwnerReference
from app.plans.jobs.job_record import (
    Attempt,
    attempt_of,
    build_record,
    job_name_of,
    job_uid_of,
    parse_output,
    restarts_of,
    summarize,
)
from tests.build import NOW

LATER = NOW + timedelta(minutes=5)


def a_job(*conditions: str, **metadata: Any) -> Job:
    """A Job with these conditions."""
    made = tuple(Condition(type=each, status="True", last_transition_time=LATER) for each in conditions)
    meta = ObjectMeta(name="pi", namespace="default", uid="u", creation_timestamp=NOW, **metadata)
    return Job(metadata=meta, spec=JobSpec(parallelism=1), status=JobStatus(start_time=NOW, conditions=made))


def ended(name: str, code: int, message: str = "", seconds: int = 60) -> ContainerStatus:
    end = ContainerStateTerminated(
        exit_code=code,
        reason="Error" if code else "Completed",
        message=message,
        started_at=NOW,
        finished_at=NOW + timedelta(seconds=seconds),
    )
    return ContainerStatus(name=name, state=ContainerState(terminated=end))


def a_pod(*statuses: ContainerStatus, phase: str = "Failed", **metadata: Any) -> Pod:
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="pi", uid="u", controller=True)
    meta = ObjectMeta(name="pi-x", uid="p", creation_timestamp=NOW, **({"owner_references": (owner,)} | metadata))
    return Pod(metadata=meta, spec=PodSpec(node_name="n"), status=PodStatus(phase=phase, container_statuses=statuses))


@pytest.mark.parametrize(
    ("job", "deleted", "result", "ended_at"),
    [
        pytest.param(a_job("Complete", "Finished"), False, "Complete", LATER, id="complete"),
        pytest.param(a_job("Failed", "Finished"), False, "Failed", LATER, id="failed"),
        pytest.param(a_job("Failed"), True, "Failed", LATER, id="failed, then deleted"),
        pytest.param(a_job(), True, "Deleted", LATER + timedelta(hours=1), id="deleted"),
        pytest.param(a_job("FailureTarget"), False, "Running", None, id="running"),
    ],
)
def test_the_result_of_a_job(job: Job, deleted: bool, result: str, ended_at: Any) -> None:
    summary = summarize(job, LATER + timedelta(hours=1) if deleted else None)

    assert (summary.result, summary.ended_at) == (result, ended_at)
    assert (summary.deleted_at is not None) == deleted


def test_a_complete_job_ended_at_its_completion_time() -> None:
    job = a_job("Complete")
    job = replace(job, status=replace(job.status, completion_time=NOW))

    assert summarize(job).ended_at == NOW


def test_an_attempt_says_where_when_and_how_a_pod_ended() -> None:
    annotations = {"batch.kubernetes.io/job-completion-index": "3", "jobplane.dev/peak-memory": '{"a":5,"b":7}'}

    attempt = attempt_of(a_pod(ended("a", 0), ended("b", 3, "no disk", seconds=90), annotations=annotations))

    assert attempt == Attempt(
        pod="pi-x",
        pod_uid="p",
        index=3,
        node="n",
        created_at=NOW,
        started_at=NOW,
        ended_at=NOW + timedelta(seconds=90),
        phase="Failed",
        exit_code=3,
        reason="Error",
        message="no disk",
        peak_memory_bytes=12,
    )


@pytest.mark.parametrize(
    ("statuses", "main", "code"),
    [
        pytest.param([ended("a", 0), ended("b", 3)], "", 3, id="the first that failed"),
        pytest.param([ended("a", 0), ended("b", 3)], "a", 0, id="the main one"),
        pytest.param([ended("a", 0), ended("b", 0)], "", 0, id="the first if none failed"),
        pytest.param([ContainerStatus(name="a")], "", None, id="none if it never started"),
        pytest.param([], "", None, id="none without containers"),
    ],
)
def test_the_exit_code_is_of(statuses: list[ContainerStatus], main: str, code: int | None) -> None:
    annotations = {"jobplane.dev/main-container": main} if main else {}

    assert attempt_of(a_pod(*statuses, annotations=annotations)).exit_code == code


def test_an_init_container_that_failed_decides() -> None:
    pod = a_pod(ContainerStatus(name="a"))
    pod = replace(pod, status=replace(pod.status, init_container_statuses=(ended("init", 9),)))

    assert attempt_of(pod).exit_code == 9


def test_why_a_pod_failed_that_no_container_explains() -> None:
    pod = a_pod()
    pod = replace(pod, status=replace(pod.status, reason="NodeLost", message="gone"))

    attempt = attempt_of(pod)

    assert (attempt.reason, attempt.message, attempt.exit_code, attempt.ended_at) == ("NodeLost", "gone", None, None)


def test_a_pod_that_was_deleted_ended_then() -> None:
    assert attempt_of(a_pod(phase="Running"), LATER).ended_at == LATER
    assert attempt_of(a_pod(phase="Running")).ended_at is None


@pytest.mark.parametrize("text", ["", "{", "[1]", '{"a":"much"}'])
def test_a_peak_that_cannot_be_read_is_none(text: str) -> None:
    assert attempt_of(a_pod(annotations={"jobplane.dev/peak-memory": text})).peak_memory_bytes is None


@pytest.mark.parametrize(
    ("message", "output"),
    [
        pytest.param('{"loss":0.1}', {"loss": 0.1}, id="an object"),
        pytest.param("3", 3, id="a number"),
        pytest.param("no disk", None, id="text"),
        pytest.param("", None, id="nothing"),
        pytest.param("[" * 100_000, None, id="too deep"),
    ],
)
def test_output_is_the_message_as_json(message: str, output: Any) -> None:
    assert parse_output(message) == output


def test_only_pods_of_jobs_have_a_job() -> None:
    orphan = a_pod(
        owner_references=(),
        labels={"batch.kubernetes.io/controller-uid": "u", "batch.kubernetes.io/job-name": "pi"},
    )
    others = a_pod(owner_references=(OwnerReference(kind="ReplicaSet", name="r", uid="r", controller=True),))

    assert [(job_uid_of(each), job_name_of(each)) for each in (a_pod(), orphan)] == [("u", "pi")] * 2
    assert job_uid_of(others) == ""


def test_a_record_says_what_became_of_the_job() -> None:
    job = a_job("Complete", labels={"app": "pi"}, annotations={"jobplane.dev/rerun-of": "before"})

    record = build_record(msgspec.json.encode(job), summarize(job), [Attempt(pod="p", pod_uid="p")], 2)

    assert (record.attempts[0].pod, record.attempts_omitted) == ("p", 2)
    told = msgspec.json.decode(msgspec.json.encode(record))
    assert told["spec"] == {"parallelism": 1, "template": {}} or told["spec"]["parallelism"] == 1
    assert (told["kind"], told["metadata"]["uid"], told["rerunOf"]) == ("JobRecord", "u", "before")
    assert told["status"]["conditions"][0]["type"] == "Complete"
    assert "events" not in told
    assert {"podUID", "exitCode", "peakMemoryBytes"} <= set(told["attempts"][0])


def restarted(count: int, code: int = 1, name: str = "main") -> ContainerStatus:
    """Status of a container that runs again."""
    end = ContainerStateTerminated(exit_code=code, reason="Error", message="lost", started_at=NOW, finished_at=NOW)
    return ContainerStatus(name=name, restart_count=count, last_state=ContainerState(terminated=end))


@pytest.mark.parametrize(
    ("count", "expected"),
    [
        pytest.param(0, [], id="never restarted"),
        pytest.param(3, [2], id="the run before the last one"),
        pytest.param(-1, [], id="no count"),
        pytest.param(2**31, [], id="a count that no column takes"),
    ],
)
def test_a_restart_is_the_run_before(count: int, expected: list[int]) -> None:
    pod = a_pod()
    pod = replace(pod, status=replace(pod.status, container_statuses=(restarted(count),)))

    assert [each.run for each in restarts_of(pod)] == expected


@pytest.mark.parametrize("count", [0, 4])
def test_what_waits_for_a_restart_still_has_the_count_of_the_run_that_ended(count: int) -> None:
    pod, held = a_pod(), restarted(count)
    waits = replace(held, state=ContainerState(waiting=ContainerStateWaiting(reason="CrashLoopBackOff")))
    pod = replace(pod, status=replace(pod.status, container_statuses=(waits,)))

    assert [each.run for each in restarts_of(pod)] == [count]


def test_the_restarts_of_all_containers_are_counted() -> None:
    pod = a_pod()
    statuses = (restarted(2, 7), restarted(3, 137, "side"))
    pod = replace(pod, status=replace(pod.status, container_statuses=statuses))

    found = list(restarts_of(pod))

    assert attempt_of(pod).restart_count == 5
    assert [(each.container, each.run, each.exit_code) for each in found] == [("main", 1, 7), ("side", 2, 137)]
    assert (found[0].started_at, found[0].ended_at, found[0].message) == (NOW, NOW, "lost")
