"""Pages of Kubernetes' manual whose pods find each other, on one node and on two: names of pods, and work queues.

On two nodes, which are network namespaces, the queue's server is on one and the workers are on the other.
"""

import re
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx
import pytest

from tests.conformance import documents
from tests.conformance.documents import Object, apply, ended, logs, read, require
from tests.conformance.namespace import SECONDS, Namespace
from tests.e2e.cluster import Cluster, surprises, until
from tests.e2e.machines import Network, Server, agent, jobplane, laid, ready

HOST = "127.0.0.1"  # where the examples have their servers
QUEUED = ["apple", "banana", "cherry", "date", "fig", "grape", "lemon", "melon", "orange"]
SERVER, WORKERS = "servers", "workers"


class OneNode:
    """All is at one address of the loopback network, at which nothing else listens."""

    nodes = 1

    def __init__(self, client: httpx.Client) -> None:
        self.client, self.address = client, documents.loopback()

    def server(self, name: str, **words: str) -> list[Object]:
        """Documents of the queue's server."""
        return read(name, **{HOST: self.address}, **words)

    def workers(self, name: str, service: str, **words: str) -> list[Object]:
        """Documents of those who use it; `service` is its name."""
        del service
        return self.server(name, **words)


class TwoNodes:
    """The server is on one node; workers on the other know the name of its Service."""

    nodes = 2

    def __init__(self, client: httpx.Client, network: Network) -> None:
        self.client, self.address = client, network.address(SERVER)

    def server(self, name: str, **words: str) -> list[Object]:
        return _placed(SERVER, read(name, **{HOST: self.address}, **words))

    def workers(self, name: str, service: str, **words: str) -> list[Object]:
        return _placed(WORKERS, read(name, **{HOST: service}, **words))


Place = OneNode | TwoNodes


def _placed(node: str, given: list[Object]) -> list[Object]:
    """As the examples say for several nodes: without their affinity. Here, they are also on one of them."""
    for each in given:
        spec = each["spec"].get("template", each)["spec"]
        if "containers" in spec:
            spec.pop("affinity", None)
            spec["nodeSelector"] = {"kubernetes.io/hostname": node}
    return given


@contextmanager
def two_nodes(folder: Path) -> Iterator[TwoNodes]:
    machines = (SERVER, WORKERS)
    with ExitStack() as stack:
        network = stack.enter_context(laid(Network("jpdocs", "10.213.84", machines)))
        server = stack.enter_context(Server(folder / "api", network.host))
        client = stack.enter_context(server.client())
        for node in ready(client):
            how = {"Content-Type": "application/merge-patch+json"}
            cordon = {"spec": {"unschedulable": True}}
            client.patch(f"/api/v1/nodes/{node}", json=cordon, headers=how).raise_for_status()
        _, *given = jobplane("token", "create", "--uses", str(len(machines)), "--data-dir", str(server.folder)).split()
        for each in machines:
            stack.enter_context(agent(network, each, each, given, folder / each))
        until(lambda: set(machines) <= ready(client).keys(), 60, "both are ready")
        yield TwoNodes(client, network)
        server.empty()
    for each in ("api", *machines):
        assert surprises(folder / f"{each}.log") == ""


