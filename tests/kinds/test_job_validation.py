"""What a Job may not be, and what may not become of it: each rule with the words that clients match on."""

from datetime import UTC, datetime

import pytest
from msgspec import convert

from app.kinds.errors import Cause
from app.kinds.job import KIND, Job
from app.kinds.names import dns_subdomain, qualified_name

NOW = datetime(2026, 7, 24, 12, 0, 0, tzinfo=UTC)
UID = "uid-of-pi"

INVALID = "FieldValueInvalid"
REQUIRED = "FieldValueRequired"
UNSUPPORTED = "FieldValueNotSupported"
FORBIDDEN = "FieldValueForbidden"
DUPLICATE = "FieldValueDuplicate"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"

AUTOMATIC = {"matchLabels": {"batch.kubernetes.io/controller-uid": UID}}


def written(spec=None, pod=None, labels=None, metadata=None, status=None) -> Job:
    """A Job as a client writes it: valid, but for what is given."""
    template = {
        "metadata": {"labels": labels or {}},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}], **(pod or {})},
    }
    return convert(
        {
            "metadata": {"name": "pi", "namespace": "default", "uid": UID, **(metadata or {})},
            "spec": {"template": template, **(spec or {})},
            "status": status or {},
        },
        Job,
    )


def created(*args, **parts) -> Job:
    return KIND.on_create(KIND.prepare(written(*args, **parts)), NOW)


def stored(status=None, **parts) -> Job:
    """A created Job that its controller has written a status to."""
    status_of = written(status=status)
    return KIND.on_update(KIND.prepare(created(**parts)), status_of)


INDEXED = {"completionMode": "Indexed", "completions": 10}
MANY = {"completionMode": "Indexed", "completions": 100_001, "backoffLimitPerIndex": 1, "maxFailedIndexes": 5}
NEGATIVE = "Invalid value: -1: must be greater than or equal to 0"
NOT_INDEXED = "requires indexed completion mode"
LABELS_OF_MAIN = (
    '{"batch.kubernetes.io/controller-uid":"uid-of-pi","batch.kubernetes.io/job-name":"pi",'
    '"controller-uid":"uid-of-pi","job-name":"pi"}'
)


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param({}, id="all is left to defaults"),
        pytest.param({"parallelism": 0, "completions": 0, "backoffLimit": 0}, id="counts are zero"),
        pytest.param({"activeDeadlineSeconds": 0, "ttlSecondsAfterFinished": 0}, id="times are zero"),
        pytest.param({"parallelism": 5}, id="it is a work queue"),
        pytest.param({**INDEXED, "parallelism": 100_000}, id="it runs as many indexes as can be tracked"),
        pytest.param({**INDEXED, "backoffLimitPerIndex": 0, "maxFailedIndexes": 10}, id="all indexes may fail"),
        pytest.param(MANY, id="very many indexes are limited"),
        pytest.param({"completionMode": "Indexed", "completions": 100_001}, id="very many indexes share a limit"),
        pytest.param({"managedBy": "kubernetes.io/job-controller"}, id="it is managed by the usual controller"),
        pytest.param({"managedBy": "acme.io/foo/bar~1"}, id="it is managed by someone else"),
        pytest.param({"podReplacementPolicy": "Failed"}, id="replacements wait for the end"),
    ],
)
def test_is_valid_when(spec):
    assert KIND.validate(created(spec)) == []


