"""What a Job's podFailurePolicy and successPolicy may not be: each rule with the words that clients match on."""

import pytest

from app.kinds.errors import Cause
from app.kinds.job import KIND
from app.kinds.names import qualified_name
from tests.kinds.jobs import DUPLICATE, INDEXED, INVALID, REQUIRED, TOO_LONG, TOO_MANY, UNSUPPORTED, created

NEGATIVE = "Invalid value: -1: must be greater than or equal to 0"
CODES = {"operator": "In", "values": [1]}
NO_NAME = "must be one of the container or initContainer names in the pod template"


def rule(action="FailJob", **demands):
    return {"action": action, **demands}


def on_codes(**codes):
    return rule(onExitCodes={**CODES, **codes})


def on_condition(type="DisruptionTarget", **more):  # noqa: A002 - what Kubernetes calls it
    return rule("Ignore", onPodConditions=[{"type": type, **more}])


@pytest.mark.parametrize(
    ("failure_rule", "reason", "path", "message"),
    [
        pytest.param(
            rule("", onExitCodes=CODES),
            REQUIRED,
            ".action",
            'Required value: valid values: ["Count" "FailIndex" "FailJob" "Ignore"]',
            id="it has no action",
        ),
        pytest.param(
            rule("X", onExitCodes=CODES),
            UNSUPPORTED,
            ".action",
            'Unsupported value: "X": supported values: "Count", "FailIndex", "FailJob", "Ignore"',
            id="its action is unknown",
        ),
        pytest.param(
            rule("FailIndex", onExitCodes=CODES),
            INVALID,
            ".action",
            'Invalid value: "FailIndex": requires the backoffLimitPerIndex to be set',
            id="it fails indexes that have no limit",
        ),
        pytest.param(
            rule(onExitCodes=CODES, onPodConditions=[{"type": "DisruptionTarget"}]),
            INVALID,
            "",
            "Invalid value: specifying both OnExitCodes and OnPodConditions is not supported",
            id="it demands both",
        ),
        pytest.param(
            rule(),
            INVALID,
            "",
            "Invalid value: specifying one of OnExitCodes and OnPodConditions is required",
            id="it demands nothing",
        ),
        pytest.param(
            on_codes(operator=""),
            REQUIRED,
            ".onExitCodes.operator",
            'Required value: valid values: ["In" "NotIn"]',
            id="its operator is missing",
        ),
        pytest.param(
            on_codes(operator="X"),
            UNSUPPORTED,
            ".onExitCodes.operator",
            'Unsupported value: "X": supported values: "In", "NotIn"',
            id="its operator is unknown",
        ),
        pytest.param(
            on_codes(containerName="x"),
            INVALID,
            ".onExitCodes.containerName",
            f'Invalid value: "x": {NO_NAME}',
            id="its container does not exist",
        ),
        pytest.param(
            on_codes(values=[]),
            INVALID,
            ".onExitCodes.values",
            "Invalid value: null: at least one value is required",
            id="it lists no exit codes",
        ),
        pytest.param(
            on_codes(values=list(range(1, 257))),
            TOO_MANY,
            ".onExitCodes.values",
            "Too many: 256: must have at most 255 items",
            id="it lists too many exit codes",
        ),
        pytest.param(
            on_codes(values=[0, 1]),
            INVALID,
            ".onExitCodes.values[0]",
            "Invalid value: 0: must not be 0 for the In operator",
            id="it takes success for failure",
        ),
        pytest.param(
            on_codes(values=[1, 3, 3]),
            DUPLICATE,
            ".onExitCodes.values[2]",
            "Duplicate value: 3",
            id="it lists an exit code twice",
        ),
        pytest.param(
            on_codes(values=[3, 1]),
            INVALID,
            ".onExitCodes.values",
            "Invalid value: [3,1]: must be ordered",
            id="its exit codes do not ascend",
        ),
        pytest.param(
            rule("Ignore", onPodConditions=[{"type": f"C{each}"} for each in range(21)]),
            TOO_MANY,
            ".onPodConditions",
            "Too many: 21: must have at most 20 items",
            id="it lists too many conditions",
        ),
        pytest.param(
            on_condition("a b"),
            INVALID,
            ".onPodConditions[0].type",
            f'Invalid value: "a b": {qualified_name("a b")[0]}',
            id="its condition has a bad name",
        ),
        pytest.param(
            on_condition(status="x"),
            UNSUPPORTED,
            ".onPodConditions[0].status",
            'Unsupported value: "x": supported values: "False", "True", "Unknown"',
            id="its condition has an unknown status",
        ),
    ],
)
def test_a_rule_for_failures_is_refused_when(failure_rule, reason, path, message):
    job = created({"podFailurePolicy": {"rules": [on_condition(), failure_rule]}})

    assert KIND.validate(job) == [Cause(reason, message, f"spec.podFailurePolicy.rules[1]{path}")]


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


