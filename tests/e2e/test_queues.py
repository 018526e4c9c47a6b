"""Shares and quotas of namespaces as their user sees them: on pretended nodes, through kubectl."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, until
from tests.e2e.kubectl import SECONDS, TIMEOUT, Kubectl, newest, rows, words
from tests.e2e.manifests import a_job

LASTING = {"jobplane.dev/simulate": "seconds=10000"}


@pytest.fixture
def kubectl(simulated: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """In a namespace of the test's own, which has a queue of its own cohort, and gives up its room at the end."""
    made = Kubectl.at(newest(), simulated, tmp_path)
    apart = made.apart(request.node.name.removeprefix("test_").replace("_", "-")[:40])
    yield apart
    apart("delete", "jobs,pods,localqueues", "--all", TIMEOUT)
    made.api.close()


def _a_queue(**spec: Any) -> dict[str, Any]:
    given = {"nominalQuota": {"cpu": "200m"}, "cohort": "e2e"} | spec
    return {"apiVersion": "jobplane.dev/v1", "kind": "LocalQueue", "metadata": {"name": "default"}, "spec": given}


def _training(name: str, pods: int = 1) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": "100m"}}}
    job = a_job(name, "", pod={"containers": [container]}, parallelism=pods, completions=pods)
    job["spec"]["template"]["metadata"] = {"annotations": LASTING}
    return job


def _queue(kubectl: Kubectl) -> dict[str, str]:
    """The line of `kubectl get lq`."""
    heading, line = rows(kubectl("get", "lq"))
    return dict(zip(heading, line, strict=True))


def test_jobs_over_quota_wait_in_line_and_say_their_place(kubectl: Kubectl) -> None:
    kubectl.send("create", _a_queue())
    kubectl.submit(_training("first", pods=2))
    until(lambda: len(kubectl.started("first", pods=2)) == 2, SECONDS, "the first has its quota")
    for name in ("second", "third"):
        kubectl.submit(_training(name))
        kubectl("wait", "--for=condition=PodScheduled=false", "pod", "-l", f"job-name={name}", TIMEOUT)

    (waiting,) = kubectl.pods("third")
    said = "queue default: over its quota of cpu (200m of 200m used); job third is 2nd of 2 in line"
    assert said in words(kubectl("describe", "pod", waiting))
    until(lambda: said in words(kubectl("describe", "job", "third")), SECONDS, "the Job has an event")
    until(lambda: _queue(kubectl)["PENDING"] == "2", SECONDS, "the queue counts who waits")
    shown = _queue(kubectl)
    assert (shown["NAME"], shown["WEIGHT"], shown["RUNNING"], shown["ACTIVE"]) == ("default", "1", "2", "True")

    kubectl("delete", "job", "first", TIMEOUT)
    kubectl("wait", "--for=condition=Ready", "pod", "-l", "job-name in (second, third)", TIMEOUT)
    until(lambda: "Quota reserved in queue default" in kubectl("describe", "job", "third"), SECONDS, "the Job is told")


def test_a_faulty_queue_is_refused_with_its_causes(kubectl: Kubectl) -> None:
    said = kubectl.send("create", _a_queue(weight=0), code=1)
    assert "spec.weight: Invalid value: 0: must be between 1 and 1000000, inclusive" in said
