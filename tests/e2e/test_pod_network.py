"""Two machines, each with an agent of the oci runtime: pods get addresses of --pod-cidr, and reach each other by name.

With JOBPLANE_ENGINES=all, there are four, each with containerd without a CNI configuration and an agent of the cri runtime, too.
"""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.e2e.cluster import surprises, until
from tests.e2e.machines import Network, Server, agent, jobplane, laid, ready
from tests.e2e.test_names import run
from tests.runtimes import engines, oci_images
from tests.runtimes.dockers import ALL_ENGINES
from tests.runtimes.engines import Containerd
from tests.runtimes.images import IMAGE

MACHINES = ("a", "b", "c", "d") if ALL_ENGINES else ("a", "b")
NODES = {"oci": tuple(f"oci-{each}" for each in MACHINES), **({"cri": MACHINES} if ALL_ENGINES else {})}
ALL = [node for nodes in NODES.values() for node in nodes]
OPEN = {"JOBPLANE_POD_SECURITY": "privileged"}  # the pods share a folder of the machine
PODS = 2 * len(MACHINES)
# Waits for the others at the end, as a pod that has ended has no name any more: each asks rank 0 how many are through.
PINGS = """
for index in $(seq 0 $((PODS - 1))); do
    until ping -c 1 -W 1 "ring-$index.ring" > /tmp/said 2>&1; do sleep 0.2; done
    echo "$(hostname) reaches $(sed -n '1s/PING \\([^ ]*\\) (\\([^)]*\\)).*/\\1 at \\2/p' /tmp/said)"
done
touch "/shared/$RANK"
until [ "$(ls /shared | wc -l)" = "$PODS" ]; do sleep 0.2; done
"""


class Engine(Containerd):
    """One on a machine of its own, whose folder of CNI configurations is empty."""

    def __init__(self, folder: Path, into: list[str]) -> None:
        super().__init__(folder)
        self.into = into
        shutil.rmtree(folder / "cni")


@contextmanager
def engine(network: Network, machine: str, folder: Path) -> Iterator[Engine]:
    folder.mkdir()
    # Not `ip netns exec`: containers' mounts must be seen by all.
    made = Engine(folder, ["nsenter", f"--net=/run/netns/{network.space(machine)}"])
    made.start()
    try:
        made.load()
        yield made
    finally:
        made.close()


@pytest.fixture(scope="module")
def images() -> Iterator[Path]:
    yield from oci_images.folder()


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory, images: Path) -> Iterator[httpx.Client]:
    if "cri" in NODES:
        engines.needed(*engines.PROGRAMS, "nsenter")
    folder = tmp_path_factory.mktemp("network")
    with ExitStack() as stack:
        network = stack.enter_context(laid(Network("jppods", "10.213.82", MACHINES)))
        server = stack.enter_context(Server(folder / "server", network.host, JOBPLANE_POD_CIDR="10.214.0.0/16", **OPEN))
        client = stack.enter_context(server.client())
        merge = {"Content-Type": "application/merge-patch+json"}
        for node in ready(client):
            cordon = {"spec": {"unschedulable": True}}
            client.patch(f"/api/v1/nodes/{node}", json=cordon, headers=merge).raise_for_status()
        _, *given = jobplane("token", "create", "--uses", str(len(ALL)), "--data-dir", str(server.folder)).split()
        for each in MACHINES:
            if "cri" in NODES:
                running = stack.enter_context(engine(network, each, folder / f"engine-{each}"))
                runtime = ["--runtime", "cri", "--runtime-endpoint", running.endpoint]
                stack.enter_context(agent(network, each, each, [*given, *runtime], folder / each))
            subprocess.run(["cp", "-a", str(images), str(folder / f"images-{each}")], check=True)
            runtime = ["--runtime", "oci", "--runtime-endpoint", str(folder / f"images-{each}")]
            stack.enter_context(agent(network, each, f"oci-{each}", [*given, *runtime], folder / f"oci-{each}"))
        until(lambda: set(ALL) <= ready(client).keys(), 60, "all are ready")
        until(lambda: all(condition(client, each) == "True" for each in ALL), 30, "routes lead to all pods")
        spec = {"clusterIP": "None", "selector": {"batch.kubernetes.io/job-name": "ring"}}
        service = {"metadata": {"name": "ring"}, "spec": spec}
        client.post("/api/v1/namespaces/default/services", json=service).raise_for_status()
        yield client
        server.empty()
    for each in ("server", *ALL):
        assert surprises(folder / f"{each}.log") == ""


def condition(client: httpx.Client, node: str) -> str:
    found = client.get(f"/api/v1/nodes/{node}").json()["status"]["conditions"]
    return next((str(each["status"]) for each in found if each["type"] == "jobplane.dev/PodNetwork"), "")


def a_ring(runtime: str, shared: Path) -> dict[str, Any]:
    rank = {"fieldRef": {"fieldPath": "metadata.annotations['batch.kubernetes.io/job-completion-index']"}}
    env = [{"name": "PODS", "value": str(PODS)}, {"name": "RANK", "valueFrom": rank}]
    mount = {"name": "shared", "mountPath": "/shared"}
    main = {"name": "main", "image": IMAGE, "command": ["sh", "-c", PINGS], "env": env, "volumeMounts": [mount]}
    terms = {"matchExpressions": [{"key": "kubernetes.io/hostname", "operator": "In", "values": [*NODES[runtime]]}]}
    pod = {
        "subdomain": "ring",
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [terms]}}
        },
        "restartPolicy": "Never",
        "containers": [main],
        "volumes": [{"name": "shared", "hostPath": {"path": str(shared)}}],
        "topologySpreadConstraints": [
            {
                "maxSkew": 1,
                "topologyKey": "kubernetes.io/hostname",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchLabels": {"job-name": "ring"}},
                "nodeAffinityPolicy": "Honor",
                "nodeTaintsPolicy": "Honor",
            }
        ],
    }
    spec = {"completionMode": "Indexed", "completions": PODS, "parallelism": PODS, "template": {"spec": pod}}
    return {"metadata": {"name": "ring"}, "spec": spec | {"backoffLimit": 0}}


@pytest.mark.parametrize("runtime", NODES)
def test_each_pod_of_two_on_every_machine_reaches_each_by_name(
    client: httpx.Client, tmp_path: Path, runtime: str
) -> None:
    said = run(client, a_ring(runtime, tmp_path))

    wanted = dict.fromkeys(NODES[runtime], PODS * PODS // len(MACHINES))
    assert {node: len(lines) for node, lines in said.items()} == wanted
    lines = sorted(line for lines in said.values() for line in lines)
    places = {line.split()[2]: line.split()[4] for line in lines}  # the address of each name
    assert lines == sorted(f"ring-{mine} reaches {name} at {at}" for mine in range(PODS) for name, at in places.items())
    cidrs = {each["spec"]["podCIDR"] for each in client.get("/api/v1/nodes").json()["items"]}
    assert len(set(places.values())) == PODS
    assert {f"{at.rpartition('.')[0]}.0/24" for at in places.values()} < cidrs