@pytest.mark.parametrize(
    ("spec", "reason", "field", "message"),
    [
        pytest.param({"parallelism": -1}, INVALID, "spec.parallelism", NEGATIVE, id="parallelism is negative"),
        pytest.param({"completions": -1}, INVALID, "spec.completions", NEGATIVE, id="completions are negative"),
        pytest.param(
            {"activeDeadlineSeconds": -1}, INVALID, "spec.activeDeadlineSeconds", NEGATIVE, id="deadline is negative"
        ),
        pytest.param({"backoffLimit": -1}, INVALID, "spec.backoffLimit", NEGATIVE, id="backoffLimit is negative"),
        pytest.param(
            {"ttlSecondsAfterFinished": -1}, INVALID, "spec.ttlSecondsAfterFinished", NEGATIVE, id="ttl is negative"
        ),
        pytest.param(
            {**INDEXED, "backoffLimitPerIndex": -1},
            INVALID,
            "spec.backoffLimitPerIndex",
            NEGATIVE,
            id="backoffLimitPerIndex is negative",
        ),
        pytest.param(
            {**INDEXED, "backoffLimitPerIndex": 1, "maxFailedIndexes": -1},
            INVALID,
            "spec.maxFailedIndexes",
            NEGATIVE,
            id="maxFailedIndexes is negative",
        ),
        pytest.param(
            {**INDEXED, "maxFailedIndexes": 1},
            REQUIRED,
            "spec.backoffLimitPerIndex",
            "Required value: when maxFailedIndexes is specified",
            id="maxFailedIndexes lacks backoffLimitPerIndex",
        ),
        pytest.param({"managedBy": ""}, REQUIRED, "spec.managedBy", "Required value", id="managedBy is empty"),
        pytest.param(
            {"managedBy": "foo"},
            INVALID,
            "spec.managedBy",
            'Invalid value: "foo": must be a domain-prefixed path (such as "acme.io/foo")',
            id="managedBy has no domain",
        ),
        pytest.param(
            {"managedBy": "acme.io/"},
            INVALID,
            "spec.managedBy",
            'Invalid value: "acme.io/": must be a domain-prefixed path (such as "acme.io/foo")',
            id="managedBy has no path",
        ),
        pytest.param(
            {"managedBy": "Acme/foo"},
            INVALID,
            "spec.managedBy",
            f'Invalid value: "Acme": {dns_subdomain("Acme")[0]}',
            id="managedBy has a bad domain",
        ),
        pytest.param(
            {"managedBy": "acme.io/a b"},
            INVALID,
            "spec.managedBy",
            r"""Invalid value: "a b": Invalid path (regex used for validation is '[A-Za-z0-9/\-._~%!$&'()*+,;=:]+')""",
            id="managedBy has a bad path",
        ),
        pytest.param(
            {"managedBy": "acme.io/" + 56 * "a"},
            TOO_LONG,
            "spec.managedBy",
            "Too long: may not be more than 63 bytes",
            id="managedBy is too long",
        ),
        pytest.param(
            {"completionMode": "X"},
            UNSUPPORTED,
            "spec.completionMode",
            'Unsupported value: "X": supported values: "NonIndexed", "Indexed"',
            id="completionMode is unknown",
        ),
        pytest.param(
            {"completionMode": "Indexed", "parallelism": 1},
            REQUIRED,
            "spec.completions",
            "Required value: when completion mode is Indexed",
            id="an Indexed Job has no completions",
        ),
        pytest.param(
            {**INDEXED, "parallelism": 100_001},
            INVALID,
            "spec.parallelism",
            "Invalid value: 100001: must be less than or equal to 100000 when completion mode is Indexed",
            id="an Indexed Job has too much parallelism",
        ),
        pytest.param(
            {**INDEXED, "backoffLimitPerIndex": 1, "maxFailedIndexes": 11},
            INVALID,
            "spec.maxFailedIndexes",
            "Invalid value: 11: must be less than or equal to completions",
            id="more indexes may fail than there are",
        ),
        pytest.param(
            {"completionMode": "Indexed", "completions": 100_001, "backoffLimitPerIndex": 1},
            REQUIRED,
            "spec.maxFailedIndexes",
            "Required value: must be specified when completions is above 100000",
            id="very many indexes lack maxFailedIndexes",
        ),
        pytest.param(
            {**MANY, "parallelism": 10_001},
            INVALID,
            "spec.parallelism",
            "Invalid value: 10001: must be less than or equal to 10000 when completions are above 100000 "
            "and used with backoff limit per index",
            id="very many indexes have too much parallelism",
        ),
        pytest.param(
            {**MANY, "maxFailedIndexes": 10_001},
            INVALID,
            "spec.maxFailedIndexes",
            "Invalid value: 10001: must be less than or equal to 10000 when completions are above 100000 "
            "and used with backoff limit per index",
            id="too many of very many indexes may fail",
        ),
        pytest.param(
            {"backoffLimitPerIndex": 1},
            INVALID,
            "spec.backoffLimitPerIndex",
            f"Invalid value: 1: {NOT_INDEXED}",
            id="backoffLimitPerIndex is not for NonIndexed",
        ),
        pytest.param(
            {"successPolicy": {"rules": [{"succeededCount": 1}]}},
            INVALID,
            "spec.successPolicy",
            f'Invalid value: {{"rules":[{{"succeededCount":1}}]}}: {NOT_INDEXED}',
            id="successPolicy is not for NonIndexed",
        ),
        pytest.param(
            {"podReplacementPolicy": "X"},
            UNSUPPORTED,
            "spec.podReplacementPolicy",
            'Unsupported value: "X": supported values: "Failed", "TerminatingOrFailed"',
            id="podReplacementPolicy is unknown",
        ),
        pytest.param(
            {"podReplacementPolicy": "TerminatingOrFailed", "podFailurePolicy": {"rules": []}},
            UNSUPPORTED,
            "spec.podReplacementPolicy",
            'Unsupported value: "TerminatingOrFailed": supported values: "Failed"',
            id="podReplacementPolicy does not go with podFailurePolicy",
        ),
    ],
)
def test_is_refused_when(spec, reason, field, message):
    assert KIND.validate(created(spec)) == [Cause(reason, message, field)]


