"""Reruns: what a new Job takes from the one that it repeats, and what it leaves."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.batch.job import KIND, Job, JobSpec, JobStatus
from app.machinery.base import LabelSelector, LabelSelectorRequirement, ObjectMeta, OwnerReference
from app.machinery.errors import ApiError
from app.plans.jobs.rerun import rerun
from app.registry.verbs.versions import new
from tests.build import NOW, a_template


def sent(name: str = "pi", *, annotations: dict[str, str] | None = None, **spec: Any) -> Job:
    """A Job as a client sends it."""
    meta = ObjectMeta(name=name, namespace="default", labels={"team": "a"}, annotations=annotations or {})
    return Job(metadata=meta, spec=JobSpec(**({"template": a_template(labels={"app": "pi"})} | spec)))


def stored(job: Job) -> Job:
    """The same as the server has stored it, with an end."""
    made = new(KIND, "default", job, NOW)
    owner = OwnerReference(api_version="batch/v1", kind="CronJob", name="c", uid="c", controller=True)
    meta = replace(made.metadata, owner_references=(owner,), finalizers=("example.com/hold",), resource_version="7")
    return replace(made, metadata=meta, status=JobStatus(start_time=NOW, failed=3))


def test_a_rerun_is_what_was_sent_with_the_defaults() -> None:
    old = stored(sent(parallelism=2, completions=2))

    made = rerun(old).object

    assert (made.metadata.name, made.metadata.generate_name) == ("", "pi-rerun-")
    assert made.metadata.labels == {"team": "a"}
    assert made.metadata.annotations == {"jobplane.dev/rerun-of": old.metadata.uid}
    assert made.spec == replace(old.spec, selector=None, template=made.spec.template)
    assert made.spec.template.metadata.labels == {"app": "pi"}
    assert made.spec.template.spec == old.spec.template.spec
    assert made.status == JobStatus()
    meta = made.metadata
    assert (meta.uid, meta.resource_version, meta.creation_timestamp, meta.generation) == ("", "", None, 0)
    assert (meta.owner_references, meta.finalizers) == ((), ())


def test_the_server_takes_it_and_gives_it_labels_of_its_own() -> None:
    old = stored(sent())

    again = new(KIND, "default", rerun(old).object, NOW)

    uid = again.metadata.uid
    assert uid != old.metadata.uid
    assert again.metadata.name.startswith("pi-rerun-")
    assert again.spec.selector == LabelSelector(match_labels={"batch.kubernetes.io/controller-uid": uid})
    assert again.spec.template.metadata.labels["batch.kubernetes.io/controller-uid"] == uid
    assert old.metadata.uid not in str(replace(again, metadata=replace(again.metadata, annotations={})))


def test_labels_that_the_server_took_from_the_pods_are_left() -> None:
    job = sent(template=replace(a_template(), metadata=ObjectMeta()))
    old = stored(replace(job, metadata=replace(job.metadata, labels={})))
    assert old.metadata.uid in old.metadata.labels.values()

    assert rerun(old).object.metadata.labels == {}


def test_a_selector_by_hand_stays() -> None:
    selector = LabelSelector(match_labels={"app": "pi"})
    old = stored(sent(manual_selector=True, selector=selector))

    made = rerun(old).object

    assert made.spec == old.spec


def test_of_a_selector_what_the_client_gave_stays() -> None:
    given = LabelSelectorRequirement(key="app", operator="Exists")
    old = stored(sent())
    own = replace(old.spec.selector or LabelSelector(), match_expressions=(given,))
    old = replace(old, spec=replace(old.spec, selector=own))

    assert rerun(old).object.spec.selector == LabelSelector(match_expressions=(given,))


@pytest.mark.parametrize(
    ("name", "prefix"),
    [
        pytest.param("pi", "pi-rerun-", id="the old name"),
        pytest.param("pi-rerun-x2b4c", "pi-rerun-", id="of a rerun, the first name"),
        pytest.param("pi-rerun-slowly", "pi-rerun-slowly-rerun-", id="a name that only looks like one"),
        pytest.param("x" * 63, "x" * 51 + "-rerun-", id="the beginning of a long name"),
        pytest.param("x" * 50 + "-" + "y" * 12, "x" * 50 + "-rerun-", id="without a dash at its end"),
    ],
)
def test_its_name_begins_with(name: str, prefix: str) -> None:
    made = rerun(stored(sent(name))).object

    assert made.metadata.generate_name == prefix
    assert len(new(KIND, "default", made, NOW).metadata.name) <= 63


def test_a_name_that_was_asked_for() -> None:
    meta = rerun(stored(sent()), "tau").object.metadata

    assert (meta.name, meta.generate_name) == ("tau", "")


def test_annotations_that_spoke_of_the_old_job_are_left_out() -> None:
    dropped = ("after", "backoff", "heartbeat", "heartbeat-timeout", "memory", "waiting", "waiting-for", "rerun-of")
    annotations = {f"jobplane.dev/{name}": "x" for name in dropped} | {"jobplane.dev/oom-memory": "x2", "note": "n"}
    old = stored(sent())
    old = replace(old, metadata=replace(old.metadata, annotations=annotations))

    assert rerun(old).object.metadata.annotations == {
        "jobplane.dev/oom-memory": "x2",
        "note": "n",
        "jobplane.dev/rerun-of": old.metadata.uid,
    }


def test_a_patch_merges_containers_by_name() -> None:
    old = stored(sent())
    container = old.spec.template.spec.containers[0]
    image = {"name": container.name, "image": "python:3.12"}
    patch = {"spec": {"backoffLimit": 1, "template": {"spec": {"containers": [image]}}}}

    made = rerun(old, patch=patch).object

    (changed,) = made.spec.template.spec.containers
    assert changed == replace(container, image="python:3.12")
    assert made.spec.backoff_limit == 1


def test_a_patch_forges_neither_origin_nor_status() -> None:
    old = stored(sent())
    patch = {"metadata": {"annotations": {"jobplane.dev/rerun-of": "another"}}, "status": {"succeeded": 1}}

    made = rerun(old, patch=patch).object

    assert made.metadata.annotations["jobplane.dev/rerun-of"] == old.metadata.uid
    assert made.status == JobStatus()


@pytest.mark.parametrize(
    "patch", [[], "x", {"spec": {"backoffLimit": "many"}}, {"kind": "Pod"}, {"$patch": "steal"}], ids=str
)
def test_a_patch_that_does_not_fit_is_refused(patch: Any) -> None:
    with pytest.raises(ApiError) as refused:
        rerun(stored(sent()), patch=patch)

    assert refused.value.code in (400, 422)
