"""A machine waits for its approval, and then renews its credential while its pod runs on and notices nothing.

The times of the credential are moved in the database, so that nothing waits for them and no busy machine is too late.
"""

import asyncio
import hashlib
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import asyncpg
import httpx

from tests.e2e import preloaded
from tests.e2e.cluster import Cluster, environment, surprises, until
from tests.e2e.secret_values import KNOWN, find_leaks

LIFE, LEFT = 3600, 300  # seconds; LEFT is less than at any node's renewal
NODE = "worker-1"
POD = "/api/v1/namespaces/default/pods/steady"


@contextmanager
def joining(words: list[str], folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The agent of one more machine, here a process beside the first."""
    command = [sys.executable, "-m", "app.main.cli", *words, "--node-name", NODE, "--data-dir", str(folder)]
    with log.open("ab") as out:
        agent = subprocess.Popen(command, stdout=out, stderr=out, env=environment(JOBPLANE_LEASE_SECONDS="12"))
    try:
        yield agent
    finally:
        agent.terminate()
        assert agent.wait(60) == 0


def end_in(cluster: Cluster, token: str, seconds: int) -> None:
    """Let a token end in that time."""

    async def update() -> None:
        connection = await asyncpg.connect(cluster.dsn)
        try:
            digest, span = hashlib.sha256(token.encode()).digest(), timedelta(seconds=seconds)
            query = "update tokens set expires_at = now() + $2::interval where digest = $1 returning 1"
            assert await connection.fetchval(query, digest, span) == 1
        finally:
            await connection.close()

    asyncio.run(update())


def start_pod(client: httpx.Client) -> dict[str, Any]:
    """Start it on the node; return the status of its container."""
    container = {"name": "main", "image": "busybox", "command": ["sleep", "600"]}
    spec = {"nodeName": NODE, "restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    client.post(POD.rpartition("/")[0], json={"metadata": {"name": "steady"}, "spec": spec}).raise_for_status()
    until(lambda: client.get(POD).json()["status"].get("phase") == "Running", 60, "the pod runs")
    status: dict[str, Any] = client.get(POD).json()["status"]["containerStatuses"][0]
    return status


def test_a_node_is_approved_and_renews_its_credential_under_a_running_pod(cluster: Cluster, tmp_path: Path) -> None:
    here = ["--data-dir", str(cluster.folder)]

    def jobplane(*words: str) -> str:
        call = [str(preloaded.program()), *words, *here]
        ran = subprocess.run(call, env=environment(), capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    line = jobplane("token", "create", "--approve", "--node-duration", f"{LIFE}s")
    log, folder = tmp_path / "agent.log", tmp_path / "machine"
    kept = folder / "agent" / "node.token"
    with cluster.client() as client:
        with joining(shlex.split(line)[1:], folder, log):
            until(lambda: f"jobplane node approve {NODE}" in log.read_text(), 60, "it says that it waits")
            assert "Pending" in jobplane("token", "list")
            assert client.get(f"/api/v1/nodes/{NODE}").status_code == 404
            assert jobplane("node", "approve", NODE) == f"node {NODE} is approved\n"
            until(lambda: client.get(f"/api/v1/nodes/{NODE}").is_success, 60, "it is a node")

            first = kept.read_text()
            before = start_pod(client)

        end_in(cluster, first, LEFT)
        with joining(shlex.split(line)[1:], folder, log) as agent:
            until(lambda: kept.read_text() != first, 60, "the credential is renewed")
            end_in(cluster, first, 0)
            with cluster.client(first) as old:
                until(lambda: old.get(f"/api/v1/nodes/{NODE}").status_code == 401, 60, "the old one has ended")
            lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}"
            renewed = client.get(lease).json()["spec"]["renewTime"]
            until(lambda: client.get(lease).json()["spec"]["renewTime"] != renewed, 60, "the new one renews the lease")

            after = client.get(POD).json()["status"]["containerStatuses"][0]
            assert (after["containerID"], after["restartCount"], after["state"]) == (
                before["containerID"],
                0,
                before["state"],
            )
            assert agent.poll() is None
            client.delete(POD).raise_for_status()
            until(lambda: client.get(POD).status_code == 404, 60, "the pod ends by its new credential")
            client.delete(f"/api/v1/nodes/{NODE}")
    KNOWN.note_folder(folder)
    assert find_leaks(folder, [log]) == []
    assert surprises(log) == ""
    assert "refuses the agent's token" not in log.read_text()
