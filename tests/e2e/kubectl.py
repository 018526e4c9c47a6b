"""Every kubectl that this machine has, oldest first, and how the tests call them.

A test that is marked `@on_every_version` is written for one and run with all of them at once, each in a namespace of its own.
"""

import json
import os
import re
import shutil
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from queue import Empty, Queue
from typing import Any, Self

import httpx
import pytest
import yaml

from tests.e2e.cluster import Cluster
from tests.e2e.secret_values import KNOWN

_NUMBERED = re.compile(r"kubectl\.(\d+)\.(\d+)$")
_PATHS = {
    "job": "/apis/batch/v1/namespaces/{}/jobs",
    "pod": "/api/v1/namespaces/{}/pods",
    "cm": "/api/v1/namespaces/{}/configmaps",
    "clusterrole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
}
SECONDS = 60
COMPLETE = "--for=condition=complete"
TIMEOUT = f"--timeout={SECONDS}s"


def found() -> list[Path]:
    """Those that JOBPLANE_KUBECTLS names; with JOBPLANE_KUBECTLS=all every one; else the newest."""
    given = os.environ.get("JOBPLANE_KUBECTLS", "")
    if given not in ("", "all"):
        return [Path(each) for each in given.split(os.pathsep)]
    return _all() if given == "all" else _all()[-1:]


def oldest_and_newest() -> list[Path]:
    """For streams, which older ones ask for by another protocol."""
    paths = found() if os.environ.get("JOBPLANE_KUBECTLS") else _all()
    return sorted({*paths[:1], *paths[-1:]}, key=paths.index)


def _all() -> list[Path]:
    """The numbered ones beside the one on PATH, else that one."""
    on_path = shutil.which("kubectl")
    if on_path is None:
        return []
    return sorted(filter(_is_numbered, Path(on_path).resolve().parent.glob("kubectl.1.*")), key=_number) or [
        Path(on_path)
    ]


def newest() -> Path:
    """Skips the test if there is none: Debian has no package of it that `.ci/run` could install."""
    if not (paths := found()):
        pytest.skip("no kubectl: none on PATH, and JOBPLANE_KUBECTLS names none")
    return paths[-1]


def _is_numbered(path: Path) -> bool:
    return _NUMBERED.search(path.name) is not None


def _number(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in path.name.split(".")[1:])