def test_both_limits_of_failed_indexes_are_reported():
    spec = {"completionMode": "Indexed", "completions": 100_000, "backoffLimitPerIndex": 1, "maxFailedIndexes": 100_001}

    assert [cause.message for cause in KIND.validate(created(spec))] == [
        "Invalid value: 100001: must be less than or equal to completions",
        "Invalid value: 100001: must be less than or equal to 100000",
    ]


def test_both_limits_for_indexes_are_refused_without_indexes():
    assert KIND.validate(created({"backoffLimitPerIndex": 2, "maxFailedIndexes": 1})) == [
        Cause(INVALID, f"Invalid value: 2: {NOT_INDEXED}", "spec.backoffLimitPerIndex"),
        Cause(INVALID, f"Invalid value: 1: {NOT_INDEXED}", "spec.maxFailedIndexes"),
    ]


FAILURE_POLICY = {"podFailurePolicy": {"rules": []}}


@pytest.mark.parametrize(
    ("policy", "spec", "reason", "message"),
    [
        pytest.param("", {}, REQUIRED, 'Required value: valid values: "OnFailure", "Never"', id="none was chosen"),
        pytest.param("Always", {}, REQUIRED, 'Required value: valid values: "OnFailure", "Never"', id="it never ends"),
        pytest.param(
            "OnFailure",
            FAILURE_POLICY,
            INVALID,
            'Invalid value: "OnFailure": only "Never" is supported when podFailurePolicy is specified',
            id="it hides failures from podFailurePolicy",
        ),
    ],
)
def test_restart_policy_is_refused_when(policy, spec, reason, message):
    job = created(spec, pod={"restartPolicy": policy})

    assert KIND.validate(job) == [Cause(reason, message, "spec.template.spec.restartPolicy")]


def test_an_unknown_restart_policy_is_refused_in_the_words_of_jobs():
    message = 'Unsupported value: "X": supported values: "OnFailure", "Never"'

    causes = KIND.validate(created(pod={"restartPolicy": "X"}))

    assert Cause(UNSUPPORTED, message, "spec.template.spec.restartPolicy") in causes


