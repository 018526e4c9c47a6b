"""What a Job gets that its author did not write, and how `kubectl get` shows it."""

from datetime import timedelta

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some
from msgspec import convert, to_builtins
from msgspec.structs import replace

from app.kinds.batch.job import KIND, Job, JobStatus, condition, is_finished, is_indexed
from app.machinery.errors import Cause
from tests.kinds.jobs import NOW, UID, written

GENERATED = {
    "batch.kubernetes.io/controller-uid": UID,
    "batch.kubernetes.io/job-name": "pi",
    "controller-uid": UID,
    "job-name": "pi",
}


def a_job(spec=None, labels=None, template_labels=None, status=None, **metadata) -> Job:
    return written(spec, labels=template_labels, status=status, metadata={"labels": labels or {}, **metadata})


def created(*args, **parts) -> Job:
    return KIND.on_create(KIND.prepare(a_job(*args, **parts)), NOW)


POLICY = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]}]}


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        pytest.param({}, {"parallelism": 1, "completions": 1}, id="one pod that must succeed"),
        pytest.param({"completions": 5}, {"parallelism": 1, "completions": 5}, id="one pod at a time"),
        pytest.param({"parallelism": 5}, {"parallelism": 5, "completions": None}, id="a work queue stays one"),
        pytest.param({"parallelism": 0, "completions": 0}, {"parallelism": 0, "completions": 0}, id="zero stays zero"),
        pytest.param({}, {"backoffLimit": 6}, id="six retries"),
        pytest.param({"backoffLimit": 0}, {"backoffLimit": 0}, id="no retries stay none"),
        pytest.param({"backoffLimitPerIndex": 1}, {"backoffLimit": 2147483647}, id="retries limited by index only"),
        pytest.param({"backoffLimitPerIndex": 1, "backoffLimit": 2}, {"backoffLimit": 2}, id="both limits of retries"),
        pytest.param({}, {"completionMode": "NonIndexed"}, id="no indexes"),
        pytest.param({}, {"suspend": False, "manualSelector": False}, id="neither suspended nor manual"),
        pytest.param({}, {"podReplacementPolicy": "TerminatingOrFailed"}, id="early replacements"),
        pytest.param({"podFailurePolicy": POLICY}, {"podReplacementPolicy": "Failed"}, id="late ones with a policy"),
        pytest.param(
            {
                "completionMode": "Indexed",
                "completions": 2,
                "suspend": True,
                "manualSelector": True,
                "podReplacementPolicy": "Failed",
            },
            {"completionMode": "Indexed", "suspend": True, "manualSelector": True, "podReplacementPolicy": "Failed"},
            id="what was given",
        ),
        pytest.param(
            {},
            dict.fromkeys(
                (
                    "activeDeadlineSeconds",
                    "ttlSecondsAfterFinished",
                    "backoffLimitPerIndex",
                    "maxFailedIndexes",
                    "successPolicy",
                    "podFailurePolicy",
                    "managedBy",
                )
            ),
            id="nothing else",
        ),
    ],
)
def test_a_job_gets(spec, expected):
    prepared = to_builtins(KIND.prepare(a_job(spec)).spec)

    assert {name: prepared.get(name) for name in expected} == expected


def test_a_condition_without_status_is_one_that_is_true():
    policy = KIND.prepare(a_job({"podFailurePolicy": POLICY})).spec.pod_failure_policy

    assert [each.status for each in policy.rules[0].on_pod_conditions] == ["True"]


def test_the_template_gets_what_a_pod_gets():
    spec = KIND.prepare(a_job()).spec.template.spec

    assert (spec.dns_policy, spec.containers[0].image_pull_policy) == ("ClusterFirst", "Always")


def test_labels_come_from_the_template_if_there_are_none():
    assert KIND.prepare(a_job(template_labels={"app": "pi"})).metadata.labels == {"app": "pi"}
    assert KIND.prepare(a_job(labels={"a": "b"}, template_labels={"app": "pi"})).metadata.labels == {"a": "b"}


@given(
    spec=some.fixed_dictionaries(
        {},
        optional={
            "parallelism": some.integers(0, 3),
            "completions": some.integers(0, 3),
            "backoffLimit": some.integers(0, 3),
            "backoffLimitPerIndex": some.integers(0, 3),
            "completionMode": some.sampled_from(["Indexed", "NonIndexed"]),
            "suspend": some.booleans(),
            "podFailurePolicy": some.just(POLICY),
        },
    ),
    template_labels=some.sampled_from([{}, {"app": "pi"}]),
)
def test_a_prepared_job_needs_nothing_more(spec, template_labels):
    prepared = KIND.prepare(a_job(spec, template_labels=template_labels))

    assert KIND.prepare(prepared) is prepared
    assert msgspec.json.decode(msgspec.json.encode(prepared), type=Job) == prepared


