"""An operator in Python, by kopf: handlers, timers, finalizers, events, and a webhook whose configuration kopf writes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, free_port
from tests.e2e.environments import python_with
from tests.operators.manager import Manager, running
from tests.operators.manifests import Serving
from tests.operators.objects import Document, Objects

REQUIREMENTS = ("kopf==1.45.2", "kubernetes==37.0.2")
SCRIPT = Path(__file__).with_name("sweep_operator.py")
SWEEPS = "lab.example.com/v1/sweeps"
WHOLE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
VALUES = {"type": "array", "items": {"type": "string"}}
DEFINITION: Document = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "sweeps.lab.example.com"},
    "spec": {
        "group": "lab.example.com",
        "scope": "Namespaced",
        "names": {"plural": "sweeps", "singular": "sweep", "kind": "Sweep"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "subresources": {"status": {}},
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {"type": "object", "required": ["values"], "properties": {"values": VALUES}},
                            "status": WHOLE,
                        },
                    }
                },
            }
        ],
    },
}


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    python, folder, port = python_with("kopf", *REQUIREMENTS), tmp_path_factory.mktemp("kopf"), free_port(2)
    serving = Serving(folder / "certificates")
    liveness = f"http://127.0.0.1:{port + 1}/healthz"
    env = {
        "WEBHOOK_PORT": str(port),
        "WEBHOOK_CERTIFICATE": str(serving.folder / "server.pem"),
        "WEBHOOK_AUTHORITY": str(serving.folder / "ca.crt"),
    }
    with cluster.client() as client:
        Objects(client).define(DEFINITION)
    command = [python.with_name("kopf"), "run", "--namespace", "default", "--liveness", liveness, SCRIPT]
    with running(command, cluster, folder, env) as manager:
        manager.until_it_answers(liveness)
        manager.until_it_says("Reconfiguring the mutating webhook sweeps.lab.example.com")
        yield manager


def _sweep(name: str, *values: str) -> dict[str, Any]:
    return {
        "apiVersion": "lab.example.com/v1",
        "kind": "Sweep",
        "metadata": {"name": name},
        "spec": {"values": list(values)},
    }


def test_a_sweep_becomes_jobs_and_counts_them(operator: Manager, objects: Objects) -> None:
    made = objects.create(SWEEPS, _sweep("three", "a", "b", "c"))

    assert made["metadata"]["labels"] == {"swept": "yes"}
    objects.until(SWEEPS, "three", lambda found: found.get("status", {}).get("done") == 3)
    done = objects.until(SWEEPS, "three", lambda found: found["status"].get("ticks", 0) >= 2)
    assert done["metadata"]["finalizers"] == ["sweeps.lab.example.com/finalizer"]
    assert (done["status"]["total"], done["status"]["begin"]) == (3, {"started": 3})

    objects.delete(SWEEPS, "three")
    objects.until(SWEEPS, "three", lambda found: found.get("code") == 404)
    objects.until("batch/v1/jobs", "three-a", lambda found: found.get("code") == 404)  # by its owner
    assert ("three", "Swept") in [
        (each["involvedObject"]["name"], each["reason"]) for each in objects.list("v1/events")
    ]


def test_its_webhook_refuses_a_sweep(operator: Manager, objects: Objects) -> None:
    refused = objects.client.post(objects.path(SWEEPS), json=_sweep("four", "a", "b", "c", "d"))

    assert refused.status_code == 422
    assert refused.json()["message"].endswith("denied the request: too many values")
