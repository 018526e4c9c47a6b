"""Encryption of Secrets under a whole Jobplane: no planted value in any file, rotation while the controllers are killed.

It logs and audits all that it can: when it ends, `Cluster` searches both, and every file, for the values of Secrets.
"""

import base64
import hashlib
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.e2e.cluster import Cluster, environment, until
from tests.e2e.machines import jobplane
from tests.e2e.secret_values import KNOWN

SECONDS = 60
SECRETS = "/api/v1/namespaces/default/secrets"
KEYS = "/apis/agents.jobplane.dev/v1/datakeys"
PLANTED = "planted-5e1f-value"
COUNT = 60


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "secrets.key"
    path.write_text(base64.b64encode(os.urandom(32)).decode())
    path.chmod(0o600)
    return path


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, key_file: Path) -> Iterator[Cluster]:
    folder, policy = tmp_path_factory.mktemp("encrypted") / "data", key_file.with_name("audit.yaml")
    policy.write_text("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]")
    settings = {
        "JOBPLANE_SECRETS_KEY_LEAD_SECONDS": "2",
        "JOBPLANE_LOG_LEVEL": "debug",
        "JOBPLANE_AUDIT_POLICY_FILE": str(policy),
    }
    with Cluster(folder, JOBPLANE_SECRETS_KEY_FILE=str(key_file), **settings) as running:
        yield running


def create(client: httpx.Client, name: str, value: str) -> None:
    body = {"metadata": {"name": name}, "stringData": {"password": value}}
    assert client.post(SECRETS, json=body).status_code == 201


def test_a_pod_reads_its_secret(cluster: Cluster) -> None:
    digest = hashlib.md5(PLANTED.encode()).hexdigest()
    container = {
        "name": "main",
        "image": "i",
        "command": ["sh", "-c", f'test "$(printf %s "$PASSWORD" | md5sum)" = "{digest}  -"'],
        "env": [{"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "planted", "key": "password"}}}],
    }
    with cluster.client() as client:
        create(client, "planted", PLANTED)
        spec = {"containers": [container], "restartPolicy": "Never"}
        made = client.post("/api/v1/namespaces/default/pods", json={"metadata": {"name": "reader"}, "spec": spec})
        assert made.status_code == 201, made.text
        phase = until(
            lambda: (found := client.get("/api/v1/namespaces/default/pods/reader").json()["status"]["phase"])
            in ("Succeeded", "Failed") and found,
            SECONDS,
            "the pod ends",
        )  # fmt: skip
    assert phase == "Succeeded"
    assert PLANTED in KNOWN.data


def test_rotation_survives_a_kill_of_the_controllers(cluster: Cluster) -> None:
    with cluster.client() as client:
        for number in range(COUNT):
            create(client, f"many-{number}", f"{PLANTED}-{number}")
        command = subprocess.Popen(
            [*cluster.program, "secrets", "rotate", "--data-dir", str(cluster.folder)],
            stdout=subprocess.PIPE,
            text=True,
            env=environment(),
        )
        assert command.stdout is not None
        assert "0 of " in command.stdout.readline()
        os.kill(cluster.pid_of("controllers"), signal.SIGKILL)
        printed, _ = command.communicate(timeout=120)
        assert command.returncode == 0, printed

        old, new = client.get(KEYS).json()["items"]
        found = client.get(SECRETS).json()["items"]
    assert old["versions"] == 0
    assert new["versions"] >= COUNT
    values = {each["metadata"]["name"]: base64.b64decode(each["data"]["password"]).decode() for each in found}
    assert [values[f"many-{number}"] for number in range(COUNT)] == [f"{PLANTED}-{number}" for number in range(COUNT)]
    assert f"{new['name']}   " in jobplane("secrets", "status", "--data-dir", str(cluster.folder))


def test_a_start_without_the_key_ends_at_once_and_says_so(cluster: Cluster, key_file: Path) -> None:
    away = key_file.with_suffix(".away")
    with cluster.client() as client:
        create(client, "stays", PLANTED)
    cluster.stop()
    key_file.rename(away)
    try:
        ended = subprocess.run(
            [*cluster.program, "up", "--data-dir", str(cluster.folder), "--port", str(cluster.port)],
            env=environment(JOBPLANE_SECRETS_KEY_FILE=str(key_file)),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
        without = subprocess.run(
            [*cluster.program, "up", "--data-dir", str(cluster.folder), "--port", str(cluster.port)],
            env=environment(),
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
        )
    finally:
        away.rename(key_file)
        cluster.start()

    assert (ended.returncode, without.returncode) == (78, 78)
    assert f"{key_file} is not there; make a key:" in ended.stderr.splitlines()[-1]
    assert "set JOBPLANE_SECRETS_KEY_FILE" in without.stderr.splitlines()[-1]
    with cluster.client() as client:
        assert client.get(f"{SECRETS}/stays").status_code == 200
