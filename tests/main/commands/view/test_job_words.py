"""The state of a Job in words."""

from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from app.kinds.batch.job import Job
from app.kinds.pod.pod import Pod
from app.main.commands.view.attempts import Attempt, attempt_of
from app.main.commands.view.job_words import Reader, describe, describe_after, describe_exit, describe_wait, exit_code

START = datetime(2026, 3, 4, 14, 0, 0, tzinfo=UTC)
NOW = START + timedelta(minutes=2, seconds=30)
READER = Reader(NOW, UTC)


def job(spec: dict[str, Any] | None = None, annotations: dict[str, str] | None = None, **status: Any) -> Job:
    container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": "2", "memory": "4Gi"}}}
    document = {
        "metadata": {"name": "train", "namespace": "default", "uid": "u", "annotations": annotations or {}},
        "spec": {"template": {"spec": {"containers": [container]}}, "completions": 1, "parallelism": 1, **(spec or {})},
        "status": {"startTime": "2026-03-04T14:00:00Z", **status},
    }
    return msgspec.convert(document, Job)


def ended(type_: str, reason: str = "", message: str = "", **status: Any) -> dict[str, Any]:
    condition = {
        "type": type_, "status": "True", "reason": reason, "message": message, "lastTransitionTime": "2026-03-04T14:02:10Z",
    }  # fmt: skip
    return {"conditions": [condition], **status}


def attempt(phase: str, **more: Any) -> Attempt:
    return Attempt(pod=f"train-{len(more)}", pod_uid="p", phase=phase, **{"created_at": START, **more})


FAILURE = attempt("Failed", exit_code=1, reason="Error", ended_at=START + timedelta(minutes=1))
SHORT = "0/1 nodes are available: 1 Insufficient cpu. preemption: 0/1 nodes are available: 1 Preemption is not helpful."
MANY = {"completions": 100, "parallelism": 10, "completionMode": "Indexed"}


@pytest.mark.parametrize(
    ("found", "attempts", "words"),
    [
        pytest.param(job(), [], "pending: its pod is being created", id="new"),
        pytest.param(
            job(active=1, ready=0),
            [attempt("Pending", reason="Unschedulable", message=SHORT)],
            "pending: waits for 2 free CPUs: 0/1 nodes are available: 1 Insufficient cpu",
            id="no node has room",
        ),
        pytest.param(
            job(active=1, ready=1),
            [attempt("Running", started_at=START + timedelta(seconds=2))],
            "running since 14:00:02",
            id="first attempt",
        ),
        pytest.param(
            job(active=1, ready=1, failed=2, spec={"backoffLimit": 6}),
            [FAILURE, attempt("Running", created_at=NOW, started_at=START + timedelta(seconds=130))],
            "attempt 3 of 7 since 14:02:10, because exit code 1",
            id="a further attempt",
        ),
        pytest.param(
            job(failed=2),
            [FAILURE],
            "attempt 3 of 7 is about to start, because exit code 1",
            id="between two attempts",
        ),
        pytest.param(
            job(failed=2, annotations={"jobplane.dev/backoff": "2;2026-03-04T14:02:20Z"}),
            [FAILURE],
            "attempt 3 of 7 at 14:02:40, because exit code 1",
            id="back-off",
        ),
        pytest.param(job(active=1, ready=1, failed=2), [], "running, attempt 3 of 7", id="without its pods"),
        pytest.param(job(spec={"suspend": True}), [], "suspended", id="suspended"),
        pytest.param(
            job(conditions=[{"type": "DependenciesMet", "status": "False", "message": "Job waits for Job a to complete"}]),
            [],
            "pending: waits for Job a to complete",
            id="after others",
        ),
        pytest.param(job(MANY, active=10, ready=7, succeeded=3), [], "3 of 100 done, 7 running, 3 pending", id="array"),
        pytest.param(
            job(MANY, active=1, succeeded=3, failed=1),
            [attempt("Pending", reason="Unschedulable", message=SHORT)],
            "3 of 100 done, 1 pending, 1 failed: waits for 2 free CPUs: 0/1 nodes are available: "
            "1 Insufficient cpu",
            id="array that waits",
        ),
        pytest.param(
            job(**ended("Complete", completionTime="2026-03-04T14:02:10Z", succeeded=1)), [], "complete after 2m10s", id="ok"
        ),
        pytest.param(
            job({"backoffLimit": 0}, **ended("Failed", "BackoffLimitExceeded", failed=1)),
            [FAILURE],
            "failed after 2m10s: exit code 1 in attempt 1 of 1",
            id="failed",
        ),
        pytest.param(
            job(**ended("Failed", "BackoffLimitExceeded", failed=7)),
            [],
            "failed after 2m10s: 7 of 7 attempts failed",
            id="failed, and its pods are gone",
        ),
        pytest.param(
            job({"activeDeadlineSeconds": 130}, **ended("Failed", "DeadlineExceeded")),
            [],
            "failed after 2m10s: its time of 2m10s was over",
            id="deadline",
        ),
        pytest.param(
            job(MANY, **ended("Failed", "FailedIndexes", failedIndexes="3,5-7")),
            [],
            "failed after 2m10s: indexes 3,5-7 failed",
            id="failed indexes",
        ),
        pytest.param(
            job(**ended("Failed", "HeartbeatMissed", "no heartbeat for 5m")),
            [FAILURE],
            "failed after 2m10s: no heartbeat for 5m",
            id="any other reason",
        ),
    ],
)  # fmt: skip
def test_the_state_in_words(found: Job, attempts: list[Attempt], words: str) -> None:
    assert describe(found, attempts, READER) == words


