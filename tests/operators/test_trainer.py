"""Kubeflow Trainer: a TrainJob becomes a JobSet, by server-side apply, and ends as it does.

JobSet runs as it is installed, with certificates of its own making and webhooks by its Service.
"""

from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from tests.e2e.cluster import Cluster, free_port
from tests.operators import jobset
from tests.operators.go_modules import Source, build
from tests.operators.manager import Manager, running
from tests.operators.manifests import Serving, by_url, definitions, documents
from tests.operators.objects import Document, Objects, condition

TRAINER = Source("trainer", "github.com/kubeflow/trainer/v2", "v2.2.0", "./cmd/trainer-controller-manager")
VERSION = "trainer.kubeflow.org/v1alpha1"
SYSTEM = "kubeflow-system"
LEASE = {"leaseDuration": "15s", "renewDeadline": "10s", "retryPeriod": "2s"}  # it has no defaults for them


@pytest.fixture(scope="module")
def jobsets(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    with jobset.by_services(cluster, tmp_path_factory.mktemp("jobset")) as manager:
        yield manager


@pytest.fixture(scope="module")
def trainer(jobsets: Manager, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    built, folder, first = build(TRAINER), tmp_path_factory.mktemp("trainer"), free_port(4)
    serving = Serving(folder / "k8s-webhook-server" / "serving-certs")
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(_configuration(first)))
    with cluster.client() as client:
        objects = Objects(client)
        objects.create("v1/namespaces", {"metadata": {"name": SYSTEM}}, None)
        for each in definitions(built.source / "manifests/base/crds"):
            objects.define(each)
        with running([built.program, "--config", config], cluster, folder, {"TMPDIR": str(folder)}) as manager:
            manager.until_it_answers(f"http://127.0.0.1:{first + 1}/readyz")
            for each in documents(built.source / "manifests/base/webhook", "manifests.yaml"):
                objects.apply(by_url(each, f"trainer-{each['kind'][:8].lower()}", first, serving))
            yield manager


def _configuration(port: int) -> dict[str, Any]:
    return {
        "apiVersion": "config.trainer.kubeflow.org/v1alpha1",
        "kind": "Configuration",
        "webhook": {"port": port, "host": "127.0.0.1"},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{port + 1}"},
        "metrics": {"bindAddress": f"127.0.0.1:{port + 2}", "secureServing": True},
        "leaderElection": {"leaderElect": True, "resourceName": "trainer", "resourceNamespace": SYSTEM, **LEASE},
        "certManagement": {"enable": False},
        "statusServer": {"port": port + 3},
    }


def _runtime(name: str) -> Document:
    container = {"name": "node", "image": "busybox", "command": ["true"]}
    template = {
        "metadata": {"labels": {"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}},
        "spec": {"backoffLimit": 0, "template": {"spec": {"containers": [container]}}},
    }
    return {
        "apiVersion": VERSION,
        "kind": "TrainingRuntime",
        "metadata": {"name": name, "namespace": "default", "labels": {"trainer.kubeflow.org/framework": "torch"}},
        "spec": {
            "mlPolicy": {"numNodes": 1, "torch": {}},
            "template": {"spec": {"replicatedJobs": [{"name": "node", "template": template}]}},
        },
    }


def _train_job(name: str, command: str) -> Document:
    runtime = {"name": "torch", "kind": "TrainingRuntime", "apiGroup": "trainer.kubeflow.org"}
    trainer = {"numNodes": 2, "command": ["sh", "-c", command]}
    return {
        "apiVersion": VERSION,
        "kind": "TrainJob",
        "metadata": {"name": name},
        "spec": {"runtimeRef": runtime, "trainer": trainer},
    }


def test_a_training_on_two_nodes_ends(trainer: Manager, objects: Objects) -> None:
    objects.apply(_runtime("torch"))
    objects.create(f"{VERSION}/trainjobs", _train_job("two", "echo rank $PET_NODE_RANK of $PET_NNODES"))

    objects.until(f"{VERSION}/trainjobs", "two", lambda found: condition(found, "Complete"))
    made = objects.get(jobset.SETS, "two")
    assert made["metadata"]["ownerReferences"][0]["kind"] == "TrainJob"
    pods = objects.list("v1/pods", "jobset.sigs.k8s.io/jobset-name=two")
    logs = [objects.client.get(f"/api/v1/namespaces/default/pods/{each['metadata']['name']}/log").text for each in pods]
    assert sorted(logs) == ["rank 0 of 2\n", "rank 1 of 2\n"]


def test_a_training_fails(trainer: Manager, objects: Objects) -> None:
    objects.apply(_runtime("torch"))
    objects.create(f"{VERSION}/trainjobs", _train_job("wrong", "exit 1"))

    objects.until(f"{VERSION}/trainjobs", "wrong", lambda found: condition(found, "Failed"))


def test_the_webhook_refuses_a_runtime_that_is_not_there(trainer: Manager, objects: Objects) -> None:
    wrong = _train_job("nowhere", "true")
    wrong["spec"]["runtimeRef"]["name"] = "absent"
    refused = objects.client.post(objects.path(f"{VERSION}/trainjobs"), json=wrong)

    assert refused.status_code in (403, 422)
    assert "validator.trainjob.trainer.kubeflow.org" in refused.json()["message"]


def test_jobset_has_put_its_authority_into_its_configurations(jobsets: Manager, objects: Objects) -> None:
    secret = objects.get("v1/secrets", "jobset-webhook-server-cert", jobset.SYSTEM)
    kinds = "admissionregistration.k8s.io/v1/{}webhookconfigurations"
    for kind in ("mutating", "validating"):
        found = objects.get(kinds.format(kind), f"jobset-{kind}-webhook-configuration", None)
        assert {each["clientConfig"]["caBundle"] for each in found["webhooks"]} == {secret["data"]["ca.crt"]}
