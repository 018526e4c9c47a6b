"""The pods that a Job makes."""

import pytest
from msgspec.structs import replace

from app.kinds.pod.container import Container, EnvVar
from app.kinds.pod.pod import Pod
from app.kinds.pod.pod_annotations import MAIN_CONTAINER, START_TIMEOUT
from app.machinery.base import Condition
from app.plans.jobs.dependencies import CONDITION
from app.plans.jobs.finalizers import TRACKING
from app.plans.jobs.job import plan
from app.plans.jobs.pod_template import index_prefix
from tests.build import INDEX, NOW, a_job, a_template, created, names

MET = Condition(type=CONDITION, status="True")


def first_pod(**spec: object) -> Pod:
    return created(plan(a_job(**spec), [], NOW, names()))[0]


def an_indexed_pod(**spec: object) -> Pod:
    return first_pod(**({"completion_mode": "Indexed", "completions": 3} | spec))


def test_a_pod_is_its_template_and_knows_its_job() -> None:
    template = a_template()
    template = replace(template, metadata=replace(template.metadata, annotations={"a": "b"}))

    pod = first_pod(template=template)

    assert (pod.api_version, pod.kind, pod.metadata.namespace) == ("v1", "Pod", "default")
    assert (pod.metadata.name, pod.metadata.generate_name) == ("pi-new0", "pi-")
    assert (pod.metadata.labels, pod.metadata.annotations) == (template.metadata.labels, {"a": "b"})
    assert pod.metadata.finalizers == (TRACKING,)
    assert pod.spec == template.spec
    (owner,) = pod.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid, owner.controller) == ("Job", "pi", "uid-of-pi", True)


@pytest.mark.parametrize("finalizers", [("theirs.io/x",), ("theirs.io/x", TRACKING)])
def test_the_templates_finalizers_are_kept_and_none_is_doubled(finalizers: tuple[str, ...]) -> None:
    template = a_template()

    pod = first_pod(template=replace(template, metadata=replace(template.metadata, finalizers=finalizers)))

    assert pod.metadata.finalizers == ("theirs.io/x", TRACKING)


def test_an_indexed_pod_bears_its_index() -> None:
    pod = an_indexed_pod()

    assert (pod.metadata.name, pod.metadata.generate_name) == ("pi-0-new0", "pi-0-")
    assert pod.metadata.labels[INDEX] == pod.metadata.annotations[INDEX] == "0"
    assert pod.spec.hostname == "pi-0"


def test_every_container_of_an_indexed_pod_knows_its_index() -> None:
    template = a_template(init_containers=(Container(name="init"),))

    pod = an_indexed_pod(template=template)

    for container in (*pod.spec.containers, *pod.spec.init_containers):
        (variable,) = container.env
        assert variable.name == "JOB_COMPLETION_INDEX"
        assert variable.value_from
        assert variable.value_from.field_ref
        assert variable.value_from.field_ref.field_path == f"metadata.labels['{INDEX}']"


def test_a_container_that_defines_the_variable_keeps_its_own() -> None:
    own = (EnvVar(name="JOB_COMPLETION_INDEX", value="mine"),)
    template = a_template(containers=(Container(name="main", env=own),))

    assert an_indexed_pod(template=template).spec.containers[0].env == own


@pytest.mark.parametrize(
    ("name", "index", "prefix"),
    [
        pytest.param("pi", 7, "pi-7-", id="short"),
        pytest.param("x" * 55, 7, "x" * 55 + "-7-", id="of 58"),
        pytest.param("x" * 60, 7, "x" * 55 + "-7-", id="the job's part is cut"),
        pytest.param("x" * 60, 99999, "x" * 51 + "-99999-", id="however long the index"),
    ],
)
def test_prefix(name: str, index: int, prefix: str) -> None:
    assert index_prefix(name, index) == prefix


def test_a_long_name_is_cut_for_the_random_part() -> None:
    (pod,) = created(plan(a_job(metadata={"name": "x" * 63}), [], NOW, names()))

    assert pod.metadata.name == "x" * 58 + "new0"
    assert pod.metadata.generate_name == "x" * 63 + "-"


@pytest.mark.parametrize("spec", [{}, {"completion_mode": "Indexed", "completions": 3}], ids=["plain", "indexed"])
def test_a_pod_tells_its_node_what_the_job_asks_of_it(spec: dict[str, object]) -> None:
    job = a_job(**spec)
    asked = {MAIN_CONTAINER: "main", START_TIMEOUT: "5m"}
    job = replace(job, metadata=replace(job.metadata, annotations={**asked, "jobplane.dev/after": "a"}))

    (pod, *_) = created(plan(replace(job, status=replace(job.status, conditions=(MET,))), [], NOW, names()))

    assert asked.items() <= pod.metadata.annotations.items()
    assert "jobplane.dev/after" not in pod.metadata.annotations
