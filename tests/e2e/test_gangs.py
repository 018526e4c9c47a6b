"""Gangs as their user sees them: on pretended nodes, through kubectl."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, until
from tests.e2e.kubectl import SECONDS, TIMEOUT, Kubectl, newest, rows, words
from tests.e2e.manifests import a_job

LASTING = {"jobplane.dev/simulate": "seconds=10000"}
MISSING = (
    "1/2 pods of the group can be placed: 0/20 nodes are available: "
    "17 node(s) didn't match Pod's node affinity/selector, 3 Insufficient cpu."
)


@pytest.fixture
def kubectl(simulated: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Kubectl]:
    """In a namespace of the test's own, whose pods give up their room at the end."""
    made = Kubectl.at(newest(), simulated, tmp_path)
    yield (apart := made.apart(request.node.name.removeprefix("test_").partition("_")[0]))
    apart("delete", "jobs,pods", "--all", TIMEOUT)
    made.api.close()


@pytest.fixture
def pool(kubectl: Kubectl) -> Iterator[list[str]]:
    """Three nodes with a label of ours; the last two are of one rack."""
    names = [each["metadata"]["name"] for each in kubectl.api.get("/api/v1/nodes").json()["items"][-3:]]
    kubectl("label", "node", *names, "pool=gangs")
    kubectl("label", "node", names[0], "rack=a")
    kubectl("label", "node", *names[1:], "rack=b")
    yield names
    kubectl("label", "node", *names, "pool-", "rack-")


@pytest.fixture
def urgent(kubectl: Kubectl) -> Iterator[str]:
    kubectl("create", "priorityclass", "urgent-gang", "--value=1000")
    yield "urgent-gang"
    kubectl("delete", "priorityclass", "urgent-gang")


def _filling(kubectl: Kubectl, node: str) -> dict[str, Any]:
    """The spec of a pod that needs all of a node."""
    cpu = kubectl.api.get(f"/api/v1/nodes/{node}").json()["status"]["allocatable"]["cpu"]
    container = {"name": "main", "image": "busybox", "resources": {"requests": {"cpu": cpu}}}
    return {"nodeSelector": {"pool": "gangs"}, "restartPolicy": "Never", "containers": [container]}


def _pair(kubectl: Kubectl, name: str, node: str) -> dict[str, Any]:
    """A gang of two pods, for a node each."""
    spec = {"parallelism": 2, "completions": 2, "completionMode": "Indexed"}
    job = a_job(name, "", pod=_filling(kubectl, node), labels={"jobplane.dev/gang": "true"}, **spec)
    job["spec"]["template"]["metadata"] = {"annotations": LASTING}
    return job


def _group(kubectl: Kubectl, job: str) -> list[str]:
    """Its line in `kubectl get podgroups`."""
    heading, *lines = rows(kubectl("get", "podgroups.scheduling.k8s.io"))
    (line,) = [each for each in lines if each[0].startswith(f"{job}-")]
    return [line[heading.index("POLICY")], line[heading.index("SCHEDULED")]]


def _waiting(kubectl: Kubectl, job: str) -> list[str]:
    """Its pods, once all are told why they wait."""
    names = until(lambda: len(kubectl.pods(job)) == 2 and kubectl.pods(job), SECONDS, f"pods of {job}")
    for name in names:
        kubectl("wait", "--for=condition=PodScheduled=false", f"pod/{name}", TIMEOUT)
    return list(names)


def test_of_two_gangs_that_each_half_fit_one_waits_whole_and_says_why(kubectl: Kubectl, pool: list[str]) -> None:
    kubectl.bring_up(_pair(kubectl, "one", pool[0]), pods=2)
    assert _group(kubectl, "one") == ["Gang(2)", "True"]

    kubectl.submit(_pair(kubectl, "other", pool[0]))
    for name in _waiting(kubectl, "other"):
        shown = words(kubectl("describe", "pod", name))
        assert "Node: <none>\n" in shown
        assert MISSING in shown
        assert "FailedScheduling" in shown
    assert _group(kubectl, "other") == ["Gang(2)", "False"]
    assert MISSING in words(kubectl("describe", "podgroups.scheduling.k8s.io"))

    kubectl("delete", "job", "one", TIMEOUT)
    kubectl.started("other", 2)
    assert _group(kubectl, "other") == ["Gang(2)", "True"]