def test_restarting_on_failure_goes_with_a_limit_for_each_index():
    assert KIND.validate(created({**INDEXED, "backoffLimitPerIndex": 1}, pod={"restartPolicy": "OnFailure"})) == []


def test_the_template_is_validated_as_a_pod_is():
    assert Cause(REQUIRED, "Required value", "spec.template.spec.containers") in KIND.validate(
        created(pod={"containers": []})
    )


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


MANUAL = {"manualSelector": True, "selector": {"matchLabels": {"app": "pi"}}}
UNLIKE = "`selector` does not match template `labels`"


def demand(**parts):
    return {**MANUAL, "selector": {"matchExpressions": [{"key": "app", **parts}]}}


@pytest.mark.parametrize(
    "spec",
    [
        pytest.param(MANUAL, id="its labels are the template's"),
        pytest.param({**MANUAL, "selector": {}}, id="it selects everything"),
        pytest.param(demand(operator="In", values=["pi", "e"]), id="the template has one of its values"),
        pytest.param(demand(operator="Exists"), id="the template has its key"),
    ],
)
def test_a_manual_selector_is_valid_when(spec):
    assert KIND.validate(created(spec, labels={"app": "pi"})) == []


@pytest.mark.parametrize(
    ("spec", "reason", "field", "message"),
    [
        pytest.param(
            {**MANUAL, "selector": {"matchLabels": {"app": "e"}}},
            INVALID,
            "spec.template.metadata.labels",
            f'Invalid value: {{"app":"pi"}}: {UNLIKE}',
            id="the template has other labels",
        ),
        pytest.param(
            demand(operator="NotIn", values=["pi"]),
            INVALID,
            "spec.template.metadata.labels",
            f'Invalid value: {{"app":"pi"}}: {UNLIKE}',
            id="it excludes the template",
        ),
        pytest.param(
            demand(operator="In"),
            REQUIRED,
            "spec.selector.matchExpressions[0].values",
            "Required value: must be specified when `operator` is 'In' or 'NotIn'",
            id="it has no values to compare with",
        ),
        pytest.param(
            demand(operator="Exists", values=["x"]),
            FORBIDDEN,
            "spec.selector.matchExpressions[0].values",
            "Forbidden: may not be specified when `operator` is 'Exists' or 'DoesNotExist'",
            id="it has values that nothing is compared with",
        ),
        pytest.param(
            demand(operator="Like"),
            INVALID,
            "spec.selector.matchExpressions[0].operator",
            'Invalid value: "Like": not a valid selector operator',
            id="its operator is unknown",
        ),
    ],
)
def test_a_manual_selector_is_refused_when(spec, reason, field, message):
    assert KIND.validate(created(spec, labels={"app": "pi"})) == [Cause(reason, message, field)]


def test_a_manual_selector_must_be_there():
    assert KIND.validate(created({"manualSelector": True}, labels={"app": "pi"})) == [
        Cause(REQUIRED, "Required value", "spec.selector"),
        Cause(INVALID, f'Invalid value: {{"app":"pi"}}: {UNLIKE}', "spec.template.metadata.labels"),
    ]


def test_an_automatic_selector_needs_the_uid():
    causes = KIND.validate(created(metadata={"uid": ""}))

    assert causes == [Cause(REQUIRED, "Required value", "metadata.uid")]


@pytest.mark.parametrize("key", ["controller-uid", "batch.kubernetes.io/controller-uid"])
def test_a_copied_uid_label_is_refused(key):
    causes = KIND.validate(created(labels={key: "another"}))

    shown = LABELS_OF_MAIN.replace(f'"{key}":"uid-of-pi"', f'"{key}":"another"')
    text = f"Invalid value: {shown}: must be 'uid-of-pi'"
    assert causes[0] == Cause(INVALID, text, f"spec.template.metadata.labels[{key}]")


