"""What a Job's podFailurePolicy and successPolicy may not be: each rule with the words that clients match on."""

import pytest

from app.kinds.batch.job import KIND
from tests.kinds.jobs import created
from tests.kinds.tables import INDEXED
from tests.kinds.tables.jobs import FAILURE_POLICIES, SUCCESS_POLICIES

CODES = {"operator": "In", "values": [1]}


def rule(action="FailJob", **demands):
    return {"action": action, **demands}


def on_codes(**codes):
    return rule(onExitCodes={**CODES, **codes})


def on_condition(type="DisruptionTarget", **more):  # noqa: A002 - what Kubernetes calls it
    return rule("Ignore", onPodConditions=[{"type": type, **more}])


@pytest.mark.parametrize("refused", FAILURE_POLICIES.values(), ids=[*FAILURE_POLICIES])
def test_a_failure_policy_is_refused_when(refused):
    assert KIND.validate(created(**refused.sent)) == [*refused.causes]


@pytest.mark.parametrize(
    "failure_rule",
    [
        pytest.param(on_codes(containerName="main"), id="it names a container"),
        pytest.param(on_codes(containerName="first"), id="it names an init container"),
        pytest.param(on_codes(operator="NotIn", values=[0, 1]), id="it excludes success"),
        pytest.param(on_condition(), id="its condition has no status"),
        pytest.param(rule("Count", onExitCodes=CODES), id="it counts"),
        pytest.param(rule("FailIndex", onExitCodes=CODES), id="it fails an index that has a limit"),
    ],
)
def test_a_rule_for_failures_is_valid_when(failure_rule):
    pod = {"initContainers": [{"name": "first", "image": "busybox"}]}
    spec = {**INDEXED, "backoffLimitPerIndex": 1, "podFailurePolicy": {"rules": [failure_rule]}}

    assert KIND.validate(created(spec, pod=pod)) == []


@pytest.mark.parametrize("refused", SUCCESS_POLICIES.values(), ids=[*SUCCESS_POLICIES])
def test_a_success_policy_is_refused_when(refused):
    assert KIND.validate(created(**refused.sent)) == [*refused.causes]


@pytest.mark.parametrize(
    "success_rule",
    [
        pytest.param({"succeededCount": 0}, id="it counts to zero"),
        pytest.param({"succeededIndexes": ""}, id="it lists nothing"),
        pytest.param({"succeededIndexes": "0-9"}, id="it lists all"),
        pytest.param({"succeededIndexes": "1,3-5", "succeededCount": 4}, id="it counts all that it lists"),
    ],
)
def test_a_rule_for_success_is_valid_when(success_rule):
    assert KIND.validate(created({**INDEXED, "successPolicy": {"rules": [success_rule]}})) == []


def test_a_success_policy_waits_for_completions():
    job = created({"completionMode": "Indexed", "parallelism": 1, "successPolicy": {"rules": [{"succeededCount": 1}]}})

    assert [cause.field for cause in KIND.validate(job)] == ["spec.completions"]
