"""What a Job may not be when it is created: each rule with the words that clients match on."""

import pytest

from app.kinds.batch.job import KIND
from app.machinery.errors import Cause
from tests.kinds.jobs import REQUIRED, UID, created, written
from tests.kinds.tables import INDEXED
from tests.kinds.tables.jobs import JOBS, MANUAL, MANY, SELECTORS

AUTOMATIC = {"matchLabels": {"batch.kubernetes.io/controller-uid": UID}}


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


@pytest.mark.parametrize("refused", JOBS.values(), ids=[*JOBS])
def test_is_refused_when(refused):
    assert KIND.validate(created(**refused.sent)) == [*refused.causes]


@pytest.mark.parametrize("refused", SELECTORS.values(), ids=[*SELECTORS])
def test_a_selector_is_refused_when(refused):
    assert KIND.validate(created(**refused.sent)) == [*refused.causes]


def test_restarting_on_failure_goes_with_a_limit_for_each_index():
    assert KIND.validate(created({**INDEXED, "backoffLimitPerIndex": 1}, pod={"restartPolicy": "OnFailure"})) == []


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


def test_an_automatic_selector_needs_the_uid():
    causes = KIND.validate(created(metadata={"uid": ""}))

    assert causes == [Cause(REQUIRED, "Required value", "metadata.uid")]


def test_an_update_may_not_drop_a_generated_label():
    stripped = KIND.on_update(written({"selector": AUTOMATIC}), created())

    assert KIND.validate(stripped)[:4] == [
        Cause(REQUIRED, f"Required value: must be '{value}'", f"spec.template.metadata.labels[{key}]")
        for key, value in (
            ("controller-uid", UID),
            ("job-name", "pi"),
            ("batch.kubernetes.io/controller-uid", UID),
            ("batch.kubernetes.io/job-name", "pi"),
        )
    ]


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
