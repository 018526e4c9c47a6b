"""Preemption as its user sees it: on pretended nodes, through kubectl."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.scheduler.fit_hints import without_hint
from tests.e2e.cluster import Cluster, until
from tests.e2e.kubectl import SECONDS, TIMEOUT, Kubectl, newest, rows, words
from tests.e2e.manifests import a_job

NOMINATED = "--for=jsonpath={.status.nominatedNodeName}="
STUBBORN = {"jobplane.dev/simulate": "seconds=10000, ignoreTerm=true"}  # does not mind SIGTERM
IGNORED = {"rules": [{"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}]}


@pytest.fixture
def kubectl(simulated: Cluster, tmp_path: Path) -> Iterator[Kubectl]:
    made = Kubectl.at(newest(), simulated, tmp_path)
    yield made
    made.api.close()


@pytest.fixture
def urgent(kubectl: Kubectl) -> Iterator[str]:
    kubectl("create", "priorityclass", "urgent", "--value=1000")
    yield "urgent"
    kubectl("delete", "priorityclass", "urgent")


def _filling(kubectl: Kubectl, node: str, **pod: Any) -> dict[str, Any]:
    """The spec of a pod that needs all of a node, and has time to end."""
    cpu = kubectl.api.get(f"/api/v1/nodes/{node}").json()["status"]["allocatable"]["cpu"]
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    return {
        "nodeSelector": {"kubernetes.io/hostname": node},
        "terminationGracePeriodSeconds": 600,
        "restartPolicy": "Never",
        "containers": [container],
        **pod,
    }


def test_a_job_gives_way_to_an_urgent_pod_and_is_not_blamed(kubectl: Kubectl, urgent: str) -> None:
    kubectl = kubectl.apart("preemption")
    node = kubectl.node()
    job = a_job("patient", "", pod=_filling(kubectl, node), backoffLimit=0, podFailurePolicy=IGNORED)
    job["spec"]["template"]["metadata"] = {"annotations": STUBBORN}
    (victim,) = kubectl.bring_up(job)
    meta, spec = {"name": "now", "annotations": STUBBORN}, _filling(kubectl, node, priorityClassName=urgent)
    kubectl.send("create", {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec})

    kubectl("wait", f"{NOMINATED}{node}", "pod/now", TIMEOUT)
    heading, row = rows(kubectl("get", "pod", "now", "-o", "wide"))
    assert (row[heading.index("STATUS")], row[heading.index("NOMINATED NODE")]) == ("Pending", node)
    shown = words(kubectl("describe", "pod", "now"))
    assert f"NominatedNodeName: {node}\n" in shown
    assert "Priority: 1000\nPriority Class Name: urgent\n" in shown
    assert (
        "0/20 nodes are available: 1 Insufficient cpu, 19 node(s) didn't match Pod's node affinity/selector." in shown
    )

    shown = words(kubectl("describe", victim))
    assert "Status: Terminating (lasts " in shown
    assert "DisruptionTarget True" in shown
    uid = kubectl.stored("pod", "now")["metadata"]["uid"]
    assert f"Preempted by pod {uid} on node {node}" in shown
    target = _condition(kubectl.stored("pod", victim.removeprefix("pod/")), "DisruptionTarget")
    assert (target["status"], target["reason"]) == ("True", "PreemptionByScheduler")
    assert target["message"] == "default-scheduler: preempting to accommodate a higher priority pod"

    kubectl("delete", victim, "--grace-period=1", TIMEOUT)
    kubectl("wait", "--for=condition=Ready", "pod/now", TIMEOUT)
    now = kubectl.stored("pod", "now")
    assert (now["spec"]["nodeName"], now["status"].get("nominatedNodeName")) == (node, None)
    (another,) = until(lambda: kubectl.pods("patient"), SECONDS, "the Job tries again")
    kubectl("wait", "--for=condition=PodScheduled=false", f"pod/{another}", TIMEOUT)
    said = _condition(kubectl.stored("pod", another), "PodScheduled")
    assert without_hint(said["message"]).endswith(
        "preemption: 0/20 nodes are available: 1 No preemption victims found for incoming pod, "
        "19 Preemption is not helpful for scheduling."
    )
    status = kubectl.stored("job", "patient")["status"]
    assert (status.get("failed", 0), status["active"], status.get("conditions")) == (0, 1, None)
    kubectl("delete", "job", "patient")
    kubectl("delete", "pod", "now", "--grace-period=1")


def _condition(pod: dict[str, Any], type_: str) -> dict[str, Any]:
    return next(each for each in pod["status"]["conditions"] if each["type"] == type_)
