"""Agents with client certificates: the API demands one, each is renewed before it ends, and a pod notices nothing."""

import os
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from cryptography import x509

from tests.e2e.cluster import Cluster, until
from tests.e2e.manifests import FOREVER

SECONDS = 60
HERE = os.uname().nodename.lower()
POD, NODE = "/api/v1/namespaces/default/pods/steady", f"/api/v1/nodes/{HERE}"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{HERE}"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Certificates last 11 s. If a busy machine is late with one, the agent gets another by its token alone."""
    settings = {"JOBPLANE_REQUIRE_NODE_CERTIFICATES": "true", "JOBPLANE_CLIENT_CERTIFICATE": "true"}
    folder = tmp_path_factory.mktemp("certified") / "data"
    with Cluster(folder, JOBPLANE_CLUSTER_SIGNING_HOURS="0.003", **settings) as running:
        yield running
    assert running.surprises() == ""


def kept(cluster: Cluster) -> Path:
    return cluster.folder / "agent" / "client.pem"


def serial(cluster: Cluster) -> int:
    return x509.load_pem_x509_certificate(kept(cluster).read_bytes()).serial_number


def test_the_certificate_is_renewed_under_a_running_pod(cluster: Cluster) -> None:
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", FOREVER]}
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    with cluster.client() as client:
        client.post(POD.rpartition("/")[0], json={"metadata": {"name": "steady"}, "spec": spec}).raise_for_status()
        until(lambda: client.get(POD).json()["status"].get("phase") == "Running", SECONDS, "the pod runs")
        before, first = client.get(POD).json()["status"]["containerStatuses"][0], serial(cluster)
        until(lambda: serial(cluster) != first, SECONDS, "the certificate is renewed")
        renewed = client.get(LEASE).json()["spec"]["renewTime"]
        until(lambda: client.get(LEASE).json()["spec"]["renewTime"] != renewed, SECONDS, "the lease is renewed by it")
        after = client.get(POD).json()["status"]["containerStatuses"][0]
        assert (after["containerID"], after["restartCount"], after["state"]) == (
            before["containerID"],
            0,
            before["state"],
        )
        requests = client.get("/apis/certificates.k8s.io/v1/certificatesigningrequests").json()["items"]
        client.delete(POD).raise_for_status()
        until(lambda: client.get(POD).status_code == 404, SECONDS, "the pod ends")
    assert len(requests) >= 2
    assert {each["spec"]["username"] for each in requests} == {f"system:node:{HERE}"}
    assert {each["status"]["conditions"][0]["reason"] for each in requests} == {"AutoApproved"}
    assert kept(cluster).stat().st_mode & 0o777 == 0o600


def test_neither_the_token_nor_the_certificate_is_enough(cluster: Cluster) -> None:
    token = (cluster.folder / "agent.token").read_text()
    tls = ssl.create_default_context(cafile=str(cluster.folder / "tls" / "ca.crt"))
    with cluster.client(token) as by_token:
        refused = by_token.get(NODE)
    assert (refused.status_code, refused.json()["reason"]) == (403, "ClientCertificateRequired")
    assert "set JOBPLANE_CLIENT_CERTIFICATE=true" in refused.json()["message"]

    tls.load_cert_chain(kept(cluster))
    with httpx.Client(base_url=cluster.url, verify=tls, trust_env=False) as by_certificate:
        alone = by_certificate.get(NODE)
        both = by_certificate.get(NODE, headers={"Authorization": f"Bearer {token}"})
    assert (alone.status_code, both.status_code) == (403, 200)
