"""kill -9 in the middle of streams: whoever hangs on one is told, and what comes after works."""

import os
import subprocess
from collections.abc import Iterator

import pytest

from tests.e2e import processes
from tests.e2e.cluster import Cluster, free_port, until
from tests.e2e.kubectl import SECONDS, TIMEOUT, Kubectl, found
from tests.e2e.manifests import a_container

KUBECTLS = [*found()[:-1][:1], *found()[-1:]]  # the oldest, too, if JOBPLANE_KUBECTLS asks for it
pytestmark = pytest.mark.skipif(not KUBECTLS, reason="kubectl is not installed")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One of our own: it is not treated well."""
    with Cluster(tmp_path_factory.mktemp("streams") / "data") as running:
        yield running
    assert running.surprises() == ""


@pytest.fixture(scope="module", params=KUBECTLS, ids=lambda path: path.name)
def kubectl(
    request: pytest.FixtureRequest, cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Kubectl]:
    made = Kubectl.at(request.param, cluster, tmp_path_factory.mktemp("home"))
    made("create", "namespace", made.namespace)
    containers = [a_container("main", "while read line; do echo got $line; done") | {"stdin": True}]
    spec = {"restartPolicy": "Never", "terminationGracePeriodSeconds": 1, "containers": containers}
    made.send("create", {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec})
    made("wait", "--for=condition=Ready", "pod/p", TIMEOUT)
    yield made
    made.api.close()


def runs(mark: str) -> bool:
    return any(each.command == f"sleep {mark}" for each in processes.living())


@pytest.mark.parametrize("part", ["agent", "api"])
def test_a_stream_that_is_cut_ends_and_the_next_one_works(cluster: Cluster, kubectl: Kubectl, part: str) -> None:
    mark = f"{free_port()}.5"
    with kubectl.start("exec", "p", "--", "sleep", mark) as executing, kubectl.start("attach", "-i", "p") as attached:
        until(lambda: runs(mark), SECONDS, "it runs")
        _heard(attached, "before")
        processes.kill(cluster.pid_of(part))
        try:
            said, _ = executing.communicate(timeout=SECONDS)
            attached.communicate(timeout=SECONDS)
        finally:
            executing.kill()
            attached.kill()
    if part == "agent" or kubectl.minor >= 30:  # older ones take the loss of the server for the end of the command
        assert (executing.returncode, "error" in said.lower()) == (1, True), said
    until(lambda: not runs(mark), SECONDS, "what was executed is killed")
    until(cluster.is_usable, SECONDS, "it is back")
    until(lambda: _echoed(kubectl) == "hi\n", SECONDS, "exec works")
    with kubectl.start("attach", "-i", "p") as again:  # the container goes on, and so does its input
        _heard(again, part)
        again.kill()


def _heard(attached: subprocess.Popen[str], word: str) -> None:
    """The container answers: so its streams are there."""
    assert attached.stdin
    assert attached.stdout
    attached.stdin.write(f"{word}\n")
    attached.stdin.flush()
    assert f"got {word}\n" in iter(attached.stdout.readline, "")


def _echoed(kubectl: Kubectl) -> str:
    """Nothing, for as long as it fails."""
    with kubectl.start("exec", "p", "--", "echo", "hi") as running:
        out, _ = running.communicate(timeout=SECONDS)
        return out if running.returncode == 0 else ""


def test_nothing_is_left_of_many_streams(cluster: Cluster, kubectl: Kubectl) -> None:
    """The agent and the API hold no more files after than before."""
    parts = [cluster.pid_of("agent"), cluster.pid_of("api")]
    _echoed(kubectl)
    before = [_files(pid) for pid in parts]
    for _ in range(10):
        assert _echoed(kubectl) == "hi\n"
    until(lambda: all(_files(pid) <= were + 3 for pid, were in zip(parts, before, strict=True)), SECONDS, "files")


def _files(pid: int) -> int:
    return len(os.listdir(f"/proc/{pid}/fd"))