def test_suspended_and_resumed_it_finds_its_places_whole_again(kubectl: Kubectl, pool: list[str]) -> None:
    kubectl.bring_up(_pair(kubectl, "one", pool[0]), pods=2)
    kubectl("patch", "job", "one", "--patch", '{"spec": {"suspend": true}}')
    kubectl("wait", "--for=delete", "pod", "--selector=job-name=one", TIMEOUT)
    kubectl.bring_up(_pair(kubectl, "other", pool[0]), pods=2)

    kubectl("patch", "job", "one", "--patch", '{"spec": {"suspend": false}}')
    _waiting(kubectl, "one")
    assert _group(kubectl, "one") == ["Gang(2)", "True"]  # once it was scheduled, that stays

    kubectl("delete", "job", "other", TIMEOUT)
    kubectl.started("one", 2)


def test_for_an_urgent_gang_others_go_and_room_is_kept_for_all_of_it(
    kubectl: Kubectl, pool: list[str], urgent: str
) -> None:
    job = a_job("patient", "", pod=_filling(kubectl, pool[0]) | {"terminationGracePeriodSeconds": 600}, parallelism=3)
    job["spec"]["template"]["metadata"] = {"annotations": {"jobplane.dev/simulate": "seconds=10000, ignoreTerm=true"}}
    kubectl.bring_up(job, pods=3)
    gang = _pair(kubectl, "now", pool[0])
    gang["spec"]["template"]["spec"]["priorityClassName"] = urgent
    kubectl.submit(gang)

    names = _waiting(kubectl, "now")
    kept = until(lambda: _nominated(kubectl, names), SECONDS, "room is kept for both")
    assert len(set(kept)) == 2
    assert set(kept) < set(pool)
    assert _group(kubectl, "now") == ["Gang(2)", "False"]
    gone = [line for line in rows(kubectl("get", "pods", "-l", "job-name=patient"))[1:] if "Terminating" in line]
    assert len(gone) == 2
    shown = words(kubectl("describe", "pod", gone[0][0]))
    assert "DisruptionTarget True" in shown
    assert f"Preempted by pod group {kubectl.namespace}/now-" in shown

    kubectl("delete", "pod", gone[0][0], "--grace-period=1", TIMEOUT)
    assert not any(kubectl.stored("pod", name)["spec"].get("nodeName") for name in names)
    kubectl("delete", "pod", gone[1][0], "--grace-period=1", TIMEOUT)
    kubectl.started("now", 2)
    assert {kubectl.stored("pod", name)["spec"]["nodeName"] for name in names} == set(kept)
    for line in rows(kubectl("get", "pods", "-l", "job-name=patient"))[1:]:
        kubectl("delete", "pod", line[0], "--grace-period=1", "--wait=false", "--ignore-not-found")


def _nominated(kubectl: Kubectl, names: list[str]) -> list[str]:
    """The nodes with room kept for them; nothing unless there is one for each."""
    found = [kubectl.stored("pod", name)["status"].get("nominatedNodeName") for name in names]
    return found if all(found) else []


def test_all_pods_of_a_group_go_to_one_rack(kubectl: Kubectl, pool: list[str]) -> None:
    spec = {"schedulingPolicy": {"gang": {"minCount": 2}}, "schedulingConstraints": {"topology": [{"key": "rack"}]}}
    group = {"apiVersion": "scheduling.k8s.io/v1alpha3", "kind": "PodGroup", "metadata": {"name": "near"}, "spec": spec}
    pod = {**_filling(kubectl, pool[0]), "schedulingGroup": {"podGroupName": "near"}}
    meta = [{"name": f"p{number}", "annotations": LASTING} for number in range(2)]
    pods = [{"apiVersion": "v1", "kind": "Pod", "metadata": each, "spec": pod} for each in meta]

    assert "Warning" not in kubectl.send("create", group, options=["--validate=false"])
    kubectl.send("create", *pods, options=["--validate=false"])

    kubectl("wait", "--for=condition=Ready", "pod/p0", "pod/p1", TIMEOUT)
    assert {kubectl.stored("pod", f"p{number}")["spec"]["nodeName"] for number in range(2)} == set(pool[1:])
