"""docs/join.md as its reader follows it: two machines, here network namespaces, join one Jobplane by one token."""

import shlex
import signal
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from tests.e2e.cluster import environment, until
from tests.e2e.machines import Network, Server, agent, command, jobplane, laid, ready

PAGE = Path(__file__).parents[2] / "docs" / "join.md"
NETWORK = "10.213.77"
WORKERS = ("worker-1", "worker-2")


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with laid(Network("jpjoin", NETWORK, WORKERS)) as network:
        yield network


def run_on(client: httpx.Client, worker: str) -> None:
    spec = {
        "restartPolicy": "Never",
        "nodeSelector": {"kubernetes.io/hostname": worker},
        "containers": [{"name": "main", "image": "busybox", "command": ["sh", "-c", "ip -4 addr show dev eth0"]}],
    }
    job = {"metadata": {"name": f"on-{worker}"}, "spec": {"template": {"spec": spec}}}
    client.post("/apis/batch/v1/namespaces/default/jobs", json=job).raise_for_status()


def is_done(client: httpx.Client, worker: str) -> bool:
    job = client.get(f"/apis/batch/v1/namespaces/default/jobs/on-{worker}").json()
    return any(each["type"] == "Complete" for each in job["status"].get("conditions", []))


def test_two_machines_join_by_one_command(network: Network, tmp_path: Path) -> None:
    folder = tmp_path / "server"
    here = ("--data-dir", str(folder))
    with Server(folder, network.host) as server, server.client() as client, ExitStack() as agents:
        line = jobplane("token", "create", *here, "--ttl", "1h", "--uses", "2")
        program, *given = shlex.split(line)
        assert (program, given[0]) == ("jobplane", "agent")
        running = {name: agents.enter_context(agent(network, name, name, given, tmp_path / name)) for name in WORKERS}
        nodes = until(lambda: set(WORKERS) <= set(found := ready(client)) and found, 60, "both are ready")
        addresses = {name: nodes[name]["status"]["addresses"][0]["address"] for name in WORKERS}
        assert addresses == {"worker-1": f"{NETWORK}.11", "worker-2": f"{NETWORK}.12"}

        for worker in WORKERS:
            run_on(client, worker)
        for worker in WORKERS:
            until(lambda worker=worker: is_done(client, worker), 30, f"the Job on {worker} is complete")
            assert f"inet {addresses[worker]}/24" in jobplane("logs", f"job/on-{worker}", *here)

        # A second machine of the same name is refused, and says what to do.
        second = agents.enter_context(agent(network, "worker-2", "worker-1", given, tmp_path / "second"))
        assert second.wait(30) == 78
        assert "jobplane node reset worker-1" in (tmp_path / "second.log").read_text()

        # Nor may a second one take the first one's credential, with its folder.
        folder_of_first = tmp_path / "worker-1"
        third = subprocess.run(
            [
                *network.into("worker-1"),
                *command(*given, "--node-name", "worker-1", "--data-dir", str(folder_of_first)),
            ],
            capture_output=True,
            text=True,
            timeout=30,
            env=environment(),
            check=False,
        )
        assert (third.returncode, "another agent runs on" in third.stderr) == (1, True)
        assert running["worker-1"].poll() is None

        # Once joined, an agent needs the token no more, nor its hash.
        token = given[given.index("--join-token") + 1].partition(".")[0]
        assert token in jobplane("token", "list", *here)
        jobplane("token", "revoke", token, *here)
        running["worker-1"].send_signal(signal.SIGTERM)
        assert running["worker-1"].wait(30) is not None
        short = ["agent", "--server", server.url, "--ca-file", str(tmp_path / "worker-1" / "agent" / "ca.crt")]
        again = agents.enter_context(agent(network, "worker-1", "worker-1", short, tmp_path / "worker-1"))
        renewed = lease(client)
        until(lambda: lease(client) != renewed, 30, "it renews its lease")
        assert again.poll() is None

        # And its log outlives the machine.
        jobplane("node", "reset", "worker-1", *here)
        client.delete("/apis/batch/v1/namespaces/default/jobs/on-worker-1?propagationPolicy=Background")
        again.send_signal(signal.SIGTERM)
        again.wait(30)
        client.delete("/api/v1/nodes/worker-1").raise_for_status()
        assert f"inet {NETWORK}.11/24" in jobplane("logs", "job/on-worker-1", *here)


def lease(client: httpx.Client) -> str:
    path = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/worker-1"
    return str(client.get(path).json()["spec"]["renewTime"])


@pytest.mark.parametrize(
    "words",
    [
        "jobplane up --data-dir",
        "jobplane token create",
        "jobplane agent --server",
        "--join-token",
        "--ca-hash",
        "jobplane token list",
        "jobplane token revoke",
        "jobplane node reset",
        "jobplane logs job/",
    ],
)
def test_the_page_names_the_commands_that_are_tried_here(words: str) -> None:
    assert words in PAGE.read_text()