def test_a_created_job_needs_nothing_more():
    job = created()

    assert KIND.prepare(job) is job


def test_creation_empties_the_status_and_counts_generations_from_one():
    job = created(status={"active": 3}, generation=7)

    assert job.status == JobStatus()
    assert job.metadata.generation == 1


def test_creation_labels_the_pods_and_selects_them_by_uid():
    job = created(template_labels={"app": "pi"})

    assert job.spec.template.metadata.labels == {"app": "pi", **GENERATED}
    assert to_builtins(job.spec.selector) == {"matchLabels": {"batch.kubernetes.io/controller-uid": UID}}


def test_generated_labels_show_on_a_job_without_labels():
    assert created().metadata.labels == GENERATED
    assert created(template_labels={"app": "pi"}).metadata.labels == {"app": "pi"}
    assert created(labels={"a": "b"}).metadata.labels == {"a": "b"}


@pytest.mark.parametrize("key", GENERATED)
def test_a_label_that_is_there_is_left_for_validation(key):
    assert created(template_labels={key: "another"}).spec.template.metadata.labels == {**GENERATED, key: "another"}


def test_a_selector_that_is_there_is_left_for_validation():
    given_ = {"matchLabels": {"batch.kubernetes.io/controller-uid": "another", "app": "pi"}}

    assert to_builtins(created({"selector": given_}).spec.selector) == given_


def test_a_manual_selector_is_neither_made_nor_labelled():
    given_ = {"matchLabels": {"app": "pi"}}
    job = created({"manualSelector": True, "selector": given_}, template_labels={"app": "pi"})

    assert to_builtins(job.spec.selector) == given_
    assert job.spec.template.metadata.labels == {"app": "pi"}


def test_an_update_keeps_the_status():
    old = replace(created(), status=JobStatus(active=2))
    new = replace(old, status=JobStatus(active=9))

    assert KIND.on_update(new, old).status == JobStatus(active=2)


@pytest.mark.parametrize(
    ("changes", "generation"),
    [
        pytest.param({}, 1, id="stays if the spec does"),
        pytest.param({"parallelism": 4}, 2, id="rises with a new spec"),
    ],
)
def test_the_generation(changes, generation):
    old = created()
    new = replace(old, spec=replace(old.spec, **changes), metadata=replace(old.metadata, labels={"a": "b"}))

    assert KIND.on_update(replace(new, metadata=replace(new.metadata, generation=9)), old).metadata.generation == (
        generation
    )


def true(*kinds):
    return {"conditions": [{"type": each, "status": "True"} for each in kinds]}


@pytest.mark.parametrize(
    ("status", "metadata", "word"),
    [
        pytest.param({}, {}, "Running", id="a new Job runs"),
        pytest.param(true("SuccessCriteriaMet"), {}, "SuccessCriteriaMet", id="success is announced"),
        pytest.param(true("SuccessCriteriaMet", "Complete"), {}, "Complete", id="success comes"),
        pytest.param(true("FailureTarget"), {}, "FailureTarget", id="failure is announced"),
        pytest.param(true("FailureTarget", "Failed"), {}, "Failed", id="failure comes"),
        pytest.param(true("Suspended"), {}, "Suspended", id="it is suspended"),
        pytest.param(
            {"conditions": [{"type": "Suspended", "status": "False"}]}, {}, "Running", id="a resumed Job runs"
        ),
        pytest.param(true("Suspended"), {"deletionTimestamp": NOW.isoformat()}, "Terminating", id="it is deleted"),
        pytest.param(true("Complete"), {"deletionTimestamp": NOW.isoformat()}, "Complete", id="the end outlasts that"),
    ],
)
def test_status_is_one_word_when(status, metadata, word):
    assert shown(a_job(status=status, **metadata))["Status"] == word


def shown(job: Job) -> dict[str, object]:
    return dict(zip((column.name for column in KIND.columns), KIND.row(job, NOW), strict=True))


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        pytest.param({"completions": 3}, "1/3", id="of those wanted"),
        pytest.param({"parallelism": 3}, "1/1 of 3", id="of a work queue"),
        pytest.param({"parallelism": 1}, "1/1", id="of a work queue with one worker"),
    ],
)
def test_completions_are_counted(spec, text):
    assert shown(a_job(spec, status={"succeeded": 1}))["Completions"] == text


def ago(**span):
    return (NOW - timedelta(**span)).isoformat()