@dataclass(frozen=True)
class Kubectl:
    """One version of it, with a configuration and caches of its own."""

    path: Path
    cluster: Cluster
    home: Path
    api: httpx.Client
    """For what a test looks up or prepares, and is not about: a kubectl takes twenty times as long."""
    namespace: str = "default"
    minor: int = 0

    @classmethod
    def at(cls, path: Path, cluster: Cluster, home: Path) -> Self:
        """That one, for a namespace that is named after it."""
        said = subprocess.run([path, "version", "--client", "-o", "json"], capture_output=True, check=True).stdout
        minor = int(json.loads(said)["clientVersion"]["minor"].rstrip("+"))
        return cls(path, cluster, home, cluster.client(), f"kubectl-1-{minor}", minor)

    def __call__(self, *arguments: str, code: int = 0, stdin: str = "", env: Mapping[str, str] | None = None) -> str:
        """What it prints, on either stream. It must end with `code`."""
        with self.start(*arguments, env=env) as running:
            try:
                out, _ = running.communicate(stdin, timeout=SECONDS)
            finally:
                running.kill()
        assert running.returncode == code, f"{self.path.name} {' '.join(arguments)}: {running.returncode}\n{out}"
        if arguments[:2] == ("create", "token"):
            KNOWN.note_output(out)
        return out

    def start(self, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[str]:
        variables = {"HOME": str(self.home), "PATH": os.environ["PATH"], "KUBECONFIG": str(self.cluster.kubeconfig)}
        return subprocess.Popen(
            [str(self.path), "--namespace", self.namespace, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env={
                **variables,
                "GOGC": "off",
                **(env or {}),
            },  # none lives long enough to be worth collecting its garbage
        )

    def send(self, verb: str, *documents: Mapping[str, Any], options: Sequence[str] = (), code: int = 0) -> str:
        """`kubectl VERB -f -` with these documents."""
        return self(*verb.split(), "-f", "-", *options, stdin=yaml.safe_dump_all(documents), code=code)

    def stored(self, kind: str, name: str) -> Any:
        """An object as the server has it."""
        return self.api.get(f"{self._path(kind)}/{name}").raise_for_status().json()

    def _path(self, kind: str) -> str:
        return _PATHS[kind].format(self.namespace)

    def node(self) -> str:
        """The name of the one node."""
        return str(self.api.get("/api/v1/nodes").json()["items"][0]["metadata"]["name"])

    def pods(self, job: str) -> list[str]:
        """The names of a Job's pods that have not been told to end."""
        found = self.api.get(self._path("pod"), params={"labelSelector": f"job-name={job}"}).json()["items"]
        return [each["metadata"]["name"] for each in found if "deletionTimestamp" not in each["metadata"]]

    def file(self, name: str, text: str) -> str:
        """A file of this version's own; its path."""
        path = self.home / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)
        path.chmod(0o755)
        return str(path)

    def apart(self, name: str) -> "Kubectl":
        """The same in a fresh namespace, for what must have one to itself."""
        namespace = f"{self.namespace}-{name}"
        self.api.post("/api/v1/namespaces", json={"metadata": {"name": namespace}}).raise_for_status()
        return replace(self, namespace=namespace)

    def submit(self, *jobs: Mapping[str, Any]) -> None:
        for job in jobs:
            self.api.post(self._path("job"), json=job).raise_for_status()

    def run_to_its_end(self, *jobs: Mapping[str, Any]) -> None:
        """Submit these Jobs, and wait until all have completed."""
        self.submit(*jobs)
        self("wait", COMPLETE, TIMEOUT, *(f"job/{job['metadata']['name']}" for job in jobs))

    def bring_up(self, job: Mapping[str, Any], pods: int = 1) -> list[str]:
        """Submit a Job that goes on, and wait until so many of its pods are ready; their names, as `pod/NAME`."""
        self.submit(job)
        return self.started(job["metadata"]["name"], pods)

    def started(self, job: str, pods: int = 1) -> list[str]:
        """The pods of a Job, once so many are ready."""
        self("wait", f"--for=jsonpath={{.status.ready}}={pods}", f"job/{job}", TIMEOUT)
        names = [f"pod/{name}" for name in self.pods(job)]
        assert len(names) == pods
        return names

    def none(self) -> str:
        """What `get` says where there is nothing."""
        return f"No resources found in {self.namespace} namespace.\n"


def everywhere(kubectls: Sequence[Kubectl], act: Callable[[Kubectl], object]) -> None:
    """Do this with every version at once. All that fail are told, each by its name."""
    with ThreadPoolExecutor(len(kubectls)) as pool:
        doing = [pool.submit(act, each) for each in kubectls]
    failures = []
    for kubectl, done in zip(kubectls, doing, strict=True):
        if isinstance(error := done.exception(), Exception):
            error.add_note(f"with {kubectl.path.name}")
            failures.append(error)
    if failures:
        raise ExceptionGroup(f"{len(failures)} of {len(kubectls)} versions", failures)


@contextmanager
def of_every_version(cluster: Cluster, folders: pytest.TempPathFactory) -> Iterator[list[Kubectl]]:
    """Each version found, with a home and a namespace of its own; the test is skipped if there is none."""
    newest()
    made = [Kubectl.at(path, cluster, folders.mktemp("home")) for path in found()]
    everywhere(made, lambda each: each("create", "namespace", each.namespace))
    yield made
    for each in made:
        each.api.close()


def on_every_version(test: Callable[[Kubectl], None]) -> Callable[[list[Kubectl]], None]:
    """A test of one kubectl as a test of all: see the fixture `kubectls`."""

    def tried(kubectls: list[Kubectl]) -> None:
        everywhere(kubectls, test)

    tried.__name__, tried.__doc__, tried.__module__ = test.__name__, test.__doc__, test.__module__
    return tried


def one_after_the_other(test: Callable[[Kubectl], None]) -> Callable[[Kubectl], None]:
    """For what all versions share, such as the node."""
    turn = threading.Lock()

    def tried(kubectl: Kubectl) -> None:
        with turn:
            test(kubectl)

    tried.__name__, tried.__doc__, tried.__module__ = test.__name__, test.__doc__, test.__module__
    return tried


@contextmanager
def following(running: subprocess.Popen[str]) -> Iterator[Callable[[str], str]]:
    """Read what a command says while it goes on: a function that waits for a line with a text in it."""
    lines: Queue[str] = Queue()
    said: list[str] = []
    reading = threading.Thread(target=_pass_on, args=(running, lines), daemon=True)
    reading.start()

    def wait_for(text: str) -> str:
        """The next line with this in it."""
        ends = time.monotonic() + SECONDS
        while True:
            try:
                said.append(lines.get(timeout=ends - time.monotonic()))
            except (Empty, ValueError):
                said.append("")
            assert said[-1], f"no {text!r} in\n{''.join(said)}"
            if re.search(text, said[-1]):
                return said[-1]

    try:
        yield wait_for
    finally:
        running.kill()
        running.wait()
        reading.join()
        for stream in (running.stdin, running.stdout):
            if stream:
                stream.close()


def _pass_on(running: subprocess.Popen[str], lines: Queue[str]) -> None:
    """All that it says, and nothing once it has ended."""
    for line in running.stdout or ():
        lines.put(line)
    lines.put("")


def rows(table: str) -> list[list[str]]:
    """The cells of what `get` prints, heading included."""
    return [re.split(r" {2,}", line.strip()) for line in table.splitlines()]


def words(text: str) -> str:
    """With every run of blanks as one, for columns whose width does not matter."""
    return re.sub(r"[ \t]+", " ", text)
