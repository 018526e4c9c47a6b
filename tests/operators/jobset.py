"""JobSet's manager, for the tests of JobSet and of what is built upon it."""

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.e2e.cluster import Cluster, free_port
from tests.operators.go_modules import Built, Source, build
from tests.operators.manager import Manager, bound, running
from tests.operators.manifests import Serving, by_service, by_url, definitions, documents, kustomized, service_outside
from tests.operators.objects import Objects
from tests.operators.secret_volume import mounted

JOBSET = Source("jobset", "sigs.k8s.io/jobset", "v0.11.1")
SETS = "jobset.x-k8s.io/v1alpha2/jobsets"
SYSTEM = "jobset-system"
_SECRET, _SERVICE = "jobset-webhook-server-cert", "jobset-webhook-service"
_CERTIFICATES = "/tmp/k8s-webhook-server"  # where its manager looks, and no option changes it
_MANAGER = "jobset-controller-manager"


@contextmanager
def by_urls(cluster: Cluster, folder: Path) -> Iterator[Manager]:
    """With certificates of the test, and webhooks by URL."""
    first = free_port(3)
    serving = Serving(folder / "certificates")
    webhook = {"host": "127.0.0.1", "certDir": str(serving.folder)}
    config = _configuration(folder, first, webhook, {"enable": False}, {"certDir": str(serving.folder)})
    with cluster.client() as client:
        objects = Objects(client)
        built = _defined(objects)
        with running([built.program, "--config", config], cluster, folder) as manager:
            manager.until_it_answers(f"http://127.0.0.1:{first + 1}/readyz")
            for each in _webhooks(built):
                objects.apply(by_url(each, f"jobset-{each['kind'][:8].lower()}", first, serving))
            yield manager


@contextmanager
def by_services(cluster: Cluster, folder: Path) -> Iterator[Manager]:
    """As it is installed: it makes its certificates, keeps them in a Secret, and writes them into its webhook configurations.

    Its Service leads to this process. The Secret becomes files, as if its pod had the volume.
    """
    first, files = free_port(3), folder / "volume"
    config = _configuration(folder, first, {}, {"enable": True}, {})
    with cluster.client() as client:
        objects = Objects(client)
        built = _defined(objects)
        for each in (_secret(), *service_outside(_SERVICE, SYSTEM, own_address(), first)):
            objects.apply(each)
        for each in _webhooks(built):
            kind = "mutating" if each["kind"].startswith("M") else "validating"
            objects.apply(by_service(each, f"jobset-{kind}-webhook-configuration", _SERVICE, SYSTEM))
        (files / "serving-certs").mkdir(parents=True)
        command = bound(files, _CERTIFICATES, [built.program, "--config", config])
        with mounted(cluster, SYSTEM, _SECRET, files / "serving-certs"), running(command, cluster, folder) as manager:
            manager.until_it_answers(f"http://127.0.0.1:{first + 1}/readyz")
            yield manager


@contextmanager
def in_a_pod(cluster: Cluster) -> Iterator[None]:
    """All that its installation has, as it is; a Job stands for the Deployment. It wants ports 8081, 8443 and 9443."""
    built = build(JOBSET)
    with cluster.client() as client:
        objects = Objects(client, SYSTEM)
        for each in kustomized(built.source / "config/default"):
            if each["kind"] == "CustomResourceDefinition":
                objects.define(each)
            else:
                objects.apply(_job_of(each, built) if each["kind"] == "Deployment" else each)
        objects.until("batch/v1/jobs", _MANAGER, lambda found: found.get("status", {}).get("ready") == 1, 240)
        yield
        objects.delete("batch/v1/jobs", _MANAGER)


def _job_of(deployment: dict[str, Any], built: Built) -> dict[str, Any]:
    """Its program is a file of this machine, as pods are processes of it; its user is that of its image."""
    template = deployment["spec"]["template"]
    template["spec"] |= {"restartPolicy": "OnFailure", "automountServiceAccountToken": True}
    template["spec"]["securityContext"]["runAsUser"] = 65532
    template["spec"]["containers"][0]["command"] = [str(built.program)]
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": deployment["metadata"],
        "spec": {"backoffLimit": 1000, "template": template},
    }


def set_of(name: str, jobs: dict[str, str], **spec: Any) -> dict[str, Any]:
    """A JobSet with a Job for each of these shell commands."""
    replicated = [
        {
            "name": job,
            "template": {
                "spec": {
                    "backoffLimit": 0,
                    "template": {
                        "spec": {
                            "restartPolicy": "Never",  # its default, OnFailure, may restart a container before the Job fails
                            "terminationGracePeriodSeconds": 1,
                            "containers": [{"name": "main", "image": "busybox", "command": ["sh", "-c", command]}],
                        }
                    },
                }
            },
        }
        for job, command in jobs.items()
    ]
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": name},
        "spec": {"replicatedJobs": replicated, **spec},
    }


def own_address() -> str:
    """An address of this machine that is not loopback: EndpointSlices have no others."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect(("192.0.2.1", 9))
        address: str = probe.getsockname()[0]
        return address


def _defined(objects: Objects) -> Built:
    built = build(JOBSET)
    objects.create("v1/namespaces", {"metadata": {"name": SYSTEM}}, None)
    for each in definitions(built.source / "config/components/crd/bases"):
        objects.define(each)
    return built


def _webhooks(built: Built) -> list[dict[str, Any]]:
    return documents(built.source / "config/components/webhook", "manifests.yaml")


def _secret() -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": _SECRET, "namespace": SYSTEM}}


def _configuration(
    folder: Path,
    port: int,
    webhook: dict[str, Any],
    certificates: dict[str, Any],
    metrics: dict[str, Any],
) -> Path:
    """As its ConfigMap would say it, but for where it listens, and whose certificates it has."""
    config = folder / "config.yaml"
    said = {
        "apiVersion": "config.jobset.x-k8s.io/v1alpha1",
        "kind": "Configuration",
        "webhook": {"port": port, **webhook},
        "health": {"healthProbeBindAddress": f"127.0.0.1:{port + 1}"},
        "metrics": {"bindAddress": f"127.0.0.1:{port + 2}", **metrics},
        "leaderElection": {"leaderElect": True, "resourceNamespace": SYSTEM, "resourceName": "jobset"},
        "internalCertManagement": certificates,
    }
    config.write_text(yaml.safe_dump(said))
    return config
