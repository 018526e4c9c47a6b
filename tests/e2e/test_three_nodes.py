"""Three machines behind firewalls, one of which is cut off for a while: everything works into them, and nothing runs twice.

What runs where is told by the pods themselves: each writes who it is and what time it is into a file that all share, five
times a second, from its first moment to its last. They ignore SIGTERM, so that only a kill ends them before their time.
"""

import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import Container, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from tests.e2e import processes
from tests.e2e.cluster import surprises, until
from tests.e2e.kubectl import COMPLETE, TIMEOUT, Kubectl, following, newest
from tests.e2e.ledger import JOBS
from tests.e2e.machines import Network, Server, agent, jobplane, laid, ready
from tests.e2e.manifests import a_container, a_job, from_field

MACHINES = ("one", "two", "three")
LEASE, TOLERATED = 6, 2
PODS = 6
# A lease, what the controllers wait beyond it, and what the pods tolerate; then they are failed, which lets them be replaced.
FAILED_AFTER = LEASE + 10 + TOLERATED
PORT = 18000  # and the index
TICKS = """
trap '' TERM
while [ ! -e /shared/enough ]; do
    echo "$INDEX $POD $NODE $(date +%s.%N)" >> /shared/ticks
    if [ -e /shared/say-$INDEX ]; then cat /shared/say-$INDEX; rm /shared/say-$INDEX; fi
    sleep 0.2
done
"""
SERVES = f'cd /own && echo "$NODE" > index.html && exec python3 -m http.server $(({PORT} + INDEX)) --bind 0.0.0.0'
LISTENS = f"exec 3<>/dev/tcp/127.0.0.1/$(({PORT} + INDEX))"


class Life(NamedTuple):
    """What a pod has told of itself."""

    index: int
    pod: str
    node: str
    first: float
    last: float


class Ticks:
    """The folder that the pods share, and the file in it to which they write."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._file = folder / "ticks"
        self._file.touch()

    def lives(self) -> list[Life]:
        whole, _, _ = self._file.read_text().rpartition("\n")  # the last line may be on its way
        told: defaultdict[tuple[int, str, str], list[float]] = defaultdict(list)
        for line in whole.splitlines():
            index, pod, node, at = line.split(" ")
            told[int(index), pod, node].append(float(at))
        return [Life(*who, min(times), max(times)) for who, times in told.items()]

    def by_index(self) -> dict[int, list[Life]]:
        lives: defaultdict[int, list[Life]] = defaultdict(list)
        for life in sorted(self.lives(), key=lambda each: each.first):
            lives[life.index].append(life)
        return lives

    def living(self, since: float) -> list[Life]:
        """Those that have written after that."""
        return [each for each in self.lives() if each.last > since]

    def say(self, index: int, line: str) -> None:
        """Have a pod write it to its log."""
        (self.folder / f"new-{index}").write_text(f"{line}\n")
        (self.folder / f"new-{index}").rename(self.folder / f"say-{index}")

    def enough(self) -> None:
        """Have all pods end well."""
        (self.folder / "enough").touch()


def a_job_that_tells(ticks: Ticks) -> dict[str, Any]:
    env = [
        from_field("INDEX", "metadata.annotations['batch.kubernetes.io/job-completion-index']"),
        from_field("POD", "metadata.uid"),
        from_field("NODE", "spec.nodeName"),
    ]
    own = {"name": "own", "mountPath": "/own"}
    shared = {"name": "shared", "mountPath": "/shared"}
    main = a_container("main", TICKS) | {"env": env, "volumeMounts": [own, shared]}
    listens = {
        "exec": {"command": ["bash", "-c", LISTENS]},
        "periodSeconds": 1,
        "timeoutSeconds": 10,
        "failureThreshold": 60,
    }
    web = a_container("web", SERVES) | {"env": env, "volumeMounts": [own], "restartPolicy": "Always"}
    web["startupProbe"] = listens
    lost = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
    pod = {
        "containers": [main],
        "initContainers": [web],
        "terminationGracePeriodSeconds": 3,
        "tolerations": [lost | {"tolerationSeconds": TOLERATED}],
        "volumes": [
            {"name": "own", "emptyDir": {}},
            {"name": "shared", "hostPath": {"path": str(ticks.folder), "type": "Directory"}},
        ],
    }
    ignored = {"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}]}
    how = {"completions": PODS, "parallelism": PODS, "completionMode": "Indexed"}
    return a_job("ticks", "", pod=pod, podFailurePolicy={"rules": [ignored]}, **how)


class Placed(NamedTuple):
    """A pod of the Job, and where it is."""

    name: str
    index: int
    node: str


@pytest.fixture(scope="module")
def network() -> Iterator[Network]:
    with laid(Network("jpthree", "10.213.78", MACHINES), closed=True) as network:
        yield network


def is_let_in(address: str, port: int) -> bool:
    try:
        socket.create_connection((address, port), timeout=0.5).close()
    except OSError:
        return False
    return True


class Three(NamedTuple):
    """The three machines, joined, and what the tests see of them."""

    network: Network
    folder: Path
    client: httpx.Client
    kubectl: Kubectl
    ticks: Ticks
    agents: dict[str, subprocess.Popen[bytes]]

    def readiness(self, node: str) -> str:
        conditions = self.client.get(f"/api/v1/nodes/{node}").json()["status"]["conditions"]
        return next(str(each["status"]) for each in conditions if each["type"] == "Ready")

    def placed(self) -> dict[str, Placed]:
        """By node, one of its pods that run."""
        pods = self.client.get("/api/v1/namespaces/default/pods").json()["items"]
        running = [_placed(each) for each in pods if each["status"].get("phase") == "Running"]
        return {each.node: each for each in running}

    def status(self) -> dict[str, Any]:
        """The Job's."""
        found: dict[str, Any] = self.client.get(f"{JOBS}/ticks").json()["status"]
        return found

    def go_on(self, uids: Container[str]) -> list[str]:
        """Which of these pods have not ended, as far as the API knows."""
        pods = self.client.get("/api/v1/namespaces/default/pods").json()["items"]
        left = [each["metadata"]["uid"] for each in pods if each["status"]["phase"] in ("Pending", "Running")]
        return [each for each in left if each in uids]

    def is_complete(self) -> bool:
        return any(each["type"] == "Complete" for each in self.status().get("conditions", []))

    def containers(self, machine: str) -> list[processes.Process]:
        return processes.containers(f"{self.folder / machine}/agent")


