"""`kubectl describe` of every kind, and events."""

import re

import pytest

from tests.e2e.kubectl import TIMEOUT, Kubectl, everywhere, following, on_every_version, words
from tests.e2e.manifests import a_job

LIMITS = {
    "apiVersion": "v1",
    "kind": "LimitRange",
    "metadata": {"name": "bounds"},
    "spec": {"limits": [{"type": "Container", "default": {"cpu": "200m"}, "max": {"cpu": "1"}}]},
}


@pytest.fixture(scope="module", autouse=True)
def told(kubectls: list[Kubectl]) -> None:
    """A Job that has completed, and one that has failed."""
    everywhere(kubectls, _make)


def _make(kubectl: Kubectl) -> None:
    kubectl.submit(a_job("fails", "exit 3", backoffLimit=0))
    kubectl.run_to_its_end(a_job("tells", "echo done", labels={"a": "b"}))
    kubectl("wait", "--for=condition=failed", "job/fails", TIMEOUT)


def _described(kubectl: Kubectl, *what: str) -> str:
    return words(kubectl("describe", *what))


@on_every_version
def test_a_job_is_described_with_its_story(kubectl: Kubectl) -> None:
    said = _described(kubectl, "job", "tells")
    for line in (
        "Name: tells",
        f"Namespace: {kubectl.namespace}",
        "Labels: a=b",
        "Annotations: <none>",
        "Parallelism: 1",
        "Completions: 1",
        "Completion Mode: NonIndexed",
        "Pods Statuses: 0 Active (0 Ready) / 1 Succeeded / 0 Failed",
        " Image: busybox",
    ):
        assert f"{line}\n" in said
    assert re.search(r"^Selector: batch.kubernetes.io/controller-uid=\S+$", said, re.MULTILINE)
    assert re.search(r"^ Normal SuccessfulCreate \S+ job-controller Created pod: tells-\w{5}$", said, re.MULTILINE)
    assert re.search(r"^ Normal Completed \S+ job-controller Job completed$", said, re.MULTILINE)


@on_every_version
def test_a_failed_job_says_why(kubectl: Kubectl) -> None:
    said = _described(kubectl, "job", "fails")
    assert "Pods Statuses: 0 Active (0 Ready) / 0 Succeeded / 1 Failed\n" in said
    assert re.search(
        r"^ Warning BackoffLimitExceeded \S+ job-controller Job has reached the specified backoff limit$",
        said,
        re.MULTILINE,
    )
    pod = _described(kubectl, "pods", "-l", "job-name=fails")
    assert " Reason: Error\n Exit Code: 3\n" in pod


@on_every_version
def test_a_pod_is_described_with_how_it_ended(kubectl: Kubectl) -> None:
    said = _described(kubectl, "pod", "-l", "job-name=tells")
    for line in ("Status: Succeeded", "Controlled By: Job/tells", " Reason: Completed", " Exit Code: 0"):
        assert f"{line}\n" in said
    assert re.search(r"^Node: \S+/\S+$", said, re.MULTILINE)
    assert re.search(r"^ PodScheduled True ?$", said, re.MULTILINE)
    assert re.search(r"^QoS Class: BestEffort$", said, re.MULTILINE)
    scheduled = (
        rf"^ Normal Scheduled \S+ default-scheduler Successfully assigned {kubectl.namespace}/tells-\w{{5}} to \S+$"
    )
    assert re.search(scheduled, said, re.MULTILINE)


@on_every_version
def test_a_cronjob_is_described(kubectl: Kubectl) -> None:
    kubectl("create", "cronjob", "told", "--schedule=0 0 1 1 *", "--image=busybox", "--", "true")
    said = _described(kubectl, "cronjob", "told")
    for line in (
        "Schedule: 0 0 1 1 *",
        "Concurrency Policy: Allow",
        "Suspend: False",
        "Successful Job History Limit: 3",
        "Failed Job History Limit: 1",
        "Last Schedule Time: <unset>",
        "Active Jobs: <none>",
        "Events: <none>",
    ):
        assert f"{line}\n" in said


