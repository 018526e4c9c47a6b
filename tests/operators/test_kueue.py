"""Kueue: Jobs that wait for quota, are admitted one after the other, and are preempted; pods and JobSets, too.

Its 43 webhooks, and those that convert between its versions, are called by URL.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.cluster import Cluster, free_port
from tests.operators import jobset
from tests.operators.go_modules import Built, Source, build
from tests.operators.manager import Manager, overlaid, running
from tests.operators.manifests import Serving, by_url, converting, definitions, documents
from tests.operators.objects import Document, Objects, condition

KUEUE = Source("kueue", "sigs.k8s.io/kueue", "v0.17.0", "./cmd/kueue")
VERSION = "kueue.x-k8s.io/v1beta2"
OLDER = "kueue.x-k8s.io/v1beta1"
SYSTEM = "kueue-system"
QUEUE = {"kueue.x-k8s.io/queue-name": "team"}


@pytest.fixture(scope="module")
def jobsets(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    with jobset.by_urls(cluster, tmp_path_factory.mktemp("jobset")) as manager:
        yield manager


@pytest.fixture(scope="module")
def kueue(jobsets: Manager, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """The manager, ready, with leader election."""
    built, folder, first = build(KUEUE), tmp_path_factory.mktemp("kueue"), free_port(3)
    serving = Serving(folder / "certificates")
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(_configuration(first, serving)))
    metrics = {name: serving.folder / name for name in ("tls.crt", "tls.key")}
    command = [built.program, "--config", config, "--feature-gates", "VisibilityOnDemand=false"]
    inside = overlaid("/etc", {f"kueue/metrics/certs/{name}": file for name, file in metrics.items()}, folder, command)
    with cluster.client() as client:
        objects = Objects(client)
        objects.create("v1/namespaces", {"metadata": {"name": SYSTEM}}, None)
        for each in _definitions(built, first, serving):
            objects.define(each)
        with running(inside, cluster, folder) as manager:
            manager.until_it_answers(f"http://127.0.0.1:{first + 1}/readyz")
            for each in documents(built.source / "config/components/webhook", "manifests.yaml"):
                objects.apply(by_url(each, f"kueue-{each['kind'][:8].lower()}", first, serving))
            for each in _queues():
                objects.apply(each)
            yield manager


def _definitions(built: Built, port: int, serving: Serving) -> Iterator[Document]:
    """Those of two schemas with the conversion that its installation gives them."""
    crd = built.source / "config/components/crd"
    patches = documents(crd / "patches", "webhook_in_*.yaml")
    conversions = {each["metadata"]["name"]: each["spec"]["conversion"] for each in patches}
    for each in definitions(crd / "bases"):
        conversion = conversions.get(each["metadata"]["name"])
        yield converting(each, conversion, port, serving) if conversion else each


def _configuration(port: int, serving: Serving) -> dict[str, Any]:
    return {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "namespace": SYSTEM,
        "webhook": {"port": port, "host": "127.0.0.1", "certDir": str(serving.folder)},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{port + 1}"},
        "metrics": {"bindAddress": f"127.0.0.1:{port + 2}"},
        "leaderElection": {"leaderElect": True, "resourceNamespace": SYSTEM, "resourceName": "kueue"},
        "internalCertManagement": {"enable": False},
        "integrations": {"frameworks": ["batch/job", "pod", "jobset.x-k8s.io/jobset"]},
    }


def _queues() -> list[Document]:
    """One processor for all, which a Job of a higher priority takes from one of a lower."""
    cpu = {"name": "cpu", "nominalQuota": "1"}
    group = {"coveredResources": ["cpu"], "flavors": [{"name": "any", "resources": [cpu]}]}
    whole = {
        "namespaceSelector": {},
        "resourceGroups": [group],
        "preemption": {"withinClusterQueue": "LowerPriority"},
    }
    return [
        {"apiVersion": VERSION, "kind": "ResourceFlavor", "metadata": {"name": "any"}},
        {"apiVersion": VERSION, "kind": "ClusterQueue", "metadata": {"name": "lab"}, "spec": whole},
        {
            "apiVersion": VERSION,
            "kind": "LocalQueue",
            "metadata": {"name": "team", "namespace": "default"},
            "spec": {"clusterQueue": "lab"},
        },
        *(
            {"apiVersion": VERSION, "kind": "WorkloadPriorityClass", "metadata": {"name": name}, "value": value}
            for name, value in {"low": 1, "high": 100}.items()
        ),
    ]


def _job(name: str, command: str, priority: str = "low") -> Document:
    container = {
        "name": "main",
        "image": "busybox",
        "command": ["sh", "-c", command],
        "resources": {"requests": {"cpu": "600m"}},
    }
    template = {"spec": {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}}
    return {
        "metadata": {"name": name, "labels": QUEUE | {"kueue.x-k8s.io/priority-class": priority}},
        "spec": {"template": template},
    }


def _suspended(found: Document) -> bool:
    return bool(found["spec"].get("suspend"))


def test_jobs_are_admitted_one_after_the_other(kueue: Manager, objects: Objects, tmp_path: Path) -> None:
    done = tmp_path / "done"
    objects.apply(_queues()[2])
    first = objects.create("batch/v1/jobs", _job("first", f"until test -e {done}; do sleep 0.2; done"))
    assert first["spec"]["suspend"] is True  # of the webhook
    objects.until("batch/v1/jobs", "first", lambda found: found["status"].get("ready") == 1)
    objects.create("batch/v1/jobs", _job("second", "echo works"))
    objects.until(f"{VERSION}/localqueues", "team", lambda found: found["status"].get("pendingWorkloads") == 1)
    assert _suspended(objects.get("batch/v1/jobs", "second"))

    done.touch()
    for name in ("first", "second"):
        objects.until("batch/v1/jobs", name, lambda found: condition(found, "Complete"))
    workloads = objects.list(f"{VERSION}/workloads")
    assert sorted(each["metadata"]["ownerReferences"][0]["name"] for each in workloads) == ["first", "second"]
    objects.until(f"{VERSION}/workloads", workloads[0]["metadata"]["name"], lambda found: condition(found, "Finished"))


def test_a_job_of_higher_priority_preempts(kueue: Manager, objects: Objects, tmp_path: Path) -> None:
    done = tmp_path / "done"
    objects.create("batch/v1/jobs", _job("low", f"until test -e {done}; do sleep 0.2; done"))
    objects.until("batch/v1/jobs", "low", lambda found: found["status"].get("ready") == 1)
    objects.create("batch/v1/jobs", _job("high", f"until test -e {done}; do sleep 0.2; done", "high"))

    objects.until("batch/v1/jobs", "low", _suspended)
    objects.until("batch/v1/jobs", "high", lambda found: found["status"].get("ready") == 1)
    done.touch()
    for name in ("high", "low"):
        objects.until("batch/v1/jobs", name, lambda found: condition(found, "Complete"))


def test_a_pod_is_gated_until_it_is_admitted(kueue: Manager, objects: Objects, tmp_path: Path) -> None:
    done = tmp_path / "done"
    wait = f"until test -e {done}; do sleep 0.2; done"
    objects.create("batch/v1/jobs", _job("before", wait))
    objects.until("batch/v1/jobs", "before", lambda found: found["status"].get("ready") == 1)
    pod = _job("pod", "true")["spec"]["template"]
    made = objects.create("v1/pods", {"metadata": {"name": "gated", "labels": QUEUE}, "spec": pod["spec"]})
    assert {"name": "kueue.x-k8s.io/admission"} in made["spec"]["schedulingGates"]

    done.touch()
    objects.until("v1/pods", "gated", lambda found: found["status"].get("phase") == "Succeeded")
    objects.until("v1/pods", "gated", lambda found: not found["metadata"].get("finalizers"))
    objects.until("batch/v1/jobs", "before", lambda found: condition(found, "Complete"))
    objects.delete("v1/pods", "gated")
    objects.until("v1/pods", "gated", lambda found: found.get("code") == 404)


def test_a_set_of_jobs_is_admitted_as_a_whole(kueue: Manager, objects: Objects, tmp_path: Path) -> None:
    done = tmp_path / "done"
    objects.create("batch/v1/jobs", _job("earlier", f"until test -e {done}; do sleep 0.2; done"))
    objects.until("batch/v1/jobs", "earlier", lambda found: found["status"].get("ready") == 1)
    whole = jobset.set_of("whole", {"leader": "true", "workers": "true"})
    whole["metadata"]["labels"] = QUEUE
    for each in whole["spec"]["replicatedJobs"]:
        [container] = each["template"]["spec"]["template"]["spec"]["containers"]
        container["resources"] = {"requests": {"cpu": "300m"}}
    assert _suspended(objects.create(jobset.SETS, whole))
    objects.until(f"{VERSION}/localqueues", "team", lambda found: found["status"].get("pendingWorkloads") == 1)

    done.touch()
    objects.until(jobset.SETS, "whole", lambda found: condition(found, "Completed"))
    objects.until("batch/v1/jobs", "earlier", lambda found: condition(found, "Complete"))


def test_its_older_version_is_converted(kueue: Manager, objects: Objects) -> None:
    objects.create("batch/v1/jobs", _job("converted", "true"))
    objects.until("batch/v1/jobs", "converted", lambda found: condition(found, "Complete"))
    queue = objects.get(f"{OLDER}/clusterqueues", "lab", None)
    assert queue["apiVersion"] == OLDER
    assert queue["spec"]["preemption"]["withinClusterQueue"] == "LowerPriority"
    older = objects.list(f"{OLDER}/workloads")
    assert older
    assert {each["apiVersion"] for each in older} == {OLDER}


def test_the_webhook_refuses_a_queue_that_cannot_be(kueue: Manager, objects: Objects) -> None:
    wrong = _queues()[1]
    wrong["metadata"]["name"] = "wrong"
    wrong["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0]["borrowingLimit"] = "1"  # of no cohort
    refused = objects.client.post(objects.path(f"{VERSION}/clusterqueues", "", None), json=wrong)

    assert refused.status_code in (403, 422)
