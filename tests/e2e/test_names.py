"""Pods of four machines find each other by name: each pings each, and the examples with torchrun and mpirun.

The machines are network namespaces. Their agents run plain processes, on the machines' own network.
"""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from app.runtimes.process.launch import PATH
from tests.e2e.cluster import surprises, until
from tests.e2e.environments import python_with
from tests.e2e.ledger import JOBS
from tests.e2e.machines import Network, Server, agent, jobplane, laid, ready
from tests.needs import lacking

MACHINES = ("a", "b", "c", "d")
PODS = 8
EXAMPLES = Path(__file__).parents[2] / "examples"
CORE = "/api/v1/namespaces/default"
PODS_PATH = f"{CORE}/pods"
STAND_IN = Path(__file__).parent / "torch_stand_in"
TORCH = "torch==2.15.0"
PINGS = """
for index in $(seq 0 $((PODS - 1))); do
    until ping -c 1 -W 1 "ring-$index.ring" > /dev/null 2>&1; do sleep 0.1; done
    echo "$(hostname) reaches ring-$index at $(getent hosts ring-$index.ring | cut -d' ' -f1)"
done
touch "$SHARED/$RANK"  # a pod that has ended has no name any more
until [ "$(ls "$SHARED" | wc -l)" = "$PODS" ]; do sleep 0.1; done
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
    said: dict[str, list[str]] = {}
    for pod in pods_of(client, name):
        log = client.get(f"{PODS_PATH}/{pod['metadata']['name']}/log").text
        said.setdefault(pod["spec"]["nodeName"], []).extend(log.splitlines())
        assert pod["status"]["phase"] == "Succeeded", log
    client.delete(f"{JOBS}/{name}", params={"propagationPolicy": "Background"}).raise_for_status()
    return said


def pods_of(client: httpx.Client, job: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = client.get(PODS_PATH, params={"labelSelector": f"job-name={job}"}).json()["items"]
    return found


@contextmanager
def applied(client: httpx.Client, *documents: dict[str, Any]) -> Iterator[None]:
    """These objects are there."""
    kinds = {"Job": JOBS} | {kind: f"{CORE}/{kind.lower()}s" for kind in ("Service", "ConfigMap", "Secret")}
    for each in documents:
        client.post(kinds[each["kind"]], json=each).raise_for_status()
    yield
    for each in documents:
        how = {"propagationPolicy": "Background"}
        client.delete(f"{kinds[each['kind']]}/{each['metadata']['name']}", params=how).raise_for_status()


def test_each_pod_of_eight_on_four_machines_reaches_each_by_name(client: httpx.Client, tmp_path: Path) -> None:
    said = run(client, a_ring("ring", ["bash", "-c", PINGS], PODS, PODS=str(PODS), SHARED=str(tmp_path)))

    assert {node: len(lines) for node, lines in said.items()} == dict.fromkeys(MACHINES, 2 * PODS)
    lines = sorted(line for lines in said.values() for line in lines)
    places = {line.split()[2]: line.split()[4] for line in lines}  # the address of each name
    assert lines == sorted(f"ring-{mine} reaches {name} at {at}" for mine in range(PODS) for name, at in places.items())
    assert sorted(places.values()) == sorted(f"10.213.81.{11 + number}" for number in range(4) for _ in range(2))


@pytest.mark.parametrize("torch", ["stand-in", pytest.param("real", marks=pytest.mark.timeout(1800))])
def test_torchrun_reduces_a_tensor_over_two_nodes(client: httpx.Client, torch: str) -> None:
    """The example as it stands, with PyTorch if JOBPLANE_TORCH is set, else with as much of it as the example calls."""
    if torch == "real" and not os.environ.get("JOBPLANE_TORCH"):
        pytest.skip("JOBPLANE_TORCH is not set: PyTorch and its CUDA take some GB")
    *others, job = yaml.safe_load_all((EXAMPLES / "torchrun.yaml").read_text())
    (worker,) = job["spec"]["template"]["spec"]["containers"]
    if torch == "real":
        programs = python_with("torch", TORCH).parent
        worker["env"].append({"name": "PATH", "value": f"{programs}:/usr/bin:/bin"})
    else:
        worker["env"].append({"name": "PYTHONPATH", "value": str(STAND_IN)})

    with applied(client, *others):
        said = run(client, job)

    lines = sorted(line for lines in said.values() for line in lines if line.startswith("rank"))
    assert lines == ["rank 0 of 2 has 3", "rank 1 of 2 has 3"]
    assert len(said) == 2, "each on a node of its own"


def test_mpirun_reduces_a_number_over_two_nodes(client: httpx.Client, tmp_path: Path) -> None:
    """The example as it stands. Never a failure for want of a program: an MPI is much for one test."""
    finds = "command -v mpirun && command -v ssh && test -x /usr/sbin/sshd && python3 -c 'import mpi4py'"
    if subprocess.run(["sh", "-c", finds], env={"PATH": PATH}, capture_output=True, check=False).returncode:
        pytest.skip("apt-get install openmpi-bin openssh-client openssh-server python3-mpi4py")
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    data = {"key": key.read_text(), "key.pub": key.with_suffix(".pub").read_text()}
    secret = {"kind": "Secret", "metadata": {"name": "mpi-key"}, "stringData": data}
    *others, job = yaml.safe_load_all((EXAMPLES / "mpirun.yaml").read_text())

    with applied(client, secret, *others, job):
        until(lambda: client.get(f"{JOBS}/mpi").json()["status"].get("completionTime"), 90, "mpi is complete")
        (launcher,) = pods_of(client, "mpi")  # the other pod is deleted by then
        said = client.get(f"{PODS_PATH}/{launcher['metadata']['name']}/log").text

    lines = sorted(line for line in said.splitlines() if line.startswith("rank"))
    assert lines == ["rank 0 of 2 has 3", "rank 1 of 2 has 3"], said
    events = client.get(f"{CORE}/events", params={"fieldSelector": "reason=Scheduled"}).json()["items"]
    nodes = {each["message"].split()[-1] for each in events if each["involvedObject"]["name"].startswith("mpi-")}
    assert len(nodes) == 2


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
