"""What a controller may not write to a Job's status: each rule with the words that clients match on."""

import pytest

from app.kinds.batch.job import KIND
from tests.kinds.jobs import written
from tests.kinds.tables.statuses import (
    DONE,
    ELASTIC,
    INDEXED,
    LOST,
    PER_INDEX,
    POLICY,
    STARTED,
    STATUSES,
    T2,
    status,
    true,
)


@pytest.mark.parametrize(
    ("before", "after", "spec"),
    [
        pytest.param({}, {}, {}, id="nothing happens"),
        pytest.param({}, STARTED, {}, id="it starts"),
        pytest.param(STARTED, {**STARTED, "active": 2, "ready": 2, "terminating": 3}, {}, id="pods come and go"),
        pytest.param(STARTED, DONE, {}, id="it completes"),
        pytest.param(STARTED, LOST, {}, id="it fails"),
        pytest.param(STARTED, {**STARTED, **true("FailureTarget")}, {}, id="failure is announced"),
        pytest.param(STARTED, {**STARTED, **true("SuccessCriteriaMet")}, {}, id="success is announced"),
        pytest.param(STARTED, DONE, POLICY, id="it completes by its policy"),
        pytest.param({}, {**STARTED, **true("AcmeWaits")}, {}, id="a condition is not known"),
        pytest.param(STARTED, true("Suspended"), {"suspend": True}, id="suspending clears the start"),
        pytest.param(
            {**STARTED, **true("Suspended")},
            {"startTime": T2, "conditions": [{"type": "Suspended", "status": "False"}]},
            {},
            id="resuming starts anew",
        ),
        pytest.param(
            {},
            {"completionTime": T2, **true("Suspended", "SuccessCriteriaMet", "Complete")},
            {"suspend": True, "completions": 0},
            id="nothing was wanted of a suspended Job",
        ),
        pytest.param({}, {"completedIndexes": "1,3-5", "failedIndexes": "0,2"}, PER_INDEX, id="indexes are decided"),
        pytest.param({}, {"failedIndexes": ""}, PER_INDEX, id="no index has failed"),
        pytest.param({"succeeded": 9}, {"succeeded": 8}, ELASTIC, id="an elastic Job shrinks"),
        pytest.param(
            {}, {"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["b"]}}, {}, id="pods are to be counted"
        ),
        pytest.param(
            {"completedIndexes": "11"}, {"completedIndexes": "11", "active": 1}, INDEXED, id="an old fault stays"
        ),
        pytest.param({**LOST, "active": 1}, {**LOST, "active": 1, "failed": 1}, {}, id="an old count stays"),
        pytest.param({"ready": 1}, {"ready": 1, "failed": 1}, {}, id="old ready pods stay"),
        pytest.param(
            {"completionTime": T2}, {"completionTime": T2, "active": 1}, {}, id="an old completion time stays"
        ),
        pytest.param(true("Failed"), {**true("Failed"), "failed": 1}, {}, id="an old end lacks its announcement"),
    ],
)
def test_a_status_is_valid_when(before, after, spec):
    accepted = status(before, after, **spec)

    assert KIND.validate_status(written(**accepted.sent), written(**accepted.before)) == []


@pytest.mark.parametrize("refused", STATUSES.values(), ids=[*STATUSES])
def test_a_status_is_refused_when(refused):
    assert KIND.validate_status(written(**refused.sent), written(**refused.before)) == [*refused.causes]