@pytest.mark.parametrize("key", ["job-name", "batch.kubernetes.io/job-name"])
def test_a_copied_name_label_is_refused(key):
    causes = KIND.validate(created(labels={key: "another"}))

    shown = LABELS_OF_MAIN.replace(f'"{key}":"pi"', f'"{key}":"another"')
    assert causes == [Cause(INVALID, f"Invalid value: {shown}: must be 'pi'", f"spec.template.metadata.labels[{key}]")]


def test_a_copied_selector_is_refused():
    copied = {"selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "another"}}}

    shown = '{"matchLabels":{"batch.kubernetes.io/controller-uid":"another"}}'
    assert KIND.validate(created(copied)) == [
        Cause(INVALID, f"Invalid value: {shown}: `selector` not auto-generated", "spec.selector"),
        Cause(INVALID, f"Invalid value: {LABELS_OF_MAIN}: {UNLIKE}", "spec.template.metadata.labels"),
    ]


def test_a_selector_beside_the_automatic_one_is_refused():
    causes = KIND.validate(created({"selector": {"matchLabels": {"app": "pi"}}}, labels={"app": "pi"}))

    assert [(cause.field, cause.message.endswith("`selector` not auto-generated")) for cause in causes] == [
        ("spec.selector", True)
    ]


def test_an_update_may_not_drop_a_generated_label():
    stripped = KIND.on_update(written({"selector": AUTOMATIC}), created())

    assert KIND.validate(stripped)[0] == Cause(
        REQUIRED,
        "Required value: must be 'uid-of-pi'",
        "spec.template.metadata.labels[batch.kubernetes.io/controller-uid]",
    )


@pytest.mark.parametrize(
    ("name", "completions"),
    [
        pytest.param(61 * "a", 11, id="the index makes it too long"),
        pytest.param("a.b", 1, id="it has a dot"),
    ],
)
def test_the_name_of_an_indexed_job_is_refused_when(name, completions):
    job = created({"completionMode": "Indexed", "completions": completions}, metadata={"name": name})

    text = f'Invalid value: "{name}": will not able to create pod with invalid DNS label: {name}-{completions - 1}'
    assert Cause(INVALID, text, "metadata.name") in KIND.validate(job)


@pytest.mark.parametrize(
    ("name", "spec"),
    [
        pytest.param(61 * "a", {"completionMode": "Indexed", "completions": 10}, id="the longest host name fits"),
        pytest.param("a.b", {"completionMode": "Indexed", "completions": 0}, id="there are no indexes"),
        pytest.param("a.b", {}, id="pods have no index"),
    ],
)
def test_a_name_is_valid_when(name, spec):
    assert KIND.validate(created(spec, metadata={"name": name})) == []


IMMUTABLE = "field is immutable"


def updated(old: Job, new: Job) -> list[Cause]:
    return KIND.validate_update(KIND.on_update(new, old), old)


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({}, id="nothing changes"),
        pytest.param({"parallelism": 7}, id="parallelism changes"),
        pytest.param({"backoffLimit": 7}, id="backoffLimit changes"),
        pytest.param({"activeDeadlineSeconds": 7}, id="the deadline changes"),
        pytest.param({"ttlSecondsAfterFinished": 7}, id="the ttl changes"),
        pytest.param({"suspend": True}, id="it is suspended"),
        pytest.param({"podReplacementPolicy": "Failed"}, id="podReplacementPolicy changes"),
        pytest.param({"maxFailedIndexes": 7}, id="maxFailedIndexes changes"),
        pytest.param({"completions": 20, "parallelism": 20}, id="it grows in tandem"),
        pytest.param({"completions": 5, "parallelism": 5}, id="it shrinks in tandem"),
    ],
)
def test_an_update_is_valid_when(changes):
    spec = {**INDEXED, "parallelism": 3, "backoffLimitPerIndex": 1}

    assert updated(created(spec), created({**spec, **changes})) == []


