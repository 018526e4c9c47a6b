"""A Jobplane whose containers come from images, with kubectl: Jobs run, are looked into, and outlive their agent.

JOBPLANE_ENGINES=all is with containerd and Docker, too.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from app.runtimes.base import Login
from tests.e2e import processes
from tests.e2e.cluster import Cluster, until
from tests.e2e.kubectl import SECONDS, TIMEOUT, Kubectl, found
from tests.e2e.manifests import FOREVER, a_job
from tests.runtimes import dockers, engines, oci_images
from tests.runtimes.dockers import ALL_ENGINES, Dockerd
from tests.runtimes.engines import Containerd
from tests.runtimes.images import IMAGE, built
from tests.runtimes.registry import registry

KUBECTLS = found()
pytestmark = pytest.mark.skipif(not KUBECTLS, reason="kubectl is not installed")
CLUSTER = "10.216.0.0/16"
COUNT = "i=0; while [ $i -lt 200 ]; do i=$((i+1)); echo line $i; sleep 0.02; done; exit 7"


@pytest.fixture(scope="module")
def containerd() -> Iterator[Containerd]:
    yield from engines.containerd()


@pytest.fixture(scope="module")
def dockerd() -> Iterator[Dockerd]:
    yield from dockers.dockerd()


@pytest.fixture(scope="module")
def images_of_oci() -> Iterator[Path]:
    yield from oci_images.folder()


# Docker's and containerd's: in long runs. What its runtime promises is tested by tests/runtimes in any.
@pytest.fixture(scope="module", params=["oci", *(["cri", "docker"] if ALL_ENGINES else [])])
def cluster(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """That of oci gives pods a network of their own, unless we are an ordinary user."""
    more = []
    if request.param == "oci":
        endpoint = str(request.getfixturevalue("images_of_oci"))
        more = ["--pod-cidr", CLUSTER] if os.geteuid() == 0 else []
    else:
        endpoint = request.getfixturevalue({"cri": "containerd", "docker": "dockerd"}[request.param]).endpoint
    folder = tmp_path_factory.mktemp(request.param) / "data"
    with Cluster(folder, "--runtime", request.param, "--runtime-endpoint", endpoint, *more) as running:
        yield running
    if more:
        oci_images.remove_network(CLUSTER.replace("/16", "/24"))
    assert running.surprises() == ""


@pytest.fixture(scope="module")
def kubectl(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kubectl]:
    made = Kubectl.at(KUBECTLS[-1], cluster, tmp_path_factory.mktemp("home"))
    made("create", "namespace", made.namespace)
    yield made
    made.api.close()


def in_image(name: str, script: str, **spec: Any) -> dict[str, Any]:
    job = a_job(name, script, **spec)
    job["spec"]["template"]["spec"]["containers"][0]["image"] = IMAGE
    return job


def test_a_job_s_pods_have_addresses_and_logs(kubectl: Kubectl, request: pytest.FixtureRequest) -> None:
    kubectl.run_to_its_end(in_image("speak", "echo said; hostname", completions=3, parallelism=3))
    pods = [kubectl.stored("pod", name) for name in kubectl.pods("speak")]

    share = "oci" in request.node.name and os.geteuid() != 0  # the node's network
    assert len({pod["status"]["podIP"] for pod in pods}) == (1 if share else 3)
    for pod in pods:
        name = pod["metadata"]["name"]
        assert kubectl("logs", name) == f"said\n{name}\n"
        (status,) = pod["status"]["containerStatuses"]
        assert status["state"]["terminated"]["reason"] == "Completed"
        assert status["imageID"].startswith("sha256:")


def test_a_container_is_looked_into(kubectl: Kubectl) -> None:
    (pod,) = kubectl.bring_up(in_image("stay", FOREVER))

    assert kubectl("exec", pod, "--", "sh", "-c", "echo $((6 * 7)); exit 3", code=3).startswith("42\n")
    assert kubectl("exec", "-i", pod, "--", "cat", stdin="through\n") == "through\n"
    kubectl("delete", "job", "stay", "--grace-period=1")


def test_an_image_of_a_registry_with_logins_runs_its_own_entry_point(kubectl: Kubectl) -> None:
    with registry() as server:
        server.login = Login("me", "hunter2")
        name = server.add(
            "own/entry", built(("$JOB_COMPLETION_INDEX",), Entrypoint=["/bin/sh", "-c", 'eval echo "index $0"'])
        )
        login = ("--docker-username=me", "--docker-password=hunter2", f"--docker-server={server.name}")
        kubectl("create", "secret", "docker-registry", "pull", *login)
        job = a_job("entry", "", completions=2, parallelism=2, completionMode="Indexed")
        pod = job["spec"]["template"]["spec"]
        pod["containers"][0] = {"name": pod["containers"][0]["name"], "image": name}
        kubectl.run_to_its_end(
            job | {"spec": {**job["spec"], "template": {"spec": pod | {"imagePullSecrets": [{"name": "pull"}]}}}}
        )

    assert {kubectl("logs", pod) for pod in kubectl.pods("entry")} == {"index 0\n", "index 1\n"}


def test_an_agent_that_is_killed_adopts_what_runs(cluster: Cluster, kubectl: Kubectl) -> None:
    (pod,) = kubectl.bring_up(in_image("count", COUNT, backoffLimit=0))
    name = pod.removeprefix("pod/")
    before = kubectl.stored("pod", name)["status"]["containerStatuses"][0]
    until(lambda: "line 20\n" in kubectl("logs", pod), SECONDS, "it speaks")
    processes.kill(cluster.pid_of("agent"))
    kubectl("wait", "--for=condition=failed", "job/count", TIMEOUT)

    (after,) = kubectl.stored("pod", name)["status"]["containerStatuses"]
    assert (after["containerID"], after["restartCount"]) == (before["containerID"], 0)
    assert after["state"]["terminated"]["exitCode"] == 7
    assert kubectl("logs", pod) == "".join(f"line {number}\n" for number in range(1, 201))


def test_what_uses_too_much_memory_is_told(kubectl: Kubectl, request: pytest.FixtureRequest) -> None:
    job = in_image("greedy", "tail /dev/zero", backoffLimit=0)
    job["spec"]["template"]["spec"]["containers"][0]["resources"] = {"limits": {"memory": "32Mi"}}
    kubectl.submit(job)
    if "oci" in request.node.name and os.geteuid():  # no machine of the tests delegates cgroups to an ordinary user
        until(lambda: "cannot keep limits" in kubectl("get", "events"), SECONDS, "the pod is refused")
        assert "jobplane.dev/limits=none" in kubectl("get", "nodes", "--show-labels")
        kubectl("delete", "job", "greedy")
        return
    kubectl("wait", "--for=condition=failed", "job/greedy", TIMEOUT)

    (pod,) = kubectl.pods("greedy")
    (status,) = kubectl.stored("pod", pod)["status"]["containerStatuses"]
    assert status["state"]["terminated"]["reason"] == "OOMKilled"
