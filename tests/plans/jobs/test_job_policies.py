"""What a Job's own policies change: podFailurePolicy, successPolicy, backoffLimitPerIndex."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import (
    JobStatus,
    PodFailurePolicy,
    PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule,
    SuccessPolicy,
    SuccessPolicyRule,
)
from app.kinds.pod.pod import Pod
from app.machinery.base import Condition
from app.plans.jobs.backoff import ANNOTATION
from app.plans.jobs.index_failure import FAILURES, IGNORED
from app.plans.jobs.job import plan
from app.plans.jobs.pod_failure_policy import match_rule
from app.plans.plan import Plan
from tests.build import INDEX, NOW, a_job, a_pod, created, names, pods, said, status_of, stored, updated

INDEXED = {"completion_mode": "Indexed", "parallelism": 4, "completions": 4}
RETRIED = INDEXED | {"backoff_limit": 2**31 - 1, "backoff_limit_per_index": 1}


def on_exit(action: str, operator: str, *values: int, container: str = "") -> PodFailurePolicyRule:
    demand = PodFailurePolicyOnExitCodesRequirement(container_name=container, operator=operator, values=values)
    return PodFailurePolicyRule(action=action, on_exit_codes=demand)


def on_condition(action: str, kind: str, status: str = "True") -> PodFailurePolicyRule:
    pattern = PodFailurePolicyOnPodConditionsPattern(type=kind, status=status)
    return PodFailurePolicyRule(action=action, on_pod_conditions=(pattern,))


def policy(*rules: PodFailurePolicyRule) -> dict[str, Any]:
    return {"pod_failure_policy": PodFailurePolicy(rules=rules), "pod_replacement_policy": "Failed"}


def successes(**rule: Any) -> dict[str, Any]:
    return {"success_policy": SuccessPolicy(rules=(SuccessPolicyRule(**rule),))}


def a_disrupted_pod() -> Pod:
    pod = a_pod("Failed")
    disrupted = Condition(type="DisruptionTarget", status="True")
    return replace(pod, status=replace(pod.status, conditions=(disrupted,)))


def a_failed_pod(index: int, failures: int = 0, ignored: int = 0, **more: Any) -> Pod:
    pod = a_pod("Failed", name=f"pi-{index}-{failures}", index=index, **more)
    counts = {FAILURES: str(failures), IGNORED: str(ignored)}
    return replace(pod, metadata=replace(pod.metadata, annotations=pod.metadata.annotations | counts))


def planned(spec: dict[str, Any], *seen: Pod) -> Plan:
    return plan(a_job(**spec), seen, NOW, names())


@pytest.mark.parametrize(
    ("rule", "pod", "action"),
    [
        pytest.param(
            on_exit("FailJob", "In", 42), a_pod("Failed", exit_code=42), "FailJob", id="a code that is listed"
        ),
        pytest.param(on_exit("FailJob", "In", 42), a_pod("Failed", exit_code=1), None, id="not one that is not"),
        pytest.param(on_exit("FailJob", "NotIn", 42), a_pod("Failed", exit_code=1), "FailJob", id="a code not listed"),
        pytest.param(on_exit("FailJob", "NotIn", 42), a_pod("Failed", exit_code=42), None, id="not one that is listed"),
        pytest.param(on_exit("FailJob", "NotIn", 42), a_pod("Failed", exit_code=0), None, id="never code 0"),
        pytest.param(on_exit("Ignore", "In", 1, container="main"), a_pod("Failed"), "Ignore", id="the container named"),
        pytest.param(on_exit("Ignore", "In", 1, container="other"), a_pod("Failed"), None, id="no other container"),
        pytest.param(on_condition("Ignore", "DisruptionTarget"), a_disrupted_pod(), "Ignore", id="a condition"),
        pytest.param(
            on_condition("Ignore", "DisruptionTarget", "False"), a_disrupted_pod(), None, id="if its status fits"
        ),
        pytest.param(on_exit("FailIndex", "In", 1), a_pod("Failed"), None, id="no index if indexes have no limit"),
        pytest.param(on_exit("Explode", "In", 1), a_pod("Failed"), None, id="nothing that we do not know"),
    ],
)
def test_a_failure_rule_matches(rule: PodFailurePolicyRule, pod: Pod, action: str | None) -> None:
    match = match_rule(a_job(**policy(rule)), pod)

    assert (match.action if match else None) == action


def test_the_first_rule_that_matches_decides() -> None:
    rules = on_exit("Count", "In", 1), on_exit("FailJob", "In", 1)

    assert said(planned(policy(*rules), *pods("f"))) == "create 1"


@pytest.mark.parametrize(
    ("rule", "pod", "message"),
    [
        pytest.param(
            on_exit("FailJob", "In", 42),
            a_pod("Failed", exit_code=42),
            "Container main for pod default/pi-0 failed with exit code 42 matching FailJob rule at index 0",
            id="by its exit code",
        ),
        pytest.param(
            on_condition("FailJob", "DisruptionTarget"),
            a_disrupted_pod(),
            "Pod default/pi-0 has condition DisruptionTarget matching FailJob rule at index 0",
            id="by a condition",
        ),
    ],
)
def test_one_pod_may_fail_the_job(rule: PodFailurePolicyRule, pod: Pod, message: str) -> None:
    result = planned(policy(rule), pod)

    interim, terminal = status_of(result).conditions
    assert (interim.type, interim.reason, interim.message) == ("FailureTarget", "PodFailurePolicy", message)
    assert (terminal.type, terminal.reason, terminal.message) == ("Failed", "PodFailurePolicy", message)
    assert status_of(result).failed == 1


def test_an_ignored_failure_does_not_count_and_yet_makes_the_job_wait() -> None:
    spec = policy(on_exit("Ignore", "In", 1)) | {"backoff_limit": 0}

    result = planned(spec, a_pod("Failed", finished_at=NOW))

    assert result.again_at == NOW + timedelta(seconds=10)
    assert status_of(result).failed == 0
    assert updated(result)[0].metadata.finalizers == ()


# Success.


@pytest.mark.parametrize(
    ("rule", "letters", "expected"),
    [
        pytest.param({"succeeded_count": 2}, "s0r1", "nothing", id="below the count it goes on"),
        pytest.param({"succeeded_count": 2}, "s0s3r1", "delete 1, SuccessCriteriaMet", id="the count suffices"),
        pytest.param({"succeeded_count": 0}, "r0", "nothing", id="a count of nothing needs one success all the same"),
        pytest.param({"succeeded_indexes": "0,2-3"}, "s0s2r1", "nothing", id="all that are listed are needed"),
        pytest.param({"succeeded_indexes": "0,2-3"}, "s0s2s3r1", "delete 1, SuccessCriteriaMet", id="and suffice"),
        pytest.param(
            {"succeeded_indexes": "1-3", "succeeded_count": 1},
            "s0",
            "nothing",
            id="others than those listed do not count",
        ),
        pytest.param({"succeeded_indexes": "1-3", "succeeded_count": 1}, "s2", "Complete", id="some of those listed"),
    ],
)
def test_success_policy(rule: dict[str, Any], letters: str, expected: str) -> None:
    job = a_job(**(INDEXED | successes(**rule) | {"parallelism": 0 if "r" not in letters else letters.count("r")}))

    assert said(plan(job, pods(letters), NOW, names())) == expected


def test_success_by_policy_says_which_rule() -> None:
    status = status_of(planned(INDEXED | successes(succeeded_indexes="1"), *pods("s1r2")))

    (condition,) = status.conditions
    assert (condition.reason, condition.message) == ("SuccessPolicy", "Matched rules at index 0")
    assert (status.succeeded, status.active, status.terminating, status.failed) == (1, 0, 1, 0)


def test_failure_beats_success_by_policy() -> None:
    spec = RETRIED | successes(succeeded_count=1) | {"completions": 2, "backoff_limit_per_index": 0}

    assert status_of(planned(spec, *pods("f0s1"))).conditions[0].reason == "FailedIndexes"


# Limits of each index.


def test_an_index_that_failed_is_retried_and_takes_its_failures_on() -> None:
    result = planned(RETRIED | {"completions": 2}, a_failed_pod(0), *pods("r1"))

    (pod,) = created(result)
    assert (pod.metadata.annotations[INDEX], pod.metadata.annotations[FAILURES]) == ("0", "1")
    assert IGNORED not in pod.metadata.annotations
    assert status_of(result).failed == 1


def test_first_pods_have_no_failures_behind_them() -> None:
    assert {pod.metadata.annotations[FAILURES] for pod in created(planned(RETRIED))} == {"0"}


def test_a_failed_pod_is_held_until_its_replacement_exists() -> None:
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
