"""API replicas on machines of their own behind HAProxy, with controllers and agents: docs/how-to/high-availability.md."""

import csv
import io
import secrets
import shutil
import socket
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.e2e import migrated_postgres, processes
from tests.e2e.cluster import READY_SECONDS, STOP_SECONDS, until
from tests.e2e.machines import Network
from tests.e2e.parts import Parts
from tests.e2e.processes import Process
from tests.manual.page import File, read_page
from tests.needs import lacking

PAGE = Path(__file__).parents[2] / "docs" / "how-to" / "high-availability.md"
API_PORT = 6443
Part = subprocess.Popen[bytes]


def page_file(name: str, **instead: str) -> str:
    """A file of the page, with other words in place of some; each must be there."""
    (text,) = [step.text for step in read_page(PAGE) if isinstance(step, File) and step.name == name]
    for word, other in instead.items():
        assert word in text, word
        text = text.replace(word, other)
    return text


class Replicas(Parts):
    """Machines of the network whose names begin with `api-` run the replicas. `workers` are nodes that run processes.

    database: the URL of one that is not ours, and is migrated; empty: a Postgres of our own.
    """

    def __init__(
        self,
        folder: Path,
        network: Network,
        workers: Sequence[str],
        *,
        simulated: int = 0,
        database: str = "",
        **settings: str,
    ) -> None:
        super().__init__(folder, controllers=2, nodes=len(workers) + simulated, **settings)
        self.url = f"https://{network.host}:{self.port}"
        self.names = [name for name in network.machines if name.startswith("api-")]
        self.apis: dict[str, Part] = {}
        self.controllers: list[Part] = []
        self.network, self._workers, self._simulated, self._database = network, workers, simulated, database
        self._balancer: Part | None = None
        self._statistics = folder.with_name("haproxy.sock")

    @property
    def dsn(self) -> str:
        return self._database or super().dsn

    def start(self) -> None:
        if shutil.which("haproxy") is None:
            lacking("no haproxy: apt-get install haproxy")
        if self._database:
            self.folder.mkdir(mode=0o755)
            migration = self.add("migrate")
            assert migration.wait(READY_SECONDS) == 0, self.log.read_text()
            self._parts.remove(migration)
        else:
            migrated_postgres.copy_into(self.folder)
            self.bring_back()
        for name in ("admin.token", "agent.token"):
            (self.folder / name).write_text(secrets.token_urlsafe())
        for name in self.names:
            self.start_api(name)
        self._balance()
        self.controllers = [self.add("controllers") for _ in range(2)]
        for name in self._workers:
            self._add_agent(name, "--node-name", name)
        if self._simulated:
            self._add_agent("rack", "--runtime", "simulated", "--nodes", str(self._simulated), "--node-name", "rack")
        self._write_kubeconfig()
        until(self.is_usable, 2 * READY_SECONDS, f"ready; see {self.log}")
        self.plant()

    def data_dir(self, name: str) -> Path:
        """That of the first replica is the cluster's: it makes the authority."""
        return self.folder if name == self.names[0] else self.folder.with_name(name)

    def start_api(self, name: str) -> None:
        """Start a replica, and wait until it is ready. All have the first one's authority, as the page says."""
        data, authority = self.data_dir(name), self.folder / "tls"
        if data != self.folder and not data.exists():
            (data / "tls").mkdir(parents=True)
            for file in ("ca.crt", "ca.key"):
                shutil.copy(authority / file, data / "tls" / file)
        address = self.network.address(name)
        options = ("--host", address, "--port", str(API_PORT), "--tls-san", self.network.host)
        self.apis[name] = self.add(
            "api",
            *options,
            "--data-dir",
            str(data),
            within=self.network.into(name),
            JOBPLANE_AGENT_NODES="worker-*,rack-*",
        )
        self._until_ready(address)

    def _until_ready(self, address: str) -> None:
        """By the replica's own probe, and not through the balancer."""

        def is_ready() -> bool:
            call = ["curl", "-skf", "-m", "2", "-o", "/dev/null", f"https://{address}:{API_PORT}/readyz"]
            return subprocess.run(call, check=False).returncode == 0

        until(is_ready, READY_SECONDS, f"{address} is ready; see {self.log}")

    def _balance(self) -> None:
        """Start HAProxy with the page's configuration."""
        own = {f"192.0.2.{11 + at}:": f"{self.network.address(name)}:" for at, name in enumerate(self.names)}
        own[f"bind :{API_PORT}"] = f"bind {self.network.host}:{self.port}"
        own["/run/haproxy/admin.sock"] = str(self._statistics)
        own["maxconn 20000"] = "maxconn 2000"  # a test may not open so many files
        lines = page_file("haproxy.cfg", **own).splitlines()
        path = self.folder.with_name("haproxy.cfg")
        path.write_text("\n".join([*(line for line in lines if " 192.0.2." not in line), ""]))
        with path.with_suffix(".log").open("ab") as log:
            self._balancer = subprocess.Popen(["haproxy", "-f", str(path)], stdout=log, stderr=log)
        until(self._statistics.exists, READY_SECONDS, f"HAProxy runs; see {path.with_suffix('.log')}")

    def _add_agent(self, name: str, *options: str) -> None:
        server = ("--server", self.url, "--token-file", str(self.folder / "agent.token"))
        trust = ("--ca-file", str(self.folder / "tls" / "ca.crt"))
        self.add("agent", *server, *trust, *options, "--data-dir", str(self._agent_folder(name)))

    def _agent_folder(self, name: str) -> Path:
        return self.folder / "agents" / name

    def _write_kubeconfig(self) -> None:
        own = (self.folder / "kubeconfig").read_text()
        address = f"https://{self.network.address(self.names[0])}:{API_PORT}"
        assert address in own
        self.kubeconfig.write_text(own.replace(address, self.url))

    @property
    def kubeconfig(self) -> Path:
        """That of the first replica's folder names the replica."""
        return self.folder.with_name("kubeconfig")

    def containers(self) -> list[Process]:
        return [each for name in self._workers for each in processes.containers(f"{self._agent_folder(name)}/agent")]

    def sessions(self) -> dict[str, int]:
        """Connections that each replica has through the balancer."""
        with socket.socket(socket.AF_UNIX) as asking:
            asking.connect(str(self._statistics))
            asking.sendall(b"show stat\n")
            with asking.makefile() as answer:
                table = answer.read().removeprefix("# ")
        found = {
            row["svname"]: int(row["scur"]) for row in csv.DictReader(io.StringIO(table)) if row["pxname"] == "api"
        }
        return {name: found[name] for name in self.names}

    def restart_api(self, name: str, *, kill: bool) -> None:
        self._end(self.apis.pop(name), kill=kill)
        self.start_api(name)

    def restart_controllers(self, *, kill: bool) -> None:
        """The first of them, which leads if it is the older one; the next call takes the other."""
        self._end(self.controllers.pop(0), kill=kill)
        self.controllers.append(self.add("controllers"))

    def _end(self, part: Part, *, kill: bool) -> None:
        self._parts.remove(part)
        if kill:
            part.kill()
            part.wait()
            return
        part.terminate()
        assert part.wait(STOP_SECONDS) == 0

    def stop(self) -> None:
        try:
            super().stop()
        finally:
            if self._balancer is not None:
                self._balancer.kill()
                self._balancer.wait()
