"""Argo Workflows: a DAG, a step that is tried again, a CronWorkflow. Pods are simulated: the executor is in none of them."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.e2e.cluster import Cluster
from tests.operators.argo import ARGO, VERSION, controller, has_ended
from tests.operators.go_modules import build
from tests.operators.manager import Manager
from tests.operators.objects import Document, Objects


@pytest.fixture(scope="module")
def argo(simulated: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """No executor says what came of a pod: the controller waits for a second for it."""
    env = {"TASK_RESULT_TIMEOUT_DURATION": "1s"}
    with controller(build(ARGO), simulated, tmp_path_factory.mktemp("argo"), env) as manager:
        yield manager


@pytest.fixture
def objects(simulated: Cluster) -> Iterator[Objects]:
    with simulated.client() as client:
        yield Objects(client)


def _template(name: str, simulate: str = "", **more: Any) -> Document:
    container = {"image": "busybox", "command": ["true"]}
    return {
        "name": name,
        "container": container,
        "metadata": {"annotations": {"jobplane.dev/simulate": simulate}} if simulate else {},
        **more,
    }


def _workflow(*templates: Document) -> Document:
    return {"entrypoint": templates[0]["name"], "templates": list(templates)}


def test_a_diamond_ends(argo: Manager, objects: Objects) -> None:
    tasks = [
        {"name": name, "template": "step", "dependencies": after}
        for name, after in {"a": [], "b": ["a"], "c": ["a"], "d": ["b", "c"]}.items()
    ]
    spec = _workflow({"name": "diamond", "dag": {"tasks": tasks}}, _template("step"))
    objects.create(f"{VERSION}/workflows", {"kind": "Workflow", "metadata": {"name": "diamond"}, "spec": spec})

    done = objects.until(f"{VERSION}/workflows", "diamond", has_ended)
    assert (done["status"]["phase"], done["status"]["progress"]) == ("Succeeded", "4/4")
    nodes = {each["displayName"]: each for each in done["status"]["nodes"].values()}
    assert nodes["a"]["finishedAt"] <= nodes["b"]["startedAt"]
    assert max(nodes[each]["finishedAt"] for each in "bc") <= nodes["d"]["startedAt"]


def test_a_step_is_tried_again(argo: Manager, objects: Objects) -> None:
    first_fails = "exitCode={{=asInt(retries) == 0 ? 1 : 0}}"
    strategy = {"retryStrategy": {"limit": "2", "retryPolicy": "Always"}}
    for name, simulate in {"again": first_fails, "never": "exitCode=1"}.items():
        spec = _workflow(_template("step", simulate, **strategy))
        objects.create(f"{VERSION}/workflows", {"kind": "Workflow", "metadata": {"name": name}, "spec": spec})

    outcomes = {}
    for name in ("again", "never"):
        done = objects.until(f"{VERSION}/workflows", name, has_ended)
        tried = [each for each in done["status"]["nodes"].values() if each["type"] == "Pod"]
        outcomes[name] = (done["status"]["phase"], len(tried))
    assert outcomes["again"] == ("Succeeded", 2)
    assert outcomes["never"] in (("Failed", 3), ("Error", 3))  # Error: the init container is simulated, too


def test_a_cron_workflow_starts_workflows(argo: Manager, objects: Objects) -> None:
    cron = {"schedules": ["* * * * *"], "workflowSpec": _workflow(_template("step"))}
    objects.create(
        f"{VERSION}/cronworkflows", {"kind": "CronWorkflow", "metadata": {"name": "each-minute"}, "spec": cron}
    )

    def made() -> list[Document]:
        return objects.list(f"{VERSION}/workflows", "workflows.argoproj.io/cron-workflow=each-minute")

    objects.until(f"{VERSION}/cronworkflows", "each-minute", lambda _: any(map(has_ended, made())), 180)
    assert made()[0]["status"]["phase"] == "Succeeded"
    objects.delete(f"{VERSION}/cronworkflows", "each-minute")


def test_a_workflow_is_deleted_with_its_pods(argo: Manager, objects: Objects) -> None:
    spec = _workflow(_template("step", "seconds=600"))
    objects.create(f"{VERSION}/workflows", {"kind": "Workflow", "metadata": {"name": "long"}, "spec": spec})
    mine = "workflows.argoproj.io/workflow=long"
    objects.until(f"{VERSION}/workflows", "long", lambda _: objects.list("v1/pods", mine))

    objects.delete(f"{VERSION}/workflows", "long")
    objects.until(f"{VERSION}/workflows", "long", lambda found: not objects.list("v1/pods", mine))
