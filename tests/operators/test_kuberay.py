"""KubeRay: a RayCluster up to its running pods and its Service. Pods are simulated, so no RayJob can be handed to a head."""

from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster, free_port
from tests.operators.go_modules import Source, build
from tests.operators.manager import Manager, running
from tests.operators.manifests import definitions
from tests.operators.objects import Document, Objects, condition

RAY = Source("kuberay", "github.com/ray-project/kuberay/ray-operator", "v1.6.0")
CLUSTERS = "ray.io/v1/rayclusters"
SYSTEM = "ray-system"
# Its own probes and its init container run commands of Ray in the pods, and these are simulated.
WITHOUT_RAY = {"ENABLE_PROBES_INJECTION": "false", "ENABLE_INIT_CONTAINER_INJECTION": "false"}


@pytest.fixture(scope="module")
def kuberay(simulated: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    built, first = build(RAY), free_port(2)
    with simulated.client() as client:
        objects = Objects(client)
        objects.create("v1/namespaces", {"metadata": {"name": SYSTEM}}, None)
        for each in definitions(built.source / "config/crd/bases"):
            objects.define(each)
    listening = ["--metrics-addr", f"127.0.0.1:{first + 1}", "--health-probe-bind-address", f"127.0.0.1:{first}"]
    command = [built.program, *listening, "--leader-election-namespace", SYSTEM]
    with running(command, simulated, tmp_path_factory.mktemp("kuberay"), WITHOUT_RAY) as manager:
        manager.until_it_answers(f"http://127.0.0.1:{first}/readyz")
        yield manager


@pytest.fixture
def objects(simulated: Cluster) -> Iterator[Objects]:
    with simulated.client() as client:
        yield Objects(client)


def _pod(name: str) -> Document:
    return {
        "metadata": {"annotations": {"jobplane.dev/simulate": "seconds=600"}},
        "spec": {"containers": [{"name": name, "image": "rayproject/ray:2.52.0"}]},
    }


def _cluster(name: str, workers: int) -> Document:
    group = {"groupName": "small", "replicas": workers, "minReplicas": 0, "maxReplicas": 5, "rayStartParams": {}}
    return {
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "rayVersion": "2.52.0",
            "headGroupSpec": {"rayStartParams": {}, "template": _pod("ray-head")},
            "workerGroupSpecs": [group | {"template": _pod("ray-worker")}],
        },
    }


def _pods(objects: Objects, kind: str) -> list[Document]:
    return objects.list("v1/pods", f"ray.io/cluster=small,ray.io/node-type={kind}")


def test_a_cluster_has_its_pods_and_changes_their_number(kuberay: Manager, objects: Objects) -> None:
    objects.apply(_cluster("small", 2))

    objects.until(CLUSTERS, "small", lambda found: found.get("status", {}).get("state") == "ready")
    found = objects.until(CLUSTERS, "small", lambda found: found["status"].get("readyWorkerReplicas") == 2)
    assert condition(found, "HeadPodReady")
    assert (len(_pods(objects, "head")), len(_pods(objects, "worker"))) == (1, 2)
    service = objects.get("v1/services", "small-head-svc")
    assert {each["name"] for each in service["spec"]["ports"]} >= {"client", "dashboard", "gcs-server"}
    objects.apply(_cluster("small", 1))
    objects.until(CLUSTERS, "small", lambda found: len(_pods(objects, "worker")) == 1)


def test_a_cluster_is_suspended_and_goes(kuberay: Manager, objects: Objects) -> None:
    stopped = _cluster("small", 1)
    stopped["spec"]["suspend"] = True
    objects.apply(stopped)
    objects.until(CLUSTERS, "small", lambda found: found.get("status", {}).get("state") == "suspended")
    assert _pods(objects, "head") == []

    objects.delete(CLUSTERS, "small")
    objects.until("v1/services", "small-head-svc", lambda found: found.get("code") == 404)