@pytest.mark.parametrize(
    ("before", "after", "field", "message"),
    [
        pytest.param(
            {}, {"completions": 2}, "spec.completions", f"Invalid value: 2: {IMMUTABLE}", id="completions change"
        ),
        pytest.param(
            {"parallelism": 2},
            {"parallelism": 2, "completions": 2},
            "spec.completions",
            f"Invalid value: 2: {IMMUTABLE}",
            id="a work queue gets completions",
        ),
        pytest.param(
            {"parallelism": 2, "completions": 2},
            {"parallelism": 2},
            "spec.completions",
            f"Invalid value: null: {IMMUTABLE}",
            id="completions go away",
        ),
        pytest.param(
            {**INDEXED, "parallelism": 3},
            {**INDEXED, "parallelism": 3, "completions": 4},
            "spec.completions",
            "Invalid value: 4: can only be modified in tandem with spec.parallelism",
            id="completions of an Indexed Job change alone",
        ),
        pytest.param(
            {},
            {"selector": {"matchLabels": {"app": "pi"}}, "manualSelector": True},
            "spec.selector",
            f'Invalid value: {{"matchLabels":{{"app":"pi"}}}}: {IMMUTABLE}',
            id="the selector changes",
        ),
        pytest.param(
            {"completions": 1},
            {"completions": 1, "completionMode": "Indexed"},
            "spec.completionMode",
            f'Invalid value: "Indexed": {IMMUTABLE}',
            id="the completion mode changes",
        ),
        pytest.param(
            {"podReplacementPolicy": "Failed"},
            {"podReplacementPolicy": "Failed", "podFailurePolicy": {"rules": [on_codes()]}},
            "spec.podFailurePolicy",
            'Invalid value: {"rules":[{"action":"FailJob","onExitCodes":{"operator":"In","values":[1]}}]}: '
            f"{IMMUTABLE}",
            id="a failure policy is added",
        ),
        pytest.param(
            {"podFailurePolicy": {"rules": [on_codes()]}, "podReplacementPolicy": "Failed"},
            {"podReplacementPolicy": "Failed"},
            "spec.podFailurePolicy",
            f"Invalid value: null: {IMMUTABLE}",
            id="the failure policy is removed",
        ),
        pytest.param(
            {**INDEXED, "backoffLimitPerIndex": 1},
            {**INDEXED, "backoffLimitPerIndex": 2},
            "spec.backoffLimitPerIndex",
            f"Invalid value: 2: {IMMUTABLE}",
            id="the limit for each index changes",
        ),
        pytest.param(
            {"suspend": True},
            {"suspend": True, "managedBy": "acme.io/foo"},
            "spec.managedBy",
            f'Invalid value: "acme.io/foo": {IMMUTABLE}',
            id="the manager changes, even while suspended",
        ),
        pytest.param(
            {**INDEXED, "successPolicy": {"rules": [{"succeededCount": 1}]}},
            {**INDEXED, "successPolicy": {"rules": [{"succeededCount": 2}]}},
            "spec.successPolicy",
            f'Invalid value: {{"rules":[{{"succeededCount":2}}]}}: {IMMUTABLE}',
            id="the success policy changes",
        ),
    ],
)
def test_an_update_is_refused_when(before, after, field, message):
    causes = updated(created(before), created(after))

    # A changed selector comes with changed labels here, and so with a changed template.
    assert [each for each in causes if each.field != "spec.template"] == [Cause(INVALID, message, field)]


NODE_AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "disk", "operator": "Exists"}]}]
        }
    }
}
POD_AFFINITY = {
    "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]}
}
MORE_CPU = {
    "containers": [
        {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "3"}}}
    ],
    "initContainers": [{"name": "first", "image": "busybox", "resources": {"requests": {"cpu": "1"}}}],
}
NEVER_STARTED: dict = {}
RUNNING = {"startTime": "2026-07-24T11:00:00Z", "active": 1}
AT_REST = {
    "startTime": "2026-07-24T11:00:00Z",
    "conditions": [{"type": "Suspended", "status": "True"}],
}
NOT_YET_AT_REST = {**AT_REST, "active": 1}
WITH_INIT = {"initContainers": [{"name": "first", "image": "busybox"}]}

