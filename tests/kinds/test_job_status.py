"""What a controller may not write to a Job's status: each rule with the words that clients match on."""

import pytest
from msgspec import convert

from app.kinds.errors import Cause
from app.kinds.job import KIND, Job
from tests.kinds.jobs import DUPLICATE, INVALID, REQUIRED

T1, T2, T3 = (f"2026-07-24T12:00:0{each}Z" for each in (1, 2, 3))


def a_job(status, spec=None) -> Job:
    spec = {"parallelism": 2, "completions": 10, "completionMode": "NonIndexed", **(spec or {})}
    return convert({"metadata": {"name": "pi", "uid": "u"}, "spec": spec, "status": status}, Job)


def causes(before, after, spec=None) -> list[Cause]:
    return KIND.validate_status(a_job(after, spec), a_job(before, spec))


def true(*kinds):
    return {"conditions": [{"type": each, "status": "True"} for each in kinds]}


STARTED = {"startTime": T1}
DONE = {**STARTED, "completionTime": T2, **true("SuccessCriteriaMet", "Complete")}
LOST = {**STARTED, **true("FailureTarget", "Failed")}
INDEXED = {"completionMode": "Indexed"}
PER_INDEX = {**INDEXED, "backoffLimitPerIndex": 1}
POLICY = {**INDEXED, "successPolicy": {"rules": [{"succeededCount": 1}]}}
ELASTIC = {**INDEXED, "parallelism": 10}


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
    assert causes(before, after, spec) == []


NEGATIVE = "Invalid value: -1: must be greater than or equal to 0"


@pytest.mark.parametrize(
    ("after", "reason", "field", "message"),
    [
        pytest.param({"active": -1}, INVALID, "active", NEGATIVE, id="active is negative"),
        pytest.param({"succeeded": -1}, INVALID, "succeeded", NEGATIVE, id="succeeded is negative"),
        pytest.param({"failed": -1}, INVALID, "failed", NEGATIVE, id="failed is negative"),
        pytest.param({"ready": -1}, INVALID, "ready", NEGATIVE, id="ready is negative"),
        pytest.param({"terminating": -1}, INVALID, "terminating", NEGATIVE, id="terminating is negative"),
        pytest.param(
            {"uncountedTerminatedPods": {"succeeded": [""]}},
            INVALID,
            "uncountedTerminatedPods.succeeded[0]",
            'Invalid value: "": must not be empty',
            id="a pod to count has no uid",
        ),
        pytest.param(
            {"uncountedTerminatedPods": {"failed": ["a", ""]}},
            INVALID,
            "uncountedTerminatedPods.failed[1]",
            'Invalid value: "": must not be empty',
            id="a failed pod to count has no uid",
        ),
        pytest.param(
            {"uncountedTerminatedPods": {"succeeded": ["a"], "failed": ["b", "a"]}},
            DUPLICATE,
            "uncountedTerminatedPods.failed[1]",
            'Duplicate value: "a"',
            id="a pod is to be counted twice",
        ),
        pytest.param(
            true("SuccessCriteriaMet", "FailureTarget"),
            INVALID,
            "conditions",
            "Invalid value: cannot set SuccessCriteriaMet=True and FailureTarget=true conditions",
            id="success and failure are both announced",
        ),
    ],
)
def test_a_status_is_refused_even_if_it_was_so_before_when(after, reason, field, message):
    assert causes(after, after) == [Cause(reason, message, f"status.{field}")]


def conflicting(text):
    return INVALID, "conditions", f"Invalid value: {text}"


def of(field, text, value):
    return INVALID, field, f"Invalid value: {value}: {text}"


