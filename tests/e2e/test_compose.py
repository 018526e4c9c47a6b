"""docker-compose.yml and the Dockerfile on a real Docker Engine, which builds the image: the commands of their heads."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import yaml

from tests import base_images
from tests.e2e.cluster import environment, free_port, until
from tests.e2e.kubectl import newest
from tests.e2e.secret_values import KNOWN, find_leaks, plant
from tests.needs import lacking
from tests.runtimes.dockers import PROGRAMS, Dockerd
from tests.runtimes.engines import needed

ROOT = Path(__file__).parents[2]
SECONDS = 120
BUILD_TRIES = 3  # it downloads what it installs
pytestmark = pytest.mark.timeout(1200)  # a machine may be busy, and a package index slow
STEPS = re.compile(r"^#   ((?:docker|kubectl) .*?)(?:  +#.*)?$", re.MULTILINE)


class Machine:
    """A Docker Engine with the images that ours begins from, and a shell in the checkout that uses it."""

    def __init__(self, engine: Dockerd, folder: Path) -> None:
        self.ports = [free_port(), free_port()]
        self._compose = [*_compose(), "--project-name", "composed", "--project-directory", str(ROOT)]
        self._kubectl = str(newest())
        self._folder = folder
        self._containers: dict[str, str] = {}
        # Builds reach the package index as this machine does: for the network of a container, an engine would need iptables.
        build = {"services": {"migrate": {"build": {"context": str(ROOT), "network": "host"}}}}
        (folder / "build.yml").write_text(yaml.safe_dump(build))
        self._environment = environment(
            DOCKER_HOST=engine.endpoint,
            DOCKER_BUILDKIT="0",
            COMPOSE_DOCKER_CLI_BUILD="0",
            JOBPLANE_PORT=str(self.ports[0]),
            JOBPLANE_SECOND_PORT=str(self.ports[1]),
        )

    def docker(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._call("docker", *words)

    def compose(self, *words: str) -> str:
        files = ["--file", str(ROOT / "docker-compose.yml"), "--file", str(self._folder / "build.yml")]
        done = self._call(*self._compose, *files, *words)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    def kubectl(self, port: int, *words: str) -> str:
        kubeconfig = ["--kubeconfig", str(self._folder / "kubeconfig"), "--server", f"https://127.0.0.1:{port}"]
        done = self._call(self._kubectl, *kubeconfig, *words)
        assert done.returncode == 0, done.stderr
        return done.stdout

    @property
    def folder(self) -> Path:
        """Where files of the shell are."""
        return self._folder

    def exec(self, service: str, *words: str) -> str:
        """Run a command in a service of the cluster. Not by Compose 1, which is a Python program: each call takes a second."""
        return self._checked("exec", self.container(service), *words)

    def container(self, service: str) -> str:
        """Return the id of a service's container."""
        if service not in self._containers:
            self._containers[service] = self.compose("ps", "--quiet", service).strip()
        return self._containers[service]

    def run(self, line: str) -> None:
        """Run a line of a file's head as it stands, but for ports, the network of builds, and the kubeconfig's folder."""
        command, _, target = line.partition(" > ")
        match shlex.split(command):
            case ["docker", "compose", *words]:
                shown = self.compose(*self._known(words))
            case ["kubectl", "--kubeconfig", "kubeconfig", "--server", "https://127.0.0.1:6444", *words]:
                shown = self.kubectl(self.ports[1], *words)
            case ["kubectl", "--kubeconfig", "kubeconfig", *words]:
                shown = self.kubectl(self.ports[0], *words)
            case ["docker", "build", *words]:
                shown = self._build(words)
            case [_, *words]:
                shown = self._checked(*(each.replace("6443:6443", f"{self.ports[0]}:6443") for each in words))
        if target:
            (self._folder / target).write_text(shown)

    def _known(self, words: list[str]) -> list[str]:
        """Compose 1, which Debian 12 has, knows no --wait (`depends_on` makes it wait), and wants a terminal unless told."""
        if self._compose[0] == "docker":
            return words
        words = [each for each in words if each != "--wait"]
        return ["exec", "-T", *words[1:]] if words[0] == "exec" else words

    def _build(self, words: list[str]) -> str:
        for _ in range(BUILD_TRIES - 1):
            done = self.docker("build", "--network", "host", *words)
            if done.returncode == 0:
                return done.stdout
        return self._checked("build", "--network", "host", *words)

    def _checked(self, *words: str) -> str:
        done = self.docker(*words)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
        return done.stdout

    def _call(self, *command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, cwd=ROOT, env=self._environment, capture_output=True, text=True, check=False, timeout=900
        )