def test_a_failure_policy_has_at_most_twenty_rules():
    job = created({"podFailurePolicy": {"rules": 21 * [on_codes()]}})

    message = "Too many: 21: must have at most 20 items"
    assert KIND.validate(job) == [Cause(TOO_MANY, message, "spec.podFailurePolicy.rules")]


NOT_COUNTED = "(the number of indexes in the specified succeededIndexes field)"


@pytest.mark.parametrize(
    ("success_rule", "reason", "path", "message"),
    [
        pytest.param(
            {},
            REQUIRED,
            "",
            "Required value: at least one of succeededCount or succeededIndexes must be specified",
            id="it demands nothing",
        ),
        pytest.param(
            {"succeededIndexes": "3,1"},
            INVALID,
            ".succeededIndexes",
            'Invalid value: "3,1": error parsing succeededIndexes: non-increasing order, previous: 3, current: 1',
            id="its indexes do not ascend",
        ),
        pytest.param(
            {"succeededIndexes": "1-10"},
            INVALID,
            ".succeededIndexes",
            'Invalid value: "1-10": error parsing succeededIndexes: too large index: "10"',
            id="it lists an index that the Job does not have",
        ),
        pytest.param({"succeededCount": -1}, INVALID, ".succeededCount", NEGATIVE, id="its count is negative"),
        pytest.param(
            {"succeededCount": 11},
            INVALID,
            ".succeededCount",
            "Invalid value: 11: must be less than or equal to 10 (the number of specified completions)",
            id="it counts more than there are",
        ),
        pytest.param(
            {"succeededIndexes": "0,2-4", "succeededCount": 5},
            INVALID,
            ".succeededCount",
            f"Invalid value: 5: must be less than or equal to 4 {NOT_COUNTED}",
            id="it counts more than it lists",
        ),
    ],
)
def test_a_rule_for_success_is_refused_when(success_rule, reason, path, message):
    job = created({**INDEXED, "successPolicy": {"rules": [{"succeededCount": 1}, success_rule]}})

    assert KIND.validate(job) == [Cause(reason, message, f"spec.successPolicy.rules[1]{path}")]


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


@pytest.mark.parametrize(
    ("rules", "cause"),
    [
        pytest.param(
            [],
            Cause(
                REQUIRED,
                "Required value: at least one rules must be specified when the successPolicy is specified",
                "spec.successPolicy.rules",
            ),
            id="it has no rules",
        ),
        pytest.param(
            21 * [{"succeededCount": 1}],
            Cause(TOO_MANY, "Too many: 21: must have at most 20 items", "spec.successPolicy.rules"),
            id="it has too many rules",
        ),
    ],
)
def test_a_success_policy_is_refused_when(rules, cause):
    assert KIND.validate(created({**INDEXED, "successPolicy": {"rules": rules}})) == [cause]


def test_a_list_of_indexes_has_at_most_65536_bytes():
    text = ",".join(str(each) for each in range(0, 40_000, 2))
    spec = {"completionMode": "Indexed", "completions": 40_000}

    assert KIND.validate(created({**spec, "successPolicy": {"rules": [{"succeededIndexes": text}]}})) == [
        Cause(TOO_LONG, "Too long: may not be more than 65536 bytes", "spec.successPolicy.rules[0].succeededIndexes")
    ]


def test_a_success_policy_waits_for_completions():
    job = created({"completionMode": "Indexed", "parallelism": 1, "successPolicy": {"rules": [{"succeededCount": 1}]}})

    assert [cause.field for cause in KIND.validate(job)] == ["spec.completions"]
