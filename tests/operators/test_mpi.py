"""The MPI operator: an MPIJob of two simulated nodes, its Service, host file, ssh keys, workers and launcher."""

from collections.abc import Iterator

import pytest

from tests.e2e.cluster import Cluster
from tests.operators.go_modules import Source, build
from tests.operators.manager import Manager, running
from tests.operators.manifests import definitions
from tests.operators.objects import Document, Objects, condition

MPI = Source("mpi-operator", "github.com/kubeflow/mpi-operator", "v0.8.0", "./cmd/mpi-operator")
JOBS = "kubeflow.org/v2beta1/mpijobs"
SYSTEM = "mpi-operator"


@pytest.fixture(scope="module")
def mpi(simulated: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Manager]:
    """The operator, with leader election. It probes itself at port 8080, which nothing else may have."""
    built = build(MPI)
    with simulated.client() as client:
        objects = Objects(client)
        objects.create("v1/namespaces", {"metadata": {"name": SYSTEM}}, None)
        for each in definitions(built.source / "manifests/base"):
            objects.define(each)
    command = [built.program, "--kubeConfig", simulated.kubeconfig, "--lock-namespace", SYSTEM]
    with running(command, simulated, tmp_path_factory.mktemp("mpi")) as manager:
        manager.until_it_says("Started workers")
        yield manager


@pytest.fixture
def objects(simulated: Cluster) -> Iterator[Objects]:
    with simulated.client() as client:
        yield Objects(client)


def _replica(replicas: int, simulate: str) -> Document:
    container = {"name": "main", "image": "mpioperator/mpi-pi:openmpi", "resources": {"limits": {"cpu": "1"}}}
    template = {"metadata": {"annotations": {"jobplane.dev/simulate": simulate}}, "spec": {"containers": [container]}}
    return {"replicas": replicas, "template": template}


def _mpi_job(name: str, launcher: str) -> Document:
    """Its workers run until they are cleaned up."""
    replicas = {"Launcher": _replica(1, launcher), "Worker": _replica(2, "seconds=600")}
    policy = {"cleanPodPolicy": "Running", "backoffLimit": 0}
    return {
        "kind": "MPIJob",
        "metadata": {"name": name},
        "spec": {"slotsPerWorker": 1, "runPolicy": policy, "mpiReplicaSpecs": replicas},
    }


def test_a_job_of_two_workers_ends(mpi: Manager, objects: Objects) -> None:
    objects.create(JOBS, _mpi_job("pi", "seconds=3"))

    objects.until(JOBS, "pi", lambda found: condition(found, "Running"))
    assert len(objects.list("v1/pods", "training.kubeflow.org/job-role=worker")) == 2
    hosts = objects.get("v1/configmaps", "pi-config")["data"]["hostfile"]
    assert [each.split(".")[0] for each in hosts.splitlines()] == ["pi-worker-0", "pi-worker-1"]
    assert objects.get("v1/services", "pi")["spec"]["clusterIP"] == "None"
    assert {"ssh-privatekey", "ssh-publickey"} <= objects.get("v1/secrets", "pi-ssh")["data"].keys()
    objects.until(JOBS, "pi", lambda found: condition(found, "Succeeded"))
    objects.until(JOBS, "pi", lambda _: not objects.list("v1/pods", "training.kubeflow.org/job-role=worker"))


def test_a_job_whose_launcher_fails_has_failed(mpi: Manager, objects: Objects) -> None:
    objects.create(JOBS, _mpi_job("wrong", "seconds=1 exitCode=3"))

    objects.until(JOBS, "wrong", lambda found: condition(found, "Failed"))