def test_a_time_of_another_day_is_told_with_its_date() -> None:
    running = attempt("Running", started_at=START)
    assert (
        describe(job(active=1), [running], Reader(NOW + timedelta(days=1), UTC)) == "running since 2026-03-04 14:00:00"
    )


@pytest.mark.parametrize(
    ("wait", "words"),
    [
        ({"reason": "ImagePullBackOff"}, "its image cannot be pulled; it is tried again"),
        ({"reason": "Unschedulable", "message": "0/3 nodes are available: 3 Insufficient memory, 1 Insufficient cpu."},
         "waits for 2 free CPUs and 4Gi of free memory: 0/3 nodes are available: 3 Insufficient memory, 1 Insufficient cpu"),
        ({"reason": "Unschedulable",
          "message": f"{SHORT} Fits if a node has 2 free CPUs: the most free is 1 on node-a."},
         "waits for 2 free CPUs: 0/1 nodes are available: 1 Insufficient cpu; "
         "fits if a node has 2 free CPUs: the most free is 1 on node-a"),
        ({"reason": "Unschedulable", "message": "queue default: over its quota"},
         "waits for a node: queue default: over its quota"),
        ({"reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient nvidia.com/gpu."},
         "waits for free nvidia.com/gpu: 0/1 nodes are available: 1 Insufficient nvidia.com/gpu"),
        ({"node": "worker-1"}, "its pod is being started"),
        ({}, "waits for a node"),
    ],
)  # fmt: skip
def test_why_an_attempt_waits(wait: dict[str, Any], words: str) -> None:
    assert describe_wait(job(), attempt("Pending", **wait)) == words


@pytest.mark.parametrize(
    ("end", "words"),
    [
        ({"exit_code": 3, "reason": "Error"}, "exit code 3"),
        ({"exit_code": 137, "reason": "OOMKilled"}, "it ran out of memory (exit code 137)"),
        ({"reason": "Evicted", "message": "the node is\nlow on memory"}, "Evicted: the node is low on memory"),
        ({"exit_code": 127, "reason": "StartError"}, "StartError (exit code 127)"),
        ({}, "its pod failed"),
    ],
)
def test_how_an_attempt_failed(end: dict[str, Any], words: str) -> None:
    assert describe_exit(attempt("Failed", **end)) == words


def test_after_names_each_job_and_how_it_must_end() -> None:
    after = {"jobplane.dev/after": "a, b:failed,c:any"}
    assert describe_after(job(annotations=after)) == "a to complete and b to fail and c to end"
    assert describe_after(job()) == ""


def test_the_exit_code_is_that_of_the_attempt_that_failed_last() -> None:
    later = attempt("Failed", exit_code=42, ended_at=START + timedelta(minutes=2))
    failed = job(**ended("Failed", "BackoffLimitExceeded"))
    assert exit_code(failed, [later, FAILURE]) == 42
    assert exit_code(failed, [attempt("Succeeded", exit_code=0)]) == 1
    assert exit_code(job(**ended("Complete")), [FAILURE]) == 0
    assert exit_code(job(**ended("Failed", "DeadlineExceeded")), [later]) == 1


def pod(**status: Any) -> Pod:
    document = {
        "metadata": {
            "name": "train-3-abcde", "uid": "p", "creationTimestamp": "2026-03-04T14:00:00Z",
            "annotations": {"batch.kubernetes.io/job-completion-index": "3", "jobplane.dev/main-container": "main"},
        },
        "spec": {"nodeName": "worker-1", "containers": [{"name": "side", "image": "x"}, {"name": "main", "image": "x"}]},
        "status": status,
    }  # fmt: skip
    return msgspec.convert(document, Pod)


def test_an_attempt_is_told_by_the_main_container() -> None:
    def state(name: str, code: int) -> dict[str, Any]:
        times = {"startedAt": "2026-03-04T14:00:02Z", "finishedAt": "2026-03-04T14:02:00Z"}
        return {"name": name, "state": {"terminated": {"exitCode": code, "reason": "Error", **times}}}

    failed = attempt_of(pod(phase="Failed", containerStatuses=[state("side", 0), state("main", 4)]))
    assert (failed.exit_code, failed.index, failed.node) == (4, 3, "worker-1")
    assert failed.ended_at == START + timedelta(minutes=2)
    running = {"name": "main", "state": {"running": {"startedAt": "2026-03-04T14:00:02Z"}}}
    waiting = {"name": "side", "state": {"waiting": {"reason": "ContainerCreating"}}}
    under_way = attempt_of(pod(phase="Running", containerStatuses=[waiting, running]))
    assert (under_way.reason, under_way.started_at) == ("", START + timedelta(seconds=2))


def test_a_pod_without_a_node_waits_for_the_reason_of_its_condition() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": SHORT}
    found = attempt_of(pod(phase="Pending", conditions=[condition]))
    assert (found.phase, found.reason, found.message) == ("Pending", "Unschedulable", SHORT)
