"""What a node does by itself, as kubectl shows it: devices for those that ask, and no more room than was asked for."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from tests.e2e.cluster import Cluster, environment
from tests.e2e.kubectl import SECONDS, TIMEOUT, Kubectl, newest, words
from tests.e2e.machines import jobplane
from tests.e2e.manifests import FOREVER
from tests.e2e.processes import naming

GPU = "nvidia.com/gpu"
QUICK = {"JOBPLANE_LEASE_SECONDS": "5"}
DEVICES = {
    "devices": {GPU: [{"id": "GPU-a", "files": ["/dev/null"]}, {"id": "GPU-b", "files": ["/dev/zero"]}]},
    "labels": {f"{GPU}.product": "Pretended"},
}


@contextmanager
def an_agent(kubectl: Kubectl, node: str, *options: str) -> Iterator[subprocess.Popen[str]]:
    """Another node of its own, by an address that its certificate does not name."""
    cluster, folder = kubectl.cluster, kubectl.home / node
    made = jobplane("token", "create", "--data-dir", str(cluster.folder))
    words = made.split()[made.split().index("--join-token") :]
    server = ["--server", f"https://127.1:{cluster.port}", "--tls-name", "127.0.0.1", "--data-dir", str(folder)]
    command = [sys.executable, "-m", "app.main.cli", "agent", *server, "--node-name", node, *words, *options]
    with (folder.with_suffix(".log")).open("w+") as log:
        running = subprocess.Popen(command, stdout=log, stderr=log, text=True, env=environment(**QUICK))
        try:
            kubectl("wait", "--for=create", f"node/{node}", TIMEOUT)
            kubectl("wait", "--for=condition=Ready", f"node/{node}", TIMEOUT)
            yield running
        finally:
            running.kill()
            running.wait()
            pods = f"--field-selector=spec.nodeName={node}"
            kubectl("delete", "pods", pods, "--force", "--grace-period=0")  # nobody is there to say that they ended
            kubectl("delete", "node", node)


@pytest.fixture(scope="module")
def kubectl(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    """For a node with two devices."""
    path = newest()
    folder = tmp_path_factory.mktemp("alone")
    (folder / "devices.json").write_text(json.dumps(DEVICES))
    with Cluster(folder / "data", "--devices", str(folder / "devices.json")) as cluster:
        made = Kubectl.at(path, cluster, tmp_path_factory.mktemp("home"))
        made("create", "namespace", made.namespace)
        yield made
        made.api.close()
    assert cluster.surprises() == ""


def a_pod(name: str, script: str, **spec: Any) -> dict[str, Any]:
    container = {"name": "main", "image": "busybox", "command": ["sh", "-c", script], **spec.pop("container", {})}
    usual = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": [container]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": {**usual, **spec}}


def asking(name: str) -> dict[str, Any]:
    container = {"resources": {"limits": {GPU: "1"}}}
    return a_pod(name, f"echo $NVIDIA_VISIBLE_DEVICES $CUDA_VISIBLE_DEVICES; {FOREVER}", container=container)


def test_two_pods_have_a_gpu_each_and_the_third_waits_for_one(kubectl: Kubectl) -> None:
    kubectl.send("apply", *(asking(name) for name in ("one", "two")))
    kubectl("wait", "--for=condition=Ready", "pod/one", "pod/two", TIMEOUT)
    kubectl.send("apply", asking("three"))
    kubectl("wait", "--for=condition=PodScheduled=false", "pod/three", TIMEOUT)

    node = words(kubectl("describe", "node", kubectl.node()))
    assert f"{GPU}.product=Pretended" in node
    assert f"{GPU}: 2\n" in node
    assert f"{GPU} 2 2\n" in node
    assert f"1 Insufficient {GPU}" in kubectl("describe", "pod", "three")
    seen = {line for name in ("one", "two") for line in kubectl("logs", name).splitlines() if line != "ready"}
    assert seen == {"GPU-a GPU-a", "GPU-b GPU-b"}

    kubectl("delete", "pod", "one")
    kubectl("wait", "--for=condition=Ready", "pod/three", TIMEOUT)
    kubectl("delete", "pod", "two", "three")


def test_a_pod_that_fills_an_empty_dir_is_evicted(kubectl: Kubectl) -> None:
    scratch = kubectl.home / "scratch"
    scratch.mkdir()
    fills = f"dd if=/dev/zero of={scratch}/large bs=1024 count=3000; {FOREVER}"
    pod = a_pod(
        "greedy",
        fills,
        volumes=[{"name": "scratch", "emptyDir": {"sizeLimit": "1Mi"}}],
        container={"volumeMounts": [{"name": "scratch", "mountPath": str(scratch)}]},
    )
    kubectl.send("apply", pod)
    kubectl("wait", "--for=jsonpath={.status.phase}=Failed", "pod/greedy", f"--timeout={SECONDS}s")

    status = kubectl.stored("pod", "greedy")["status"]
    why = 'Usage of EmptyDir volume "scratch" exceeds the limit "1Mi". '
    assert (status["reason"], status["message"]) == ("Evicted", why)
    assert why.strip() in kubectl("describe", "pod", "greedy")


def on(node: str, name: str) -> dict[str, Any]:
    return a_pod(name, FOREVER, nodeSelector={"kubernetes.io/hostname": node})


def test_a_node_that_shuts_down_ends_its_pods_and_says_so(kubectl: Kubectl) -> None:
    with an_agent(kubectl, "leaving", "--shutdown-grace-period", "20s") as agent:
        kubectl.send("apply", on("leaving", "doomed"))
        kubectl("wait", "--for=condition=Ready", "pod/doomed", TIMEOUT)
        agent.send_signal(signal.SIGTERM)
        assert agent.wait(SECONDS) == 0
        status = kubectl.stored("pod", "doomed")["status"]
        node = kubectl("describe", "node", "leaving")

    assert (status["phase"], status["reason"]) == ("Failed", "Terminated")
    assert status["message"] == "Pod was terminated in response to imminent node shutdown."
    assert "node is shutting down" in node


def test_an_agent_that_is_no_longer_trusted_says_so_and_ends(kubectl: Kubectl) -> None:
    with an_agent(kubectl, "expelled") as agent:
        kubectl.send("apply", on("expelled", "lost"))
        kubectl("wait", "--for=condition=Ready", "pod/lost", TIMEOUT)
        reset = [
            sys.executable,
            "-m",
            "app.main.cli",
            "node",
            "reset",
            "expelled",
            "--data-dir",
            str(kubectl.cluster.folder),
        ]
        subprocess.run(reset, check=True, env=environment(), capture_output=True)
        assert agent.wait(SECONDS) == 1

    assert "the API no longer takes the credential of expelled" in (kubectl.home / "expelled.log").read_text()
    assert [each for each in naming(str(kubectl.home / "expelled")) if each.pid != agent.pid] == []
