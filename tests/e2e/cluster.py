"""A whole Jobplane as its users run it: `jobplane up` in a process of its own, on a folder and a port of its own."""

import os
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

import httpx

from app.client.api import Api
from tests.e2e import migrated_postgres, processes, secret_values
from tests.e2e.processes import Process
from tests.e2e.secret_values import KNOWN

READY_SECONDS = 60
STOP_SECONDS = 60
# What no log may hold, whatever was killed: an error that nobody foresaw. Clients that do not hang up are none.
UNEXPECTED = re.compile(r"unexpected error|Traceback|never retrieved|ERROR(?!.*graceful shutdown exceeded)")
_WORDS = {
    "api": ("app.main.cli", " api "),
    "controllers": ("app.main.cli", " controllers"),
    "agent": ("app.main.cli", " agent "),
}
_WORDS["postgres"] = ("postgres", "jobplane.cluster=")


def until(claim: Callable[[], Any], seconds: float, what: str) -> Any:
    """Wait for what gives no signal; the first true value of `claim`.

    It is asked ever more seldom: whoever waits for a second should not take the processor from what it waits for.
    """
    ends, pause = time.monotonic() + seconds, 0.02
    while not (found := claim()):
        assert time.monotonic() < ends, f"not within {seconds} s: {what}"
        time.sleep(pause)
        pause = min(pause * 1.25, 0.1)
    return found


def free_port(together: int = 1) -> int:
    """The first of some adjacent ports that nobody listens at. None is among those that the kernel gives to connections."""
    while True:
        first = random.randrange(10_000, 30_000)
        if all(_is_free(port) for port in range(first, first + together)):
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def environment(**more: str) -> dict[str, str]:
    """Ours without what would change a Jobplane's settings."""
    return {name: value for name, value in os.environ.items() if not name.startswith("JOBPLANE_")} | more


class _ClosedSocket(ssl.SSLSocket):
    """Python 3.11 leaves a socket open on which the server has hung up before the handshake, as one does that is killed."""

    def recv(self, buflen: int = 1024, flags: int = 0) -> bytes:
        try:
            return super().recv(buflen, flags)
        except OSError:
            if self.version() is None:  # nothing is agreed on yet
                self.close()
            raise