SCHEDULING = [
    pytest.param({}, {"affinity": NODE_AFFINITY}, id="node affinity is added"),
    pytest.param({"affinity": NODE_AFFINITY}, {}, id="node affinity is removed"),
    pytest.param(
        {"affinity": POD_AFFINITY}, {"affinity": {**POD_AFFINITY, **NODE_AFFINITY}}, id="node affinity joins another"
    ),
    pytest.param({}, {"nodeSelector": {"disk": "ssd"}}, id="the node selector changes"),
    pytest.param({}, {"tolerations": [{"key": "gpu", "operator": "Exists"}]}, id="tolerations change"),
    pytest.param({}, {"schedulingGates": [{"name": "acme.io/wait"}]}, id="scheduling gates change"),
    pytest.param(WITH_INIT, MORE_CPU, id="resources change"),
]


@pytest.mark.parametrize(
    "status",
    [pytest.param(NEVER_STARTED, id="never started"), pytest.param(AT_REST, id="suspended and without pods")],
)
@pytest.mark.parametrize(("before", "after"), SCHEDULING)
def test_a_suspended_template_may_change_when(before, after, status):
    old = stored(status, spec={"suspend": True}, pod=before)

    assert updated(old, created({"suspend": True}, pod=after)) == []


@pytest.mark.parametrize(
    ("suspend", "status"),
    [
        pytest.param(False, RUNNING, id="the Job runs"),
        pytest.param(False, NEVER_STARTED, id="the Job is about to start"),
        pytest.param(True, RUNNING, id="the Job is about to be suspended"),
        pytest.param(True, NOT_YET_AT_REST, id="the suspended Job still has pods"),
    ],
)
@pytest.mark.parametrize(("before", "after"), SCHEDULING)
def test_a_template_stays_as_it_is_when(before, after, suspend, status):
    old = stored(status, spec={"suspend": suspend}, pod=before)

    (cause,) = updated(old, created({"suspend": suspend}, pod=after))

    assert cause.field == "spec.template"
    assert cause.message.endswith(f": {IMMUTABLE}")


@pytest.mark.parametrize("part", ["labels", "annotations"])
def test_labels_and_annotations_of_a_suspended_template_may_change(part):
    old = created({"suspend": True})
    new = convert({"metadata": {part: {"app": "pi"}}}, type(old.spec.template)).metadata

    changed = created({"suspend": True}, labels=new.labels)

    assert updated(old, changed) == []
    assert KIND.validate(changed) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        pytest.param({}, {"containers": [{"name": "main", "image": "busybox:2"}]}, id="an image may not"),
        pytest.param(
            {},
            {"containers": [{"name": "main", "image": "busybox"}, {"name": "more", "image": "busybox"}]},
            id="the number of containers may not",
        ),
        pytest.param({}, {"affinity": POD_AFFINITY}, id="pod affinity may not come"),
        pytest.param({"affinity": {**POD_AFFINITY, **NODE_AFFINITY}}, {}, id="pod affinity may not go"),
        pytest.param({}, {"priorityClassName": "high"}, id="the priority may not"),
    ],
)
def test_of_a_suspended_template(before, after):
    old = created({"suspend": True}, pod=before)

    (cause,) = updated(old, created({"suspend": True}, pod=after))

    assert (cause.reason, cause.field) == (INVALID, "spec.template")
    assert cause.message.endswith(f": {IMMUTABLE}")


def test_one_request_may_change_a_suspended_template_and_resume():
    old = created({"suspend": True})

    assert updated(old, created({"suspend": False}, pod={"nodeSelector": {"disk": "ssd"}})) == []


def test_the_stored_job_decides_whether_it_is_suspended():
    causes = updated(created(), created({"suspend": True}, pod={"nodeSelector": {"disk": "ssd"}}))

    assert [cause.field for cause in causes] == ["spec.template"]
