"""What a Job may not be when it is created: each rule with the words that clients match on."""

import pytest

from app.kinds.errors import Cause
from app.kinds.job import KIND
from app.kinds.names import dns_subdomain
from tests.kinds.jobs import FORBIDDEN, INDEXED, INVALID, REQUIRED, TOO_LONG, UID, UNSUPPORTED, created, written

AUTOMATIC = {"matchLabels": {"batch.kubernetes.io/controller-uid": UID}}
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
