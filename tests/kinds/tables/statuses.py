"""Statuses of a Job of ten completions that are refused: `before` is the status that is there, and `spec` what differs."""

from typing import Any

from tests.kinds.tables import BAD_INDEXES, NEGATIVE, Row, Table, cause, invalid

T1, T2, T3 = (f"2026-07-24T12:00:0{each}Z" for each in (1, 2, 3))
SPEC = {"parallelism": 2, "completions": 10, "completionMode": "NonIndexed"}


def true(*kinds: str) -> dict[str, Any]:
    return {"conditions": [{"type": each, "status": "True"} for each in kinds]}


STARTED = {"startTime": T1}
DONE = {**STARTED, "completionTime": T2, **true("SuccessCriteriaMet", "Complete")}
UNANNOUNCED = {**STARTED, "completionTime": T2, **true("Complete")}
LOST = {**STARTED, **true("FailureTarget", "Failed")}
INDEXED = {"completionMode": "Indexed"}
PER_INDEX = {**INDEXED, "backoffLimitPerIndex": 1}
POLICY = {**INDEXED, "successPolicy": {"rules": [{"succeededCount": 1}]}}
ELASTIC = {**INDEXED, "parallelism": 10}


def status(before: dict[str, Any], after: dict[str, Any], *causes: tuple[str, str], **spec: Any) -> Row:
    whole = SPEC | spec
    found = tuple(cause(f"status.{field}", message) for field, message in causes)
    return Row(found, {"spec": whole, "status": after}, {"spec": whole, "status": before})


def always(field: str, message: str, **found: Any) -> Row:
    """Refused even if it was so before."""
    return status(found, found, (field, message))


def conflicting(text: str) -> tuple[str, str]:
    return "conditions", f"Invalid value: {text}"


def of(field: str, text: str, shown: str) -> tuple[str, str]:
    return field, invalid(shown, text)


_SUCCEEDS_AND_FAILS = conflicting("cannot set SuccessCriteriaMet=True and Failed=true conditions")
_MEETS_AND_MISSES = conflicting("cannot set SuccessCriteriaMet=True and FailureTarget=true conditions")
_FAILS_UNANNOUNCED = conflicting("cannot set Failed=True condition without the FailureTarget=true condition")
_RESTARTED = ("startTime", "Required value: startTime cannot be removed for unsuspended job")