def _placed(pod: dict[str, Any]) -> Placed:
    meta = pod["metadata"]
    index = meta["annotations"]["batch.kubernetes.io/job-completion-index"]
    return Placed(meta["name"], int(index), pod["spec"]["nodeName"])


@pytest.fixture
def three(network: Network, tmp_path: Path) -> Iterator[Three]:
    path = newest()
    server = Server(tmp_path / "server", network.host, JOBPLANE_NODE_GRACE_SECONDS="5")
    ticks = Ticks(tmp_path / "shared")
    home = tmp_path / "home"
    home.mkdir()
    with server, server.client() as client, ExitStack() as joined:
        keep_empty(client, *ready(client))
        _, *given = jobplane("token", "create", "--uses", "3", "--data-dir", str(server.folder)).split()
        settings = {"JOBPLANE_LEASE_SECONDS": str(LEASE)}
        agents = {
            each: joined.enter_context(agent(network, each, each, given, tmp_path / each, **settings))
            for each in MACHINES
        }
        until(lambda: set(MACHINES) <= ready(client).keys(), 60, "all three are ready")
        yield Three(network, tmp_path, client, Kubectl(path, server, home, client), ticks, agents)
        for each in MACHINES:
            network.plug(each, "up")  # if a test ended while one was cut off
        server.empty()
    for each in ("server", *MACHINES):
        assert surprises(tmp_path / f"{each}.log") == ""


def keep_empty(client: httpx.Client, *nodes: str) -> None:
    merge = {"Content-Type": "application/merge-patch+json"}
    for node in nodes:
        client.patch(f"/api/v1/nodes/{node}", json={"spec": {"unschedulable": True}}, headers=merge).raise_for_status()


