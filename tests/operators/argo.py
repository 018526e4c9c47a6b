"""The controller of Argo Workflows."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.cluster import Cluster
from tests.operators.go_modules import Built, Source
from tests.operators.manager import Manager, running
from tests.operators.manifests import definitions
from tests.operators.objects import Document, Objects

ARGO = Source("argo", "github.com/argoproj/argo-workflows/v4", "v4.0.5", "./cmd/workflow-controller")
VERSION = "argoproj.io/v1alpha1"
SYSTEM = "argo"
_CONFIG = {
    "metadata": {"name": "workflow-controller-configmap"},
    "data": {"executor": "imagePullPolicy: IfNotPresent\n", "metricsConfig": "enabled: false\n"},
}


@contextmanager
def controller(built: Built, cluster: Cluster, folder: Path, env: Mapping[str, str] | None = None) -> Iterator[Manager]:
    """With leader election and the full schemas. It probes itself at port 6060."""
    with cluster.client() as client:
        objects = Objects(client)
        objects.create("v1/namespaces", {"metadata": {"name": SYSTEM}}, None)
        for each in definitions(built.source / "manifests/base/crds/full"):
            objects.define(each)
        objects.create("v1/configmaps", _CONFIG, SYSTEM)
    command = [built.program, "--kubeconfig", cluster.kubeconfig, "--namespace", SYSTEM]
    identity = {"LEADER_ELECTION_IDENTITY": "test", **(env or {})}
    with running([*command, "--executor-image", "argoexec"], cluster, folder, identity) as manager:
        manager.until_it_says("Starting CronWorkflow controller")
        yield manager


def has_ended(workflow: Document) -> bool:
    return workflow.get("status", {}).get("phase") in ("Succeeded", "Failed", "Error")