STATUSES: Table = {
    **{f"{each} is negative": always(each, NEGATIVE, **{each: -1}) for each in ("active", "succeeded", "failed")},
    "ready is negative": always("ready", NEGATIVE, ready=-1),
    "terminating is negative": always("terminating", NEGATIVE, terminating=-1),
    **{
        f"a {each} pod to count has no uid": always(
            f"uncountedTerminatedPods.{each}[1]",
            invalid('""', "must not be empty"),
            uncountedTerminatedPods={each: ["a", ""]},
        )
        for each in ("succeeded", "failed")
    },
    "a pod is to be counted twice": always(
        "uncountedTerminatedPods.failed[1]",
        'Duplicate value: "a"',
        uncountedTerminatedPods={"succeeded": ["a"], "failed": ["b", "a"]},
    ),
    "it is complete, and failed": status(
        STARTED,
        {**UNANNOUNCED, **true("Complete", "FailureTarget", "Failed")},
        conflicting("cannot set Complete=True and Failed=true conditions"),
        conflicting("cannot set Complete=True and FailureTarget=true conditions"),
        conflicting("cannot set Complete=True condition without the SuccessCriteriaMet=true condition"),
    ),
    "it is complete, and its failure announced": status(
        STARTED,
        {**DONE, **true("SuccessCriteriaMet", "Complete", "FailureTarget")},
        conflicting("cannot set Complete=True and FailureTarget=true conditions"),
        _MEETS_AND_MISSES,
    ),
    "it has failed, and its success is announced": status(
        {**STARTED, **true("SuccessCriteriaMet", "Failed")},
        {**STARTED, **true("SuccessCriteriaMet", "Failed")},
        _SUCCEEDS_AND_FAILS,
    ),
    "success and failure are both announced": always(*_MEETS_AND_MISSES, **true("SuccessCriteriaMet", "FailureTarget")),
    "it fails unannounced": status(STARTED, {**STARTED, **true("Failed")}, _FAILS_UNANNOUNCED),
    "it completes unannounced": status(
        STARTED,
        UNANNOUNCED,
        conflicting("cannot set Complete=True condition without the SuccessCriteriaMet=true condition"),
    ),
    "it is complete without having met its policy": status(
        UNANNOUNCED,
        UNANNOUNCED,
        conflicting("cannot set Complete=True for Job with SuccessPolicy unless SuccessCriteriaMet=True"),
        **POLICY,
    ),
    "a failure is undone": status(
        LOST,
        {**STARTED, **true("FailureTarget")},
        conflicting("cannot disable the terminal Failed=True condition"),
    ),
    "the announcement of failure is undone": status(
        {**STARTED, **true("FailureTarget")},
        {**STARTED, "conditions": [{"type": "FailureTarget", "status": "False"}]},
        conflicting("cannot disable the terminal FailureTarget=True condition"),
    ),
    "completion is undone": status(
        DONE,
        {**STARTED, **true("SuccessCriteriaMet")},
        conflicting("cannot disable the terminal Complete=True condition"),
    ),
    "the announcement of success is undone": status(
        {**STARTED, **true("SuccessCriteriaMet")},
        STARTED,
        conflicting("cannot disable the SuccessCriteriaMet=True condition"),
    ),
    "success is announced too late": status(
        UNANNOUNCED,
        DONE,
        conflicting("cannot set SuccessCriteriaMet=True for Job already has Complete=true conditions"),
    ),
    "it has ended without being complete": status(
        STARTED,
        {**STARTED, "completionTime": T2},
        of("completionTime", "cannot set completionTime when there is no Complete=True condition", f'"{T2}"'),
    ),
    "it is complete at no time": status(
        STARTED,
        {**STARTED, **true("SuccessCriteriaMet", "Complete")},
        ("completionTime", "Required value: completionTime is required for Complete jobs"),
    ),
    "it ended before it began": status(
        {"startTime": T3},
        {**DONE, "startTime": T3},
        of("completionTime", "completionTime cannot be set before startTime", f'"{T2}"'),
    ),
    "it ended at another time": status(
        DONE, {**DONE, "completionTime": T3}, of("completionTime", "completionTime cannot be mutated", f'"{T3}"')
    ),
    "it ended without a beginning": status(
        {},
        true("FailureTarget", "Failed"),
        ("startTime", "Required value: startTime is required for finished job"),
    ),
    "the start is forgotten": status(STARTED, {}, _RESTARTED),
    # Kubernetes has one message for both.
    "the start moves": status(STARTED, {"startTime": T2}, _RESTARTED),
    "pods run on": status(STARTED, {**LOST, "active": 1}, of("active", "active>0 is invalid for finished job", "1")),
    "pods start again": status(LOST, {**LOST, "active": 1}, of("active", "active>0 is invalid for finished job", "1")),
    # Uncertain in the reference: whether these two rules are on. In 1.33 they are.
    "pods still terminate": status(
        STARTED, {**LOST, "terminating": 1}, of("terminating", "terminating>0 is invalid for finished job", "1")
    ),
    "more are ready than active": status(
        STARTED, {**STARTED, "ready": 2, "active": 1}, of("ready", "cannot set more ready pods than active", "2")
    ),
    "pods are not counted at the end": status(
        STARTED,
        {**LOST, "uncountedTerminatedPods": {"failed": ["a"]}},
        of(
            "uncountedTerminatedPods",
            "uncountedTerminatedPods needs to be empty for finished job",
            '{"failed":["a"]}',
        ),
    ),
    "failures vanish": status({"failed": 2}, {"failed": 1}, of("failed", "cannot decrease the failed counter", "1")),
    "successes vanish": status(
        {"succeeded": 2}, {"succeeded": 1}, of("succeeded", "cannot decrease the succeeded counter", "1")
    ),
    "successes of a fixed number of indexes vanish": status(
        {"succeeded": 2}, {"succeeded": 1}, of("succeeded", "cannot decrease the succeeded counter", "1"), **INDEXED
    ),
    **{
        f"completed indexes are {text}": status(
            {},
            {"completedIndexes": text},
            of("completedIndexes", f"error parsing completedIndexes: {why}", f'"{text}"'),
            **INDEXED,
        )
        for text, why in BAD_INDEXES.items()
    },
    "a Job without indexes completes one": status(
        {},
        {"completedIndexes": "1"},
        of("completedIndexes", "cannot set non-empty completedIndexes when non-indexed completion mode", '"1"'),
    ),
    **{
        f"failed indexes are {text}": status(
            {},
            {"failedIndexes": text},
            of("failedIndexes", f"error parsing failedIndexes: {why}", f'"{text}"'),
            **PER_INDEX,
        )
        for text, why in BAD_INDEXES.items()
    },
    "indexes fail without a limit": status(
        {},
        {"failedIndexes": ""},
        of("failedIndexes", "cannot set non-null failedIndexes when backoffLimitPerIndex is null", '""'),
        **INDEXED,
    ),
    "an index succeeds and fails": status(
        {"failedIndexes": "2-4"},
        {"failedIndexes": "2-4", "completedIndexes": "0,3"},
        of("failedIndexes", "failedIndexes and completedIndexes overlap at index: 3", '"2-4"'),
        **PER_INDEX,
    ),
    "nearly everything is wrong": status(
        {**STARTED, "failed": 2},
        {**true("Complete", "Failed"), "active": 1, "terminating": 1, "ready": 2, "failed": 1, "completedIndexes": "1"},
        conflicting("cannot set Complete=True and Failed=true conditions"),
        ("completionTime", "Required value: completionTime is required for Complete jobs"),
        _FAILS_UNANNOUNCED,
        conflicting("cannot set Complete=True condition without the SuccessCriteriaMet=true condition"),
        of("active", "active>0 is invalid for finished job", "1"),
        ("startTime", "Required value: startTime is required for finished job"),
        of("completedIndexes", "cannot set non-empty completedIndexes when non-indexed completion mode", '"1"'),
        of("terminating", "terminating>0 is invalid for finished job", "1"),
        of("ready", "cannot set more ready pods than active", "2"),
        of("failed", "cannot decrease the failed counter", "1"),
        _RESTARTED,
    ),
}