def works_into(three: Three, pod: Placed) -> None:
    """exec, logs -f, port-forward and cp, though the machine lets nobody in."""
    kubectl, address, port = three.kubectl, three.network.address(pod.node), PORT + pod.index
    assert f"inet {address}/" in kubectl("exec", pod.name, "-c", "main", "--", "ip", "-4", "address", "show", "eth0")

    with following(kubectl.start("logs", "-f", pod.name, "-c", "main")) as line:
        three.ticks.say(pod.index, f"said to {pod.index}")
        assert line(f"said to {pod.index}")

    with following(kubectl.start("port-forward", f"pod/{pod.name}", f":{port}")) as line:
        local = line(r"from 127.0.0.1").split(":")[1].split()[0]
        assert httpx.get(f"http://127.0.0.1:{local}/", trust_env=False, timeout=20).text == f"{pod.node}\n"
    assert not is_let_in(address, port)

    given, back = kubectl.home / f"given-{pod.index}", kubectl.home / f"back-{pod.index}"
    given.write_text(f"given to {pod.index}\n")
    kubectl("cp", str(given), f"{pod.name}:/own/given", "-c", "main")
    kubectl("cp", f"{pod.name}:/own/given", str(back), "-c", "main")
    assert back.read_text() == given.read_text()


def assert_never_two_at_once(ticks: Ticks) -> None:
    for lives in ticks.by_index().values():
        for before, after in pairwise(lives):
            assert before.last < after.first, f"both ran: {before}, {after}"


def test_a_machine_that_is_cut_off_runs_nothing_that_runs_elsewhere(three: Three) -> None:
    three.client.post(JOBS, json=a_job_that_tells(three.ticks)).raise_for_status()
    until(lambda: len(three.ticks.lives()) == PODS, 60, "all pods run")
    pods = until(lambda: len(there := three.placed()) == len(MACHINES) and there, 10, "they are spread over all")
    with ThreadPoolExecutor(len(pods)) as pool:
        for done in [pool.submit(works_into, three, pod) for pod in pods.values()]:
            done.result()

    moved = cut_off(three, "two")
    come_back(three, "two")

    three.ticks.enough()
    until(three.is_complete, 30, "the Job is complete")
    status = three.status()
    counts = [status.get(name, 0) for name in ("succeeded", "failed", "active", "completedIndexes")]
    assert counts == [PODS, 0, 0, f"0-{PODS - 1}"]
    assert len(three.ticks.lives()) == PODS + moved
    assert_never_two_at_once(three.ticks)
    assert three.readiness("two") == "True"


def cut_off(three: Three, machine: str) -> int:
    """Its link goes down, and its pods are moved. How many they were."""
    theirs = {each.pod: each for each in three.ticks.lives() if each.node == machine}
    three.network.plug(machine, "down")
    cut_at = time.time()
    until(lambda: three.readiness(machine) == "Unknown", 40, "the machine counts as lost")
    until(lambda: not three.go_on(theirs), 40, "its pods have failed for the API")
    failed_at = time.time()
    until(lambda: len(three.ticks.lives()) == PODS + len(theirs), 40, "its pods run elsewhere")

    moved = [each for each in three.ticks.lives() if each.first > cut_at]
    assert {each.index for each in moved} == {each.index for each in theirs.values()}
    assert {each.node for each in moved} <= set(MACHINES) - {machine}
    # They went on for as long as they were sure to be alone, and were over before the API let others begin.
    ended = [each.last for each in three.ticks.lives() if each.pod in theirs]
    assert cut_at + LEASE < min(ended)
    assert max(ended) < failed_at < cut_at + FAILED_AFTER + LEASE
    assert_never_two_at_once(three.ticks)
    assert three.agents[machine].poll() is None
    return len(theirs)


def come_back(three: Three, machine: str) -> None:
    before = len(three.ticks.lives())
    three.network.plug(machine, "up")
    until(lambda: three.readiness(machine) == "True", 30, "the machine is ready again")
    until(lambda: not three.containers(machine), 20, "nothing is left there of what was moved")
    on_it = a_job("again", "ip -4 address show dev eth0", pod={"nodeSelector": {"kubernetes.io/hostname": machine}})
    three.client.post(JOBS, json=on_it).raise_for_status()
    three.kubectl("wait", COMPLETE, "job/again", TIMEOUT)
    assert f"inet {three.network.address(machine)}/" in three.kubectl("logs", "job/again")
    assert len(three.ticks.lives()) == before
