"""Pods of four machines find each other by name: an Indexed Job in which each pings each, and a rendezvous by MASTER_ADDR.

The machines are network namespaces. Their agents run plain processes, on the machines' own network.
"""

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.cluster import surprises, until
from tests.e2e.ledger import JOBS
from tests.e2e.machines import Network, Server, agent, jobplane, laid, ready
from tests.needs import lacking

MACHINES = ("a", "b", "c", "d")
PODS = 8
PINGS = """
for index in $(seq 0 $((PODS - 1))); do
    until ping -c 1 -W 1 "ring-$index.ring" > /dev/null 2>&1; do sleep 0.1; done
    echo "$(hostname) reaches ring-$index at $(getent hosts ring-$index.ring | cut -d' ' -f1)"
done
touch "$SHARED/$RANK"  # a pod that has ended has no name any more
until [ "$(ls "$SHARED" | wc -l)" = "$PODS" ]; do sleep 0.1; done
"""
# Each rank sends its number to rank 0, which sends back the sum: what a rendezvous and an all-reduce need of the network.
REDUCE = """
import os, socket, time
rank, world, address = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), os.environ["MASTER_ADDR"]
port = int(os.environ["MASTER_PORT"])
if rank == 0:
    server = socket.create_server(("", port))
    peers = [server.accept()[0] for _ in range(world - 1)]
    total = sum(int(peer.recv(16)) for peer in peers)
    for peer in peers:
        peer.sendall(str(total).encode())
else:
    while True:
        try:
            peer = socket.create_connection((address, port), timeout=5)
            break
        except OSError:
            time.sleep(0.05)
    peer.sendall(str(rank).encode())
    total = int(peer.recv(16))
print("rank", rank, "of", world, "has", total)
"""


def a_ring(name: str, command: list[str], pods: int, **env: str) -> dict[str, Any]:
    """An Indexed Job whose pods are below the Service `ring`."""
    index = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    variables = [{"name": key, "value": value} for key, value in env.items()] + [{"name": "RANK", "valueFrom": index}]
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"job-name": name}},
        "nodeTaintsPolicy": "Honor",
    }
    pod = {
        "subdomain": "ring",
        "restartPolicy": "Never",
        "topologySpreadConstraints": [spread],
        "containers": [{"name": "main", "image": "python:3.13", "command": command, "env": variables}],
    }
    spec = {"completionMode": "Indexed", "completions": pods, "parallelism": pods, "template": {"spec": pod}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec | {"backoffLimit": 0}}


# The API by its name, whose certificate must be for it: a Status answers, as there is no token.
API = """
import os, ssl, urllib.error, urllib.request
context = ssl.create_default_context(cafile=os.environ["CA"])
try:
    urllib.request.urlopen("https://kubernetes.default.svc/api/v1/pods", context=context)
except urllib.error.HTTPError as error:
    print(error.code, error.read().decode())
"""
QUEUE = """
until redis-cli -h queue ping > /dev/null 2>&1; do sleep 0.1; done
if [ "$RANK" = 0 ]; then redis-cli -h queue rpush work one two three; fi
until item=$(redis-cli -h queue lpop work) && [ -n "$item" ]; do sleep 0.1; done
echo "works on $item"
"""


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """Of a Jobplane with a node on each machine, and a headless Service for the pods of both Jobs."""
    for program in ("ping", "bwrap", "getent", "redis-server", "redis-cli"):
        if shutil.which(program) is None:
            lacking(f"the program {program} is not there")
    folder = tmp_path_factory.mktemp("names")
    with ExitStack() as stack:
        network = stack.enter_context(laid(Network("jpnames", "10.213.81", MACHINES)))
        server = stack.enter_context(Server(folder / "server", network.host))
        client = stack.enter_context(server.client())
        merge = {"Content-Type": "application/merge-patch+json"}
        for node in ready(client):
            cordon = {"spec": {"unschedulable": True}}
            client.patch(f"/api/v1/nodes/{node}", json=cordon, headers=merge).raise_for_status()
        _, *given = jobplane("token", "create", "--uses", str(len(MACHINES)), "--data-dir", str(server.folder)).split()
        for each in MACHINES:
            stack.enter_context(agent(network, each, each, given, folder / each))
        until(lambda: set(MACHINES) <= ready(client).keys(), 60, "all four are ready")
        spec = {"clusterIP": "None", "selector": {"batch.kubernetes.io/job-name": "ring"}}
        service = {"metadata": {"name": "ring"}, "spec": spec}
        client.post("/api/v1/namespaces/default/services", json=service).raise_for_status()
        yield client
        server.empty()
    for each in ("server", *MACHINES):
        assert surprises(folder / f"{each}.log") == ""