@pytest.mark.parametrize(
    ("status", "text"),
    [
        pytest.param({}, "", id="nothing before the start"),
        pytest.param({"startTime": ago(seconds=90)}, "90s", id="until now while it runs"),
        pytest.param(
            {"startTime": ago(minutes=10), "completionTime": ago(minutes=5)}, "5m", id="until it was complete"
        ),
    ],
)
def test_duration_is(status, text):
    assert shown(a_job(status=status))["Duration"] == text


def test_the_table_shows_what_the_pods_are():
    cells = shown(KIND.prepare(created(creationTimestamp=ago(hours=3))))

    assert cells == {
        "Name": "pi",
        "Status": "Running",
        "Completions": "0/1",
        "Duration": "",
        "Age": "3h",
        "Containers": "main",
        "Images": "busybox",
        "Selector": f"batch.kubernetes.io/controller-uid={UID}",
    }
    assert [column.name for column in KIND.columns if column.priority] == ["Containers", "Images", "Selector"]


@pytest.mark.parametrize(
    ("selector", "text"),
    [
        pytest.param(None, "<none>", id="none"),
        pytest.param({}, "<none>", id="none if it is empty"),
        pytest.param({"matchLabels": {"b": "1", "a": "2"}}, "a=2,b=1", id="labels in order"),
        pytest.param(
            {
                "matchLabels": {"c": "1"},
                "matchExpressions": [
                    {"key": "b", "operator": "NotIn", "values": ["y", "x"]},
                    {"key": "a", "operator": "In", "values": ["z"]},
                    {"key": "d", "operator": "Exists"},
                    {"key": "e", "operator": "DoesNotExist"},
                ],
            },
            "a in (z),b notin (x,y),c=1,d,!e",
            id="demands in words",
        ),
    ],
)
def test_the_selector_column_shows(selector, text):
    assert shown(a_job({"selector": selector} if selector is not None else {}))["Selector"] == text


LONG_LIST = (
    "spec: In Indexed Jobs with a number of completions higher than 10^5 and a parallelism higher than 10^4, "
    "Kubernetes might not be able to track completedIndexes when a big number of indexes fail"
)
NO_LABEL = (
    "metadata.name: this is used in Pod names and hostnames, which can result in surprising behavior; "
    "a DNS label is recommended: [must not contain dots]"
)
HUGE = {"completionMode": "Indexed", "completions": 100_001, "parallelism": 10_001}


def beside_the_template(texts: list[str]) -> list[str]:
    return [text for text in texts if not text.startswith("spec.template.spec.")]


@pytest.mark.parametrize(
    ("name", "spec", "texts"),
    [
        pytest.param("pi", {}, [], id="nothing"),
        pytest.param("p.i", {}, [NO_LABEL], id="a name that makes no host name"),
        pytest.param("pi", HUGE, [LONG_LIST], id="more indexes than can be tracked"),
        pytest.param("pi", {**HUGE, "parallelism": 10_000}, [], id="nothing if few run at once"),
    ],
)
def test_creation_warns_of(name, spec, texts):
    assert beside_the_template(KIND.warnings(created(spec, name=name), None)) == texts


def test_an_update_warns_of_a_changed_spec_only():
    old, huge = created(name="p.i"), created(HUGE, name="p.i")

    assert beside_the_template(KIND.warnings(huge, old)) == [LONG_LIST]
    assert KIND.warnings(huge, huge) == []


def test_warnings_about_the_template_name_its_place():
    job = a_job()
    odd = replace(job.spec.template.spec, host_users=False)
    old = created()
    new = replace(old, spec=replace(old.spec, template=replace(old.spec.template, spec=odd)))

    assert all(text.startswith("spec.template.spec.") for text in KIND.warnings(new, old))
    assert KIND.warnings(new, old)


def test_jobs_are_selected_by_how_many_pods_succeeded():
    (select,) = KIND.fields.values()

    assert list(KIND.fields) == ["status.successful"]
    assert select(a_job(status={"succeeded": 1})) == "1"


def test_plans_ask_how_a_job_stands():
    job = a_job({"completionMode": "Indexed"}, status=true("SuccessCriteriaMet"))

    assert is_indexed(job)
    assert not is_finished(job)
    assert is_finished(a_job(status=true("Failed")))
    assert not is_finished(a_job(status={"conditions": [{"type": "Complete", "status": "False"}]}))
    assert condition(job, "SuccessCriteriaMet").status == "True"
    assert condition(job, "Complete") is None


def test_the_example_is_valid():
    yaml = pytest.importorskip("yaml")
    job = convert(yaml.safe_load(KIND.example), Job)

    causes = KIND.validate(KIND.on_create(KIND.prepare(job), NOW))

    assert causes == [Cause("FieldValueRequired", "Required value", "metadata.uid")]