@pytest.fixture(scope="module", params=["one node", "two nodes"])
def place(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if request.param == "one node":
        cluster: Cluster = request.getfixturevalue("cluster")
        with cluster.client() as client:
            yield OneNode(client)
    else:
        with two_nodes(tmp_path_factory.mktemp("two")) as place:
            yield place


class TestNamesOfPods:
    """Pods of a headless Service find each other by name; by hosts files, if the agent is not root."""

    def test_peers_find_each_other(self, place: Place) -> None:
        require("bash")
        documents.require_mounts()
        documents.require_ping()
        space = Namespace(place.client, "peers-without-names")
        apply(space, *read("tasks/peers"))
        ended(space, "peers", "Complete")
        pods = space.pods("peers")
        assert sorted(pod["spec"]["hostname"] for pod in pods) == ["peers-0", "peers-1", "peers-2"]
        assert {pod["spec"]["subdomain"] for pod in pods} == {"circle"}
        assert len({pod["spec"]["nodeName"] for pod in pods}) == place.nodes
        for said in logs(space, "peers"):
            assert [line for line in said.splitlines() if line.endswith(" answers")] == [
                f"peers-{index}.circle answers" for index in range(3)
            ]

    def test_peers_find_each_other_by_a_hosts_file(self, cluster: Cluster) -> None:
        """What is added to the manifest: a ConfigMap with their names, mounted at /etc/hosts."""
        require("bash")
        documents.require_mounts()
        documents.require_ping()
        with cluster.client() as client:
            space = Namespace(client, "peers-with-names")
            service, job = read("tasks/peers")
            hosts = "127.0.0.1 localhost peers-0.circle peers-1.circle peers-2.circle\n"
            names = {"kind": "ConfigMap", "metadata": {"name": "names"}, "data": {"hosts": hosts}}
            pod = job["spec"]["template"]["spec"]
            pod["volumes"] = [{"name": "names", "configMap": {"name": "names"}}]
            mount = {"name": "names", "mountPath": "/etc/hosts", "subPath": "hosts"}
            pod["containers"][0]["volumeMounts"] = [mount]
            apply(space, names, service, job)
            ended(space, "peers", "Complete")
            assert logs(space, "peers") == ["".join(f"peers-{index}.circle answers\n" for index in range(3))] * 3


class TestWorkQueues:
    """The manifests of `examples/redis` and `examples/rabbitmq`, against real servers that run as pods of this very Jobplane."""

    @pytest.fixture
    def queue(self, place: Place, request: pytest.FixtureRequest) -> Iterator["Queue"]:
        queue = Queue(place, request.node.originalname.replace("_", "-"), documents.redis_programs())
        yield queue
        _delete(queue.space, "redis-master")  # the next test's has the same address

    def test_many_items_a_worker(self, queue: "Queue") -> None:
        require("python3")
        documents.require_mounts()
        script = (documents.EXAMPLES / "redis" / "worker.py").read_text()
        apply(queue.space, {"kind": "ConfigMap", "metadata": {"name": "worker"}, "data": {"worker.py": script}})
        job = queue.run("work-queue", "work-queue-redis")
        assert job["status"]["succeeded"] == 2
        said = logs(queue.space, "work-queue-redis")
        assert all(re.match(r"Worker with sessionID: \S+\nInitial queue state: empty=False\n", each) for each in said)
        assert all(each.endswith("Queue empty, exiting\n") for each in said)
        shares = [re.findall(r"^Working on (\w+)$", each, re.MULTILINE) for each in said]
        assert sorted(item for share in shares for item in share) == QUEUED
        assert min(map(len, shares)) > 1, "both worked on several"

    def test_one_item_a_pod(self, queue: "Queue") -> None:
        job = queue.run("one-item-each", "one-item-each")
        assert job["status"]["succeeded"] == len(QUEUED)
        assert sorted(logs(queue.space, "one-item-each")) == [f"Working on {item}\n" for item in QUEUED]

    def test_one_message_a_pod_of_rabbitmq(self, place: Place) -> None:
        """A broker in a pod, a Job that fills its queue, and one that empties it."""
        documents.require_rabbitmq()
        space, service = Namespace(place.client, "rabbitmq"), "rabbitmq-service"
        apply(space, *place.server("examples/rabbitmq/server"))
        apply(space, *place.workers("examples/rabbitmq/fill", service))
        ended(space, "fill", "Complete")
        apply(space, *place.workers("examples/rabbitmq/one-item-each", service))
        assert ended(space, "one-item-each", "Complete")["status"]["succeeded"] == 8
        assert sorted(logs(space, "one-item-each")) == [f"Working on {item}\n" for item in QUEUED[:8]]
        asked = ["amqp-get", f"--url=amqp://guest:guest@{place.address}:5672", "-q", "job1"]
        assert subprocess.run(asked, capture_output=True, check=False).returncode == 2, "the queue is empty"
        _delete(space, "rabbitmq")


def _delete(space: Namespace, pod: str) -> None:
    space.client.delete(space.path(pod)).raise_for_status()
    until(lambda: space.client.get(space.path(pod)).status_code == 404, SECONDS, f"{pod} has ended")


class Queue:
    """Redis in a pod, filled by a Job."""

    def __init__(self, place: Place, namespace: str, programs: Path) -> None:
        self._place, self._programs, self.space = place, programs, Namespace(place.client, namespace)
        self._words = {"[redis-": f"[{programs}/redis-", "(redis-": f"({programs}/redis-"}
        apply(self.space, *place.server("examples/redis/server", **self._words))
        documents.answers(programs, place.address)
        apply(self.space, *place.workers("examples/redis/fill", "redis", **self._words))
        ended(self.space, "fill", "Complete")
        assert self("lrange", "job2", "0", "-1").split() == QUEUED

    def __call__(self, *words: str) -> str:
        asked = [str(self._programs / "redis-cli"), "-h", self._place.address, *words]
        return subprocess.run(asked, capture_output=True, text=True, check=True).stdout

    def run(self, manifest: str, job: str) -> Object:
        apply(self.space, *self._place.workers(f"examples/redis/{manifest}", "redis", **self._words))
        done = ended(self.space, job, "Complete")
        assert self("exists", "job2", "job2:processing").strip() == "0"
        return done