@pytest.mark.parametrize(
    ("before", "after", "spec", "expected"),
    [
        pytest.param(
            STARTED,
            {**STARTED, "completionTime": T2, **true("SuccessCriteriaMet", "Complete", "FailureTarget", "Failed")},
            {},
            [
                conflicting("cannot set Complete=True and Failed=true conditions"),
                conflicting("cannot set Complete=True and FailureTarget=true conditions"),
                conflicting("cannot set SuccessCriteriaMet=True and Failed=true conditions"),
                conflicting("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions"),
            ],
            id="it ends well and badly",
        ),
        pytest.param(
            STARTED,
            {**STARTED, **true("Failed")},
            {},
            [conflicting("cannot set Failed=True condition without the FailureTarget=true condition")],
            id="it fails unannounced",
        ),
        pytest.param(
            STARTED,
            {**STARTED, "completionTime": T2, **true("Complete")},
            {},
            [conflicting("cannot set Complete=True condition without the SuccessCriteriaMet=true condition")],
            id="it completes unannounced",
        ),
        pytest.param(
            {**STARTED, "completionTime": T2, **true("Complete")},
            {**STARTED, "completionTime": T2, **true("Complete")},
            POLICY,
            [conflicting("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True")],
            id="it is complete without having met its policy",
        ),
        pytest.param(
            LOST,
            {**STARTED, **true("FailureTarget")},
            {},
            [conflicting("cannot disable the terminal Failed=True condition")],
            id="a failure is undone",
        ),
        pytest.param(
            {**STARTED, **true("FailureTarget")},
            {**STARTED, "conditions": [{"type": "FailureTarget", "status": "False"}]},
            {},
            [conflicting("cannot disable the terminal FailureTarget=True condition")],
            id="the announcement of failure is undone",
        ),
        pytest.param(
            DONE,
            {**STARTED, **true("SuccessCriteriaMet")},
            {},
            [conflicting("cannot disable the terminal Complete=True condition")],
            id="completion is undone",
        ),
        pytest.param(
            {**STARTED, **true("SuccessCriteriaMet")},
            STARTED,
            {},
            [conflicting("cannot disable the SuccessCriteriaMet=True condition")],
            id="the announcement of success is undone",
        ),
        pytest.param(
            {**STARTED, "completionTime": T2, **true("Complete")},
            DONE,
            {},
            [conflicting("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions")],
            id="success is announced too late",
        ),
        pytest.param(
            STARTED,
            {**STARTED, "completionTime": T2},
            {},
            [of("completionTime", "cannot set completionTime when there is no Complete=True condition", f'"{T2}"')],
            id="it has ended without being complete",
        ),
        pytest.param(
            STARTED,
            {**STARTED, **true("SuccessCriteriaMet", "Complete")},
            {},
            [(REQUIRED, "completionTime", "Required value: completionTime is required for Complete jobs")],
            id="it is complete at no time",
        ),
        pytest.param(
            {"startTime": T3},
            {**DONE, "startTime": T3},
            {},
            [of("completionTime", "completionTime cannot be set before startTime", f'"{T2}"')],
            id="it ended before it began",
        ),
        pytest.param(
            DONE,
            {**DONE, "completionTime": T3},
            {},
            [of("completionTime", "completionTime cannot be mutated", f'"{T3}"')],
            id="it ended at another time",
        ),
        pytest.param(
            {},
            true("FailureTarget", "Failed"),
            {},
            [(REQUIRED, "startTime", "Required value: startTime is required for finished job")],
            id="it ended without a beginning",
        ),
        pytest.param(
            STARTED,
            {},
            {},
            [(REQUIRED, "startTime", "Required value: startTime cannot be removed for unsuspended job")],
            id="the start is forgotten",
        ),
        pytest.param(
            STARTED,
            {"startTime": T2},
            {},
            [of("startTime", "field is immutable for unsuspended job once set", f'"{T2}"')],
            id="the start moves",
        ),
        pytest.param(
            STARTED,
            {**LOST, "active": 1},
            {},
            [of("active", "active>0 is invalid for finished job", 1)],
            id="pods run on",
        ),
        pytest.param(
            LOST,
            {**LOST, "active": 1},
            {},
            [of("active", "active>0 is invalid for finished job", 1)],
            id="pods start again",
        ),
        pytest.param(
            STARTED,
            {**LOST, "terminating": 1},
            {},
            [of("terminating", "terminating>0 is invalid for finished job", 1)],
            id="pods still terminate",
        ),
        pytest.param(
            STARTED,
            {**STARTED, "ready": 2, "active": 1},
            {},
            [of("ready", "cannot set more ready pods than active", 2)],
            id="more are ready than active",
        ),
        pytest.param(
            STARTED,
            {**LOST, "uncountedTerminatedPods": {"failed": ["a"]}},
            {},
            [
                of(
                    "uncountedTerminatedPods",
                    "uncountedTerminatedPods needs to be empty for finished job",
                    '{"failed":["a"]}',
                )
            ],
            id="pods are not counted at the end",
        ),
        pytest.param(
            {"failed": 2},
            {"failed": 1},
            {},
            [of("failed", "cannot decrease the failed counter", 1)],
            id="failures vanish",
        ),
        pytest.param(
            {"succeeded": 2},
            {"succeeded": 1},
            {},
            [of("succeeded", "cannot decrease the succeeded counter", 1)],
            id="successes vanish",
        ),
        pytest.param(
            {"succeeded": 2},
            {"succeeded": 1},
            INDEXED,
            [of("succeeded", "cannot decrease the succeeded counter", 1)],
            id="successes of a fixed number of indexes vanish",
        ),
        pytest.param(
            {},
            {"completedIndexes": "3,1"},
            INDEXED,
            [
                of(
                    "completedIndexes",
                    "error parsing completedIndexes: non-increasing order, previous: 3, current: 1",
                    '"3,1"',
                )
            ],
            id="completed indexes do not ascend",
        ),
        pytest.param(
            {},
            {"completedIndexes": "1-10"},
            INDEXED,
            [of("completedIndexes", 'error parsing completedIndexes: too large index: "10"', '"1-10"')],
            id="completed indexes do not exist",
        ),
        pytest.param(
            {},
            {"completedIndexes": "1"},
            {},
            [of("completedIndexes", "cannot set non-empty completedIndexes when non-indexed completion mode", '"1"')],
            id="a Job without indexes completes one",
        ),
        pytest.param(
            {},
            {"failedIndexes": "x"},
            PER_INDEX,
            [
                of(
                    "failedIndexes",
                    'error parsing failedIndexes: cannot convert string to integer for index: "x"',
                    '"x"',
                )
            ],
            id="failed indexes are not numbers",
        ),
        pytest.param(
            {},
            {"failedIndexes": ""},
            INDEXED,
            [of("failedIndexes", "cannot set non-null failedIndexes when backoffLimitPerIndex is null", '""')],
            id="indexes fail without a limit",
        ),
        pytest.param(
            {"failedIndexes": "2-4"},
            {"failedIndexes": "2-4", "completedIndexes": "0,3"},
            PER_INDEX,
            [of("failedIndexes", "failedIndexes and completedIndexes overlap at index: 3", '"2-4"')],
            id="an index succeeds and fails",
        ),
    ],
)
def test_a_status_is_refused_when(before, after, spec, expected):
    assert causes(before, after, spec) == [
        Cause(reason, message, f"status.{field}") for reason, field, message in expected
    ]
