"""docs/join.md as its reader follows it: two machines, here network namespaces, join one Jobplane by one token."""

import os
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.cluster import Cluster, environment, until

PAGE = Path(__file__).parents[2] / "docs" / "join.md"
BRIDGE, HOST, NETWORK = "jpjoin", "10.213.77.1", "10.213.77"
WORKERS = ("worker-1", "worker-2")


def missing(why: str) -> None:
    (pytest.fail if os.environ.get("JOBPLANE_CI") else pytest.skip)(why)


def ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


class Server(Cluster):
    """One that listens where the namespaces reach it."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, "--host", HOST)
        self.url = f"https://{HOST}:{self.port}"


@pytest.fixture(scope="module")
def network() -> Iterator[dict[str, str]]:
    """A bridge, and behind it a namespace for each worker: its name, by the worker's."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    if shutil.which("ip") is None:
        missing("the program ip is not there")
    spaces = {worker: f"jp-{worker}" for worker in WORKERS}
    remove(spaces)
    try:
        lay(spaces)
        yield spaces
    except subprocess.CalledProcessError as error:
        missing(f"this kernel lays no such network: {error.stderr.decode()}")
    finally:
        remove(spaces)


def lay(spaces: dict[str, str]) -> None:
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("address", "add", f"{HOST}/24", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")
    for number, space in enumerate(spaces.values()):
        ip("netns", "add", space)
        ip("link", "add", f"{BRIDGE}{number}", "type", "veth", "peer", "name", "eth0", "netns", space)
        ip("link", "set", f"{BRIDGE}{number}", "master", BRIDGE, "up")
        ip("-n", space, "address", "add", f"{NETWORK}.{11 + number}/24", "dev", "eth0")
        ip("-n", space, "link", "set", "eth0", "up")
        ip("-n", space, "link", "set", "lo", "up")


def remove(spaces: dict[str, str]) -> None:
    for arguments in (*(("netns", "delete", each) for each in spaces.values()), ("link", "delete", BRIDGE)):
        subprocess.run(["ip", *arguments], check=False, capture_output=True)


def command(*arguments: str) -> list[str]:
    return [sys.executable, "-m", "app.cli", *arguments]


def jobplane(*arguments: str) -> str:
    """What a command of the page prints."""
    done = subprocess.run(
        command(*arguments), capture_output=True, text=True, timeout=60, env=environment(), check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@contextmanager
def agent(space: str, name: str, given: list[str], folder: Path) -> Iterator[subprocess.Popen[bytes]]:
    more = ["--node-name", name, "--data-dir", str(folder)]
    with (folder.parent / f"{folder.name}.log").open("ab") as log:
        running = subprocess.Popen(
            ["ip", "netns", "exec", space, *command(*given, *more)], stdout=log, stderr=log, env=environment()
        )
    try:
        yield running
    finally:
        running.send_signal(signal.SIGTERM)
        running.wait(30)


def ready(client: httpx.Client) -> dict[str, dict[str, Any]]:
    nodes = client.get("/api/v1/nodes").json()["items"]
    return {
        each["metadata"]["name"]: each
        for each in nodes
        if any(one["type"] == "Ready" and one["status"] == "True" for one in each["status"].get("conditions", []))
    }


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


def test_two_machines_join_by_one_command(network: dict[str, str], tmp_path: Path) -> None:
    folder = tmp_path / "server"
    here = ("--data-dir", str(folder))
    with Server(folder) as server, server.client() as client, ExitStack() as agents:
        line = jobplane("token", "create", *here, "--ttl", "1h")
        program, *given = shlex.split(line)
        assert (program, given[0]) == ("jobplane", "agent")
        running = {
            name: agents.enter_context(agent(space, name, given, tmp_path / name)) for name, space in network.items()
        }
        nodes = until(lambda: set(WORKERS) <= set(found := ready(client)) and found, 60, "both are ready")
        addresses = {name: nodes[name]["status"]["addresses"][0]["address"] for name in WORKERS}
        assert addresses == {"worker-1": f"{NETWORK}.11", "worker-2": f"{NETWORK}.12"}

        for worker in WORKERS:
            run_on(client, worker)
        for worker in WORKERS:
            until(lambda worker=worker: is_done(client, worker), 30, f"the Job on {worker} is complete")
            assert f"inet {addresses[worker]}/24" in jobplane("logs", f"job/on-{worker}", *here)

        # A second machine of the same name is refused, and says what to do.
        second = agents.enter_context(agent(network["worker-2"], "worker-1", given, tmp_path / "second"))
        assert second.wait(30) == 1
        assert "jobplane node reset worker-1" in (tmp_path / "second.log").read_text()

        # Once joined, an agent needs the token no more, nor its hash.
        token = given[given.index("--join-token") + 1].partition(".")[0]
        assert token in jobplane("token", "list", *here)
        jobplane("token", "revoke", token, *here)
        running["worker-1"].send_signal(signal.SIGTERM)
        assert running["worker-1"].wait(30) is not None
        short = ["agent", "--server", server.url, "--ca-file", str(tmp_path / "worker-1" / "agent" / "ca.crt")]
        again = agents.enter_context(agent(network["worker-1"], "worker-1", short, tmp_path / "worker-1"))
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