@on_every_version
def test_a_node_is_described_with_what_it_has_and_runs(kubectl: Kubectl) -> None:
    said = _described(kubectl, "node")
    for pattern in (
        r"^Unschedulable: false$",
        r"^ HolderIdentity: \S+$",
        r"^ Ready True .* KubeletReady ",
        r"^ InternalIP: \S+$",
        r"^Capacity:\n cpu: \d+$",
        r"^Allocatable:\n cpu: \d+$",
        r"^ Container Runtime Version: process://",
        r"^Non-terminated Pods: \(\d+ in total\)$",
        r"^ cpu \S+ \(\d+%\) \S+ \(\d+%\)$",
    ):
        assert re.search(pattern, said, re.MULTILINE), pattern


@on_every_version
def test_a_namespace_is_described_with_its_bounds(kubectl: Kubectl) -> None:
    own = kubectl.apart("bounds")
    empty = words(own("describe", "ns", own.namespace))
    assert "Status: Active\n\nNo resource quota.\n\nNo LimitRange resource.\n" in empty
    own("create", "quota", "few", "--hard=pods=3")
    own.send("create", LIMITS)
    own("wait", "--for=jsonpath={.status.used.pods}=0", "quota/few", TIMEOUT)
    said = words(own("describe", "ns", own.namespace))
    assert re.search(r"^Resource Quotas\n Name: few\n Resource Used Hard\n -+ -+ -+\n pods 0 3$", said, re.MULTILINE)
    assert re.search(r"^ Container cpu - 1 200m 200m -$", said, re.MULTILINE)
    assert re.search(r"^pods 0 3$", words(own("describe", "quota", "few")), re.MULTILINE)
    assert re.search(r"^Container cpu - 1 200m 200m -$", words(own("describe", "limitrange")), re.MULTILINE)


@on_every_version
def test_small_kinds_are_described(kubectl: Kubectl) -> None:
    kubectl("create", "secret", "generic", "told", "--from-literal=key=open")
    assert "Type: Opaque\n" in (secret := _described(kubectl, "secret", "told"))
    assert "key: 4 bytes\n" in secret
    kubectl("create", "configmap", "told", "--from-literal=sky=blue")
    assert re.search(r"^sky:\n----\nblue\n", _described(kubectl, "cm", "told"), re.MULTILINE)
    critical = _described(kubectl, "priorityclass", "system-node-critical")
    assert "Value: 2000001000\nGlobalDefault: false\nPreemptionPolicy: PreemptLowerPriority\n" in critical
    assert "Name: default\n" in _described(kubectl, "serviceaccount", "default")
    kubectl("create", "service", "clusterip", "told", "--tcp=80:8080")
    service = _described(kubectl, "service", "told")
    assert "Type: ClusterIP\n" in service
    assert "TargetPort: 8080/TCP\n" in service
    kubectl("create", "pdb", "told", "--selector=app=told", "--max-unavailable=1")
    assert "Max unavailable: 1\nSelector: app=told\n" in _described(kubectl, "pdb", "told")


@on_every_version
def test_what_is_not_there_cannot_be_described(kubectl: Kubectl) -> None:
    said = kubectl("describe", "job", "nix", code=1)
    assert said == 'Error from server (NotFound): jobs.batch "nix" not found\n'
    assert kubectl("describe", "limits") == kubectl.none()


@on_every_version
def test_events_are_listed_sorted_and_of_one_object(kubectl: Kubectl) -> None:
    assert re.search(r"^\S+ Normal Completed job/tells Job completed$", words(kubectl("get", "events")), re.MULTILINE)
    of_one = words(kubectl("events", "--for", "job/tells"))
    assert of_one.startswith("LAST SEEN TYPE REASON OBJECT MESSAGE\n")
    assert re.search(r"^\S+ Normal Completed Job/tells Job completed$", of_one, re.MULTILINE)
    assert "fails" not in of_one
    bad = words(kubectl("events", "--types=Warning"))
    assert re.search(r"^\S+ Warning BackoffLimitExceeded Job/fails ", bad, re.MULTILINE)
    assert "Normal" not in bad
    selected = ("get", "events", "--field-selector", "involvedObject.name=tells,reason=Completed", "--no-headers")
    assert kubectl(*selected).count("\n") == 1
    assert kubectl("get", "events.v1.events.k8s.io", "-o", "jsonpath={.items[*].regarding.kind}").count("Job") >= 4


@on_every_version
def test_events_are_watched(kubectl: Kubectl) -> None:
    with following(kubectl.start("events", "--for", "job/watched", "-w")) as told:
        kubectl.run_to_its_end(a_job("watched", "true"))
        found = {told(r" Normal .* Job/watched ").split()[2] for _ in range(2)}
    assert found == {"SuccessfulCreate", "Completed"}