class Cluster:
    """One `jobplane up`. As a context manager it starts, and at the end proves that nothing stays behind.

    `settings` are variables, such as JOBPLANE_NODE_GRACE_SECONDS="20".
    """

    def __init__(self, folder: Path, *arguments: str, nodes: int = 1, **settings: str) -> None:
        self.folder = folder
        self.nodes = nodes
        self.ready_seconds = READY_SECONDS
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.log = folder.with_name(f"{folder.name}.log")
        self.program = [sys.executable, "-m", "app.main.cli"]
        self._arguments, self._settings = arguments, settings
        self._up: subprocess.Popen[bytes] | None = None
        self._is_planted = False

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        with tempfile.TemporaryDirectory(prefix="jobplane-dump-") as dump:
            try:
                if kind is None:
                    self.empty()
                    self.dump(Path(dump))
            finally:
                self.stop()
            left = self.processes()
            assert left == [], left
            if kind is None:
                found = secret_values.find_leaks(
                    self.folder, [self.log], dump=Path(dump), encrypted=self.encrypts_secrets
                )
                assert found == [], "\n".join(map(str, found))

    @property
    def kubeconfig(self) -> Path:
        return self.folder / "kubeconfig"

    @property
    def dsn(self) -> str:
        return secret_values.dsn_of(self.folder)

    @property
    def encrypts_secrets(self) -> bool:
        return "JOBPLANE_SECRETS_KEY_FILE" in self._settings

    def dump(self, folder: Path) -> None:
        """Write what `find_leaks` is to search beside files: the database, and what the API shows of events and numbers."""
        KNOWN.note_folder(self.folder)
        secret_values.dump_database(self.dsn, folder, encrypted=self.encrypts_secrets)
        with self.client() as client:
            for path in ("/api/v1/events", "/metrics"):
                (folder / f"answer of GET {path.replace('/', ' ')}").write_bytes(client.get(path).content)

    @property
    def pid(self) -> int:
        assert self._up
        return self._up.pid

    def start(self) -> None:
        if not self.folder.exists():
            migrated_postgres.copy_into(self.folder)
        command = [*self.program, "up", "--data-dir", str(self.folder), "--port", str(self.port)]
        with self.log.open("ab") as log:
            self._up = subprocess.Popen(
                [*command, *self._arguments],
                stdout=log,
                stderr=log,
                env=environment(**self._settings),
                start_new_session=True,
            )
        until(self.is_usable, self.ready_seconds, f"ready; see {self.log}")
        self.plant()

    def plant(self) -> None:
        """Note the credentials of the data folder, and let secret values pass: none may stand in a log at the end."""
        KNOWN.note_folder(self.folder)
        if not self._is_planted:
            self._is_planted = True
            with self.client() as client:
                secret_values.plant(client)

    def has_ended(self) -> bool:
        assert self._up
        return self._up.poll() is not None

    def is_usable(self) -> bool:
        assert not self.has_ended(), self.log.read_text()
        if not self.kubeconfig.exists():
            return False
        try:
            with self.client() as client:
                return client.get("/readyz").is_success and self._ready_nodes(client) == self.nodes
        except httpx.TransportError:
            return False

    def _ready_nodes(self, client: httpx.Client) -> int:
        """For as long as it is not ready, the answer may be a Status."""
        nodes = client.get("/api/v1/nodes").json().get("items", [])
        conditions = [each for node in nodes for each in node["status"].get("conditions", [])]
        return sum(each["type"] == "Ready" and each["status"] == "True" for each in conditions)

    def stop(self) -> None:
        """As Ctrl-C or systemd would."""
        assert self._up
        self._up.send_signal(signal.SIGTERM)
        try:
            assert self._up.wait(STOP_SECONDS) == 0
        finally:
            self._up.kill()
            self._up.wait()

    def kill(self) -> None:
        """`up` itself; its children end with it."""
        assert self._up
        self._up.kill()
        self._up.wait()

    def pid_of(self, name: str) -> int:
        """The process of that part; waits for it if it is being started."""
        pid: int = until(lambda: processes.child(self.pid, *_WORDS[name]), READY_SECONDS, f"{name} runs")
        return pid

    def processes(self) -> list[Process]:
        return processes.naming(str(self.folder))

    def containers(self) -> list[Process]:
        return processes.containers(f"{self.folder}/agent")

    def token(self) -> str:
        return (self.folder / "admin.token").read_text().strip()

    def client(self, token: str | None = None, **how: Any) -> httpx.Client:
        headers = {"Authorization": f"Bearer {self.token() if token is None else token}"} if token != "" else {}
        KNOWN.note_credential(token or "", "token by which a test has called")
        verify = ssl.create_default_context(cafile=str(self.folder / "tls" / "ca.crt"))
        verify.sslsocket_class = _ClosedSocket
        hooks = {"response": [KNOWN.note_exchange]}
        return httpx.Client(
            base_url=self.url, headers=headers, verify=verify, timeout=30, trust_env=False, event_hooks=hooks, **how
        )

    def api(self) -> Api:
        """The client that our own agent uses: it goes on after trouble."""
        return Api(self.url, self.token(), self.folder / "tls" / "ca.crt")

    def empty(self) -> None:
        """Delete every Job and pod, and wait until they and their containers are gone."""
        with self.client() as client:
            for path in ("/apis/batch/v1/{}jobs", "/api/v1/{}pods"):
                items = client.get(path.format("")).json()["items"]
                for namespace in {item["metadata"]["namespace"] for item in items}:
                    options = {"propagationPolicy": "Background", "gracePeriodSeconds": 1}
                    client.request("DELETE", path.format(f"namespaces/{namespace}/"), json=options).raise_for_status()
            until(lambda: client.get("/api/v1/pods").json()["items"] == [], 40, "pods are gone")
        until(lambda: self.containers() == [], 20, f"containers are gone: {self.containers()}")

    def surprises(self) -> str:
        return surprises(self.log)


def surprises(log: Path) -> str:
    """What a log says from the first error on that nobody foresaw; nothing if there is none."""
    found = UNEXPECTED.search(said := log.read_text())
    return said[found.start() :][:4000] if found else ""
