"""A machine waits for its approval, and then renews its credential while its pod runs on and notices nothing."""

import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.agent.node.credential import seconds_to_renewal
from app.client.protocol import CredentialAnswer
from tests.e2e.cluster import Cluster, environment, surprises, until

LIFE = 90  # seconds
# Of a node whose renewal is early: on a busy machine, too, it comes before the end.
NODE = min(
    (f"worker-{number}" for number in range(1000)),
    key=lambda name: seconds_to_renewal(CredentialAnswer(LIFE, LIFE), name),
)
POD = "/api/v1/namespaces/default/pods/steady"


@contextmanager
def joining(words: list[str], folder: Path, log: Path) -> Iterator[subprocess.Popen[bytes]]:
    """The agent of one more machine, here a process beside the first."""
    command = [sys.executable, "-m", "app.main.cli", *words, "--node-name", NODE, "--data-dir", str(folder)]
    with log.open("wb") as out:
        agent = subprocess.Popen(command, stdout=out, stderr=out, env=environment())
    try:
        yield agent
    finally:
        agent.terminate()
        assert agent.wait(60) == 0


def test_a_node_is_approved_and_renews_its_credential_under_a_running_pod(cluster: Cluster, tmp_path: Path) -> None:
    program = [sys.executable, "-m", "app.main.cli"]
    here = ["--data-dir", str(cluster.folder)]

    def jobplane(*words: str) -> str:
        ran = subprocess.run([*program, *words, *here], env=environment(), capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    line = jobplane("token", "create", "--approve", "--node-duration", f"{LIFE}s")
    log, folder = tmp_path / "agent.log", tmp_path / "machine"
    kept = folder / "agent" / "node.token"
    with cluster.client() as client, joining(shlex.split(line)[1:], folder, log) as agent:
        until(lambda: f"jobplane node approve {NODE}" in log.read_text(), 60, "it says that it waits")
        assert "Pending" in jobplane("token", "list")
        assert client.get(f"/api/v1/nodes/{NODE}").status_code == 404
        assert jobplane("node", "approve", NODE) == f"node {NODE} is approved\n"
        until(lambda: client.get(f"/api/v1/nodes/{NODE}").is_success, 60, "it is a node")

        first = kept.read_text()
        container = {"name": "main", "image": "busybox", "command": ["sleep", "600"]}
        spec = {
            "nodeName": NODE,
            "restartPolicy": "Never",
            "terminationGracePeriodSeconds": 1,
            "containers": [container],
        }
        client.post(POD.rpartition("/")[0], json={"metadata": {"name": "steady"}, "spec": spec}).raise_for_status()
        until(lambda: client.get(POD).json()["status"].get("phase") == "Running", 60, "the pod runs")
        before = client.get(POD).json()["status"]["containerStatuses"][0]

        until(lambda: kept.read_text() != first, 2 * LIFE, "the credential is renewed")
        with cluster.client(first) as old:
            until(lambda: old.get(f"/api/v1/nodes/{NODE}").status_code == 401, 2 * LIFE, "the old one has ended")
        lease = f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{NODE}"
        renewed = client.get(lease).json()["spec"]["renewTime"]
        until(
            lambda: client.get(lease).json()["spec"]["renewTime"] != renewed, 60, "the lease is renewed by the new one"
        )

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
    assert surprises(log) == ""
    assert "refuses the agent's token" not in log.read_text()
