"""Index failure (backoffLimitPerIndex): retries, counts and limits of each index."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import (
    JobStatus,
)
from app.kinds.pod.pod import Pod
from app.plans.jobs.backoff import ANNOTATION
from app.plans.jobs.index_failure import FAILURES, IGNORED
from app.plans.jobs.job import plan
from app.plans.plan import Plan
from tests.build import INDEX, NOW, a_job, a_pod, created, names, pods, said, status_of, stored, updated
from tests.plans.jobs.test_pod_failure_policy import on_exit, policy

INDEXED = {"completion_mode": "Indexed", "parallelism": 4, "completions": 4}
RETRIED = INDEXED | {"backoff_limit": 2**31 - 1, "backoff_limit_per_index": 1}


def a_failed_pod(index: int, failures: int = 0, ignored: int = 0, **more: Any) -> Pod:
    pod = a_pod("Failed", name=f"pi-{index}-{failures}", index=index, **more)
    counts = {FAILURES: str(failures), IGNORED: str(ignored)}
    return replace(pod, metadata=replace(pod.metadata, annotations=pod.metadata.annotations | counts))


def planned(spec: dict[str, Any], *seen: Pod) -> Plan:
    return plan(a_job(**spec), seen, NOW, names())


def test_an_index_that_failed_is_retried_and_takes_its_failures_on() -> None:
    result = planned(RETRIED | {"completions": 2}, a_failed_pod(0), *pods("r1"))

    (pod,) = created(result)
    assert (pod.metadata.annotations[INDEX], pod.metadata.annotations[FAILURES]) == ("0", "1")
    assert IGNORED not in pod.metadata.annotations
    assert status_of(result).failed == 1


def test_first_pods_have_no_failures_behind_them() -> None:
    assert {pod.metadata.annotations[FAILURES] for pod in created(planned(RETRIED))} == {"0"}


def test_a_failed_pod_is_not_counted_until_its_replacement_exists() -> None:
    result = planned(RETRIED | {"completions": 1}, a_failed_pod(0, finished_at=NOW))

    assert said(result) == "nothing"
    assert updated(result) == []
    assert status_of(result).failed == 0
    assert result.again_at == NOW + timedelta(seconds=10)


def test_indexes_wait_each_on_their_own_account() -> None:
    result = planned(RETRIED | {"backoff_limit_per_index": 5}, a_failed_pod(0, 2, finished_at=NOW), *pods("r1"))

    assert [pod.metadata.annotations[INDEX] for pod in created(result)] == ["2", "3"]
    assert result.again_at == NOW + timedelta(seconds=40)


def test_an_index_fails_past_its_limit_and_others_go_on() -> None:
    result = planned(RETRIED, a_failed_pod(0, 1), *pods("r1r2r3"))

    assert said(result) == "nothing"
    assert status_of(result).failed_indexes == "0"
    assert status_of(result).failed == 1


def test_failed_indexes_are_said_even_if_there_are_none() -> None:
    assert status_of(planned(RETRIED)).failed_indexes == ""
    assert status_of(planned(INDEXED)).failed_indexes is None


@pytest.mark.parametrize(
    ("spec", "letters", "reason", "failed_indexes"),
    [
        pytest.param({}, "s0f1s2f3", "FailedIndexes", "1,3", id="when all are decided and some failed"),
        pytest.param({"max_failed_indexes": 1}, "f1f3r0", "MaxFailedIndexesExceeded", "1,3", id="past the most"),
        pytest.param({"backoff_limit": 1}, "f1f3r0", "BackoffLimitExceeded", "1,3", id="past the limit for all"),
    ],
)
def test_a_job_fails(spec: dict[str, Any], letters: str, reason: str, failed_indexes: str) -> None:
    status = status_of(planned(RETRIED | {"backoff_limit_per_index": 0} | spec, *pods(letters)))

    assert status.conditions[0].reason == reason
    assert status.failed_indexes == failed_indexes


def test_a_rule_may_fail_an_index_at_once() -> None:
    status = status_of(planned(RETRIED | policy(on_exit("FailIndex", "In", 1)), a_failed_pod(0), *pods("r1r2r3")))

    assert (status.failed_indexes, status.failed) == ("0", 1)


def test_ignored_failures_are_carried_on_apart() -> None:
    result = planned(RETRIED | {"completions": 1} | policy(on_exit("Ignore", "In", 1)), a_failed_pod(0, 1, 2))

    (pod,) = created(result)
    assert (pod.metadata.annotations[FAILURES], pod.metadata.annotations[IGNORED]) == ("1", "3")
    assert status_of(result).failed_indexes == ""


def test_indexes_that_have_their_own_back_off_leave_the_job_none() -> None:
    job = stored(planned(RETRIED, *pods("f0")), a_job())

    assert ANNOTATION not in job.metadata.annotations


@pytest.mark.parametrize("text", ["", "-1", "x", "99999999999", "1.5"])
def test_a_garbled_count_of_failures_is_none(text: str) -> None:
    pod = a_failed_pod(0)
    garbled = replace(pod, metadata=replace(pod.metadata, annotations=pod.metadata.annotations | {FAILURES: text}))

    assert created(planned(RETRIED | {"completions": 1}, garbled))[0].metadata.annotations[FAILURES] == "1"


def test_an_index_stays_as_it_was_first_decided() -> None:
    status = JobStatus(completed_indexes="0", failed_indexes="1", succeeded=1)
    job = a_job(status, **(RETRIED | {"backoff_limit_per_index": 0}))

    after = status_of(plan(job, pods("f0s1r2r3"), NOW, names()))

    assert (after.completed_indexes, after.failed_indexes, after.succeeded) == ("0", "1", 1)
