"""The secrets of a running Jobplane are replaced: what was before is refused, and nobody who follows notices."""

import hashlib
import os
import shutil
import ssl
import subprocess
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import httpx
import pytest

from app.api.auth import certificates
from tests.e2e.cluster import Cluster, until
from tests.e2e.kubectl import found
from tests.e2e.machines import jobplane
from tests.e2e.manifests import FOREVER

SECONDS = 40
HERE = os.uname().nodename.lower()


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("rotated") / "data") as running:
        yield running


@pytest.fixture
def pod(cluster: Cluster) -> Iterator[str]:
    """The path of one that runs for ever."""
    spec = {"containers": [{"name": "main", "image": "i", "command": ["sh", "-c", FOREVER]}]}
    pods = "/api/v1/namespaces/default/pods"
    with cluster.client() as client:
        body = {"metadata": {"generateName": "goes-on-"}, "spec": {**spec, "terminationGracePeriodSeconds": 1}}
        answer = client.post(pods, json=body)
        assert answer.status_code == 201, answer.text
        path = f"{pods}/{answer.json()['metadata']['name']}"
        until(lambda: client.get(path).json()["status"]["phase"] == "Running", SECONDS, "the pod runs")
    yield path
    with cluster.client() as client:
        client.delete(path).raise_for_status()


def secrets(cluster: Cluster) -> dict[str, str]:
    return {name: (cluster.folder / f"{name}.token").read_text() for name in ("admin", "agent")}


def code(cluster: Cluster, token: str) -> int:
    with cluster.client(token=token) as client:
        return client.get(f"/api/v1/nodes/{HERE}").status_code


def pids(cluster: Cluster) -> set[int]:
    return {each.pid for each in cluster.containers()}


def goes_on(cluster: Cluster, pod: str, containers: set[int]) -> None:
    """The node is heard again, by its new agent, and the pod is the one that it was."""
    with cluster.client() as client:
        lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{HERE}"
        renewed = client.get(lease).json()["spec"]["renewTime"]
        until(lambda: client.get(lease).json()["spec"]["renewTime"] != renewed, SECONDS, "the lease is renewed")
        assert client.get(pod).json()["status"]["phase"] == "Running"
    assert pids(cluster) == containers


def kubectl(cluster: Cluster) -> str:
    command = [found()[-1], "--kubeconfig", cluster.kubeconfig, "get", "nodes", "--output", "name"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_rotated_tokens_end_for_good_and_pods_go_on(cluster: Cluster, pod: str) -> None:
    old, containers, agent = secrets(cluster), pids(cluster), cluster.pid_of("agent")
    assert [code(cluster, each) for each in old.values()] == [200, 200]

    assert "kubeconfig" in jobplane("token", "rotate", "--data-dir", str(cluster.folder))

    assert code(cluster, old["admin"]) == 401
    new = secrets(cluster)
    assert not set(new.values()) & set(old.values())
    assert [code(cluster, each) for each in new.values()] == [200, 200]
    until(lambda: code(cluster, old["agent"]) == 401, SECONDS, "the agent's old token has ended")
    assert cluster.pid_of("agent") != agent
    goes_on(cluster, pod, containers)
    if found():
        assert kubectl(cluster) == f"node/{HERE}"


def test_tokens_whose_files_are_removed_end_with_the_next_start(cluster: Cluster) -> None:
    old = secrets(cluster)
    cluster.stop()
    for name in old:
        (cluster.folder / f"{name}.token").unlink()
    cluster.kubeconfig.unlink()
    cluster.start()

    assert [code(cluster, each) for each in old.values()] == [401, 401]
    assert [code(cluster, each) for each in secrets(cluster).values()] == [200, 200]
    assert not set(secrets(cluster).values()) & set(old.values())


def test_the_agent_of_up_speaks_for_its_own_node_only(cluster: Cluster) -> None:
    with cluster.client(token=secrets(cluster)["agent"]) as agent:
        codes = [
            agent.get(path).status_code
            for path in (
                f"/api/v1/pods?fieldSelector=spec.nodeName%3D{HERE}",
                "/api/v1/pods?fieldSelector=spec.nodeName%3Dn-b",
                "/api/v1/nodes/n-b",
            )
        ]
        ghost = agent.post("/api/v1/nodes", json={"metadata": {"name": "ghost"}})
    assert (codes, ghost.status_code) == ([200, 403, 403], 403)


def serves(cluster: Cluster, ca: Path) -> bool:
    """Whether a client that trusts these authorities, and no others, gets an answer."""
    try:
        return httpx.get(
            f"{cluster.url}/livez", verify=ssl.create_default_context(cafile=ca), trust_env=False
        ).is_success
    except httpx.ConnectError:
        return False


def test_the_authority_is_rotated_while_clients_trust_both(cluster: Cluster, pod: str, tmp_path: Path) -> None:
    containers, here = pids(cluster), ("--data-dir", str(cluster.folder))
    ca = cluster.folder / "tls" / "ca.crt"
    (tmp_path / "old.crt").write_bytes(ca.read_bytes())

    assert "--finish" in jobplane("certificates", "rotate", *here)
    (tmp_path / "both.crt").write_bytes(ca.read_bytes())
    # The authority is fetched by the hash of the one that signs, together with the next.
    assert "--ca-hash sha256:" in jobplane("token", "create", *here)
    assert serves(cluster, tmp_path / "old.crt")

    jobplane("certificates", "rotate", "--finish", *here)
    until(lambda: not serves(cluster, tmp_path / "old.crt"), SECONDS, "the new authority signs")
    assert [serves(cluster, each) for each in (tmp_path / "both.crt", ca)] == [True, True]
    until(lambda: ca.read_text() in root_certificate(cluster), SECONDS, "pods are told of the new authority")
    goes_on(cluster, pod, containers)
    if found():
        assert kubectl(cluster) == f"node/{HERE}"


def test_a_running_api_renews_a_certificate_that_is_due(cluster: Cluster, tmp_path: Path) -> None:
    """One that was made 300 days ago is put into its folder: it makes another, and shows that."""
    tls, api, before = cluster.folder / "tls", cluster.pid_of("api"), shown(cluster)
    for name in ("ca.crt", "ca.key"):
        shutil.copy(tls / name, tmp_path)
    certificates.renew(tmp_path, ["127.0.0.1"], now=datetime.now(UTC) - timedelta(days=300))
    due = certificates.fingerprint(tmp_path / "server.pem")
    shutil.copy(tmp_path / "server.pem", tls / "new.pem")
    (tls / "new.pem").replace(tls / "server.pem")

    until(lambda: shown(cluster) not in (before, due), SECONDS, "a certificate that it made itself is shown")
    assert shown(cluster) == certificates.fingerprint(tls / "server.pem")
    assert serves(cluster, tls / "ca.crt")
    assert cluster.pid_of("api") == api


def shown(cluster: Cluster) -> str:
    """The SHA-256 of the certificate that the API shows."""
    pem = ssl.get_server_certificate(("127.0.0.1", cluster.port))
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def root_certificate(cluster: Cluster) -> str:
    with cluster.client() as client:
        found = client.get("/api/v1/namespaces/default/configmaps/kube-root-ca.crt")
        return str(found.json()["data"]["ca.crt"]) if found.is_success else ""


def test_nothing_went_wrong_meanwhile(cluster: Cluster) -> None:
    assert cluster.surprises() == ""
