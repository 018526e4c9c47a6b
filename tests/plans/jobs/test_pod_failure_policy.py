"""podFailurePolicy: which rule matches a failed pod, and what it changes."""

from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import (
    PodFailurePolicy,
    PodFailurePolicyOnExitCodesRequirement,
    PodFailurePolicyOnPodConditionsPattern,
    PodFailurePolicyRule,
)
from app.kinds.pod.pod import Pod
from app.machinery.base import Condition
from app.plans.jobs.job import plan
from app.plans.jobs.pod_failure_policy import match_rule
from app.plans.plan import Plan
from tests.build import NOW, a_job, a_pod, names, pods, said, status_of, updated


def on_exit(action: str, operator: str, *values: int, container: str = "") -> PodFailurePolicyRule:
    demand = PodFailurePolicyOnExitCodesRequirement(container_name=container, operator=operator, values=values)
    return PodFailurePolicyRule(action=action, on_exit_codes=demand)


def on_condition(action: str, kind: str, status: str = "True") -> PodFailurePolicyRule:
    pattern = PodFailurePolicyOnPodConditionsPattern(type=kind, status=status)
    return PodFailurePolicyRule(action=action, on_pod_conditions=(pattern,))


def policy(*rules: PodFailurePolicyRule) -> dict[str, Any]:
    return {"pod_failure_policy": PodFailurePolicy(rules=rules), "pod_replacement_policy": "Failed"}


def a_disrupted_pod() -> Pod:
    pod = a_pod("Failed")
    disrupted = Condition(type="DisruptionTarget", status="True")
    return replace(pod, status=replace(pod.status, conditions=(disrupted,)))


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

    interim, _, terminal = status_of(result).conditions
    assert (interim.type, interim.reason, interim.message) == ("FailureTarget", "PodFailurePolicy", message)
    assert (terminal.type, terminal.reason, terminal.message) == ("Failed", "PodFailurePolicy", message)
    assert status_of(result).failed == 1


def test_an_ignored_failure_does_not_count_and_yet_makes_the_job_wait() -> None:
    spec = policy(on_exit("Ignore", "In", 1)) | {"backoff_limit": 0}

    result = planned(spec, a_pod("Failed", finished_at=NOW))

    assert result.again_at == NOW + timedelta(seconds=10)
    assert status_of(result).failed == 0
    assert updated(result)[0].metadata.finalizers == ()