def _compose() -> list[str]:
    """Compose 2 is a plugin of Docker's command line, Compose 1 a program."""
    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode == 0:
        return ["docker", "compose"]
    if not shutil.which("docker-compose"):
        lacking("needs docker-compose, or the plugin compose of docker")
    return ["docker-compose"]


def _steps(name: str) -> list[str]:
    return [line.rstrip() for line in STEPS.findall((ROOT / name).read_text(encoding="utf-8"))]


@pytest.fixture(scope="module")
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """With the image `jobplane`, built as the head of the Dockerfile says."""
    needed(*PROGRAMS)
    engine = Dockerd(tmp_path_factory.mktemp("engine"))
    made = Machine(engine, tmp_path_factory.mktemp("shell"))
    engine.start()
    try:
        base_images.load(made.docker, tmp_path_factory.mktemp("images"))
        made.run(_steps("Dockerfile")[0])
        yield made
    finally:
        engine.close()


def test_everything_in_one_container_runs_a_job(machine: Machine) -> None:
    _, run, kubeconfig = _steps("Dockerfile")
    machine.run(run)
    try:
        until(
            lambda: machine.docker("exec", "jobplane", "test", "-s", "/data/kubeconfig").returncode == 0, SECONDS, "up"
        )
        machine.run(kubeconfig)
        until(lambda: _can_list(machine), SECONDS, "the API answers")
        _compute_pi(machine)
        assert machine.docker("exec", "jobplane", "id", "--user").stdout.strip() == "10001"
        assert "<script" in machine.kubectl(machine.ports[0], "get", "--raw", "/ui/"), "the page was built, too"
    finally:
        machine.docker("rm", "--force", "--volumes", "jobplane")


def test_the_cluster_of_compose_runs_a_job(machine: Machine, tmp_path: Path) -> None:
    """With each line of the file's head; the second replica of the API knows what was written to the first."""
    try:
        for line in _steps("docker-compose.yml"):
            machine.run(line)
        for port in machine.ports:
            machine.kubectl(port, "wait", "--for=condition=complete", "job/indexed", f"--timeout={SECONDS}s")
        _compute_pi(machine)
        assert machine.kubectl(machine.ports[1], "get", "nodes", "-o", "name").split() == ["node/node-1"]
        _look_for_secrets(machine, tmp_path)
    finally:
        machine.compose("down", "--volumes")


def _look_for_secrets(machine: Machine, folder: Path) -> None:
    """In what the services have printed, in the audit logs of both replicas, and in the database but for rows of Secrets."""
    kubeconfig = yaml.safe_load((machine.folder / "kubeconfig").read_text())
    token = KNOWN.note_credential(kubeconfig["users"][0]["user"]["token"], "token of the kubeconfig")
    with httpx.Client(
        base_url=f"https://127.0.0.1:{machine.ports[0]}",
        headers={"Authorization": f"Bearer {token}"},
        verify=False,  # the test is about what is printed
        event_hooks={"response": [KNOWN.note_exchange]},
    ) as client:
        plant(client)
    for api in ("api-1", "api-2"):
        for name in ("admin.token", "agent.token", "tls/ca.key", "tls/server.key"):
            found = machine.exec(api, "sh", "-c", f"cat /data/{name} 2>/dev/null || true")
            KNOWN.note_private_keys(found, f"private key of {name}")
            KNOWN.note_credential(found.strip() if name.endswith("token") else "", f"token of {name}")
        (folder / f"audit-{api}").write_text(machine.exec(api, "sh", "-c", "cat /data/audit/*"))
    rows = "copy (select * from history where kind <> 'secrets') to stdout"
    dump = ("-U", "jobplane", "--exclude-table-data=versions", "jobplane")
    (folder / "dump").write_text(machine.exec("postgres", "pg_dump", *dump))
    (folder / "history").write_text(machine.exec("postgres", "psql", "-U", "jobplane", "-c", rows, "jobplane"))
    (folder / "printed").write_text(machine.compose("logs", "--no-color"))
    assert all(each.stat().st_size for each in folder.iterdir())
    assert find_leaks(folder / "none", [*folder.iterdir()]) == []


def _can_list(machine: Machine) -> bool:
    try:
        return "node-1" in machine.kubectl(machine.ports[0], "get", "nodes", "-o", "name")
    except AssertionError:
        return False


def _compute_pi(machine: Machine) -> None:
    machine.kubectl(machine.ports[0], "apply", "-f", "examples/pi.yaml")
    machine.kubectl(machine.ports[0], "wait", "--for=condition=complete", "job/pi", f"--timeout={SECONDS}s")
    assert machine.kubectl(machine.ports[0], "logs", "job/pi").startswith("3.14159")
