"""successPolicy: which indexes suffice for the success of a Job."""

from typing import Any

import pytest

from app.kinds.batch.job import (
    SuccessPolicy,
    SuccessPolicyRule,
)
from app.kinds.pod.pod import Pod
from app.plans.jobs.job import plan
from app.plans.plan import Plan
from tests.build import NOW, a_job, names, pods, said, status_of

INDEXED = {"completion_mode": "Indexed", "parallelism": 4, "completions": 4}
RETRIED = INDEXED | {"backoff_limit": 2**31 - 1, "backoff_limit_per_index": 1}


def successes(**rule: Any) -> dict[str, Any]:
    return {"success_policy": SuccessPolicy(rules=(SuccessPolicyRule(**rule),))}


def planned(spec: dict[str, Any], *seen: Pod) -> Plan:
    return plan(a_job(**spec), seen, NOW, names())


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