def run(client: httpx.Client, job: dict[str, Any]) -> dict[str, list[str]]:
    """The lines of its pods, by node, once all have succeeded."""
    name = job["metadata"]["name"]
    client.post(JOBS, json=job).raise_for_status()
    until(lambda: client.get(f"{JOBS}/{name}").json()["status"].get("conditions"), 90, f"{name} ends")
    pods = client.get("/api/v1/namespaces/default/pods", params={"labelSelector": f"job-name={name}"}).json()["items"]
    said: dict[str, list[str]] = {}
    for pod in pods:
        log = client.get(f"/api/v1/namespaces/default/pods/{pod['metadata']['name']}/log").text
        said.setdefault(pod["spec"]["nodeName"], []).extend(log.splitlines())
        assert pod["status"]["phase"] == "Succeeded", log
    client.delete(f"{JOBS}/{name}", params={"propagationPolicy": "Background"}).raise_for_status()
    return said


def test_each_pod_of_eight_on_four_machines_reaches_each_by_name(client: httpx.Client, tmp_path: Path) -> None:
    said = run(client, a_ring("ring", ["bash", "-c", PINGS], PODS, PODS=str(PODS), SHARED=str(tmp_path)))

    assert {node: len(lines) for node, lines in said.items()} == dict.fromkeys(MACHINES, 2 * PODS)
    lines = sorted(line for lines in said.values() for line in lines)
    places = {line.split()[2]: line.split()[4] for line in lines}  # the address of each name
    assert lines == sorted(f"ring-{mine} reaches {name} at {at}" for mine in range(PODS) for name, at in places.items())
    assert sorted(places.values()) == sorted(f"10.213.81.{11 + number}" for number in range(4) for _ in range(2))


def test_ranks_meet_at_the_name_of_the_first(client: httpx.Client) -> None:
    how = {"MASTER_ADDR": "reduce-0.meet", "MASTER_PORT": "29400", "WORLD_SIZE": "4"}
    spec = {
        "clusterIP": "None",
        "selector": {"batch.kubernetes.io/job-name": "reduce"},
        "publishNotReadyAddresses": True,
    }
    client.post(
        "/api/v1/namespaces/default/services", json={"metadata": {"name": "meet"}, "spec": spec}
    ).raise_for_status()
    job = a_ring("reduce", ["python3", "-c", REDUCE], 4, **how)
    job["spec"]["template"]["spec"]["subdomain"] = "meet"

    said = run(client, job)

    assert sorted(line for lines in said.values() for line in lines) == [f"rank {rank} of 4 has 6" for rank in range(4)]
    assert set(said) == set(MACHINES)


def test_the_api_has_a_name(client: httpx.Client, tmp_path: Path) -> None:
    authority = tmp_path / "ca.crt"
    authority.write_bytes(client.get("/apis/agents.jobplane.dev/v1/ca").content)
    job = a_ring("ask", ["python3", "-c", API], 1, CA=str(authority))

    (lines,) = run(client, job).values()

    assert lines[0].startswith('401 {"kind":"Status"')


def test_workers_take_from_a_queue_on_another_machine_by_its_name(client: httpx.Client) -> None:
    """A Redis in a pod, behind a Service with a port, as in Kubernetes' manual; its workers run elsewhere."""
    spec = {"selector": {"app": "queue"}, "ports": [{"port": 6379, "targetPort": 6379}]}
    client.post(
        "/api/v1/namespaces/default/services", json={"metadata": {"name": "queue"}, "spec": spec}
    ).raise_for_status()
    command = ["redis-server", "--save", "", "--protected-mode", "no"]
    server = {"name": "redis", "image": "redis", "command": command}
    pod = {"nodeSelector": {"kubernetes.io/hostname": "a"}, "terminationGracePeriodSeconds": 1, "containers": [server]}
    meta = {"name": "queue", "labels": {"app": "queue"}}
    client.post("/api/v1/namespaces/default/pods", json={"metadata": meta, "spec": pod}).raise_for_status()
    elsewhere = {"key": "kubernetes.io/hostname", "operator": "In", "values": ["b", "c", "d"]}
    job = a_ring("workers", ["bash", "-c", QUEUE], 3)
    terms = {"nodeSelectorTerms": [{"matchExpressions": [elsewhere]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    job["spec"]["template"]["spec"]["affinity"] = affinity

    said = run(client, job)

    found = sorted(line for lines in said.values() for line in lines if line.startswith("works"))
    assert found == ["works on one", "works on three", "works on two"]
    assert set(said) == {"b", "c", "d"}
