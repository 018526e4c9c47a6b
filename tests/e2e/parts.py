"""The parts of a Jobplane as they would run on several machines: each by itself, on a Postgres that is the test's own."""

import asyncio
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from app.postgres.embedded_postgres import Postgres
from tests.e2e import migrated_postgres
from tests.e2e.cluster import READY_SECONDS, STOP_SECONDS, Cluster, environment, until


class Parts(Cluster):
    """API, controllers and agent without `up`, and the database that they use. `agent`: more of the agent's arguments.

    Without nodes there is no agent.
    """

    def __init__(self, folder: Path, *agent: str, controllers: int = 1, nodes: int = 1, **settings: str) -> None:
        super().__init__(folder, nodes=nodes, **settings)
        self.postgres = Postgres(folder / "postgres")
        self._agent, self._controllers = agent, controllers
        self._fleet = "simulated-*" if "simulated" in agent else ""
        self._runner = asyncio.Runner()  # the database is a child of its loop
        self._parts: list[subprocess.Popen[bytes]] = []

    def start(self) -> None:
        migrated_postgres.copy_into(self.folder)
        for name in ("admin.token", "agent.token"):
            (self.folder / name).write_text(secrets.token_urlsafe())
        self.bring_back()
        self.add("api", "--port", str(self.port), "--migrate")
        for _ in range(self._controllers):
            self.add("controllers")
        if self.nodes:
            agent = ["--server", self.url, "--token-file", str(self.folder / "agent.token")]
            self.add("agent", *agent, "--ca-file", str(self.folder / "tls" / "ca.crt"), *self._agent)
        until(self.is_usable, READY_SECONDS, f"ready; see {self.log}")
        self.plant()

    def has_ended(self) -> bool:
        return any(part.poll() is not None for part in self._parts)

    def add(self, *command: str, within: Sequence[str] = (), **more: str) -> subprocess.Popen[bytes]:
        """One more process. It ends with this one, as the children of `up` do. `within`: what its command begins with."""
        variables = {"JOBPLANE_DATABASE_URL": self.dsn, "JOBPLANE_DATA_DIR": str(self.folder)}
        variables["JOBPLANE_AGENT_NODES"] = self._fleet
        env = environment(JOBPLANE_PARENT=str(os.getpid()), **(variables | self._settings | more))
        call = [*within, sys.executable, "-m", "app.main.cli", *command]
        with self.log.open("ab") as log:
            part = subprocess.Popen(call, stdout=log, stderr=log, env=env)
        self._parts.append(part)
        return part

    def replace(self, pid: int) -> None:
        """Kill one, and start another like it."""
        part = next(each for each in self._parts if each.pid == pid)
        part.kill()
        part.wait()
        self._parts.remove(part)
        assert isinstance(part.args, list)
        self.add(*part.args[3:])

    @contextmanager
    def controlled(self, *options: str) -> Iterator[None]:
        """By controllers with other options, for a while."""
        self._exchange("controllers", *options)
        yield
        self._exchange("controllers")

    def _exchange(self, *command: str) -> None:
        for part in [each for each in self._parts if isinstance(each.args, list) and command[0] in each.args]:
            part.terminate()
            assert part.wait(STOP_SECONDS) == 0
            self._parts.remove(part)
        self.add(*command)

    def stop(self) -> None:
        for part in self._parts:
            part.terminate()
        codes = [part.wait(STOP_SECONDS) for part in self._parts]
        self._runner.run(self.postgres.stop())
        self._runner.close()
        assert codes == [0] * len(codes)

    def take_away(self, number: signal.Signals) -> None:
        assert self.postgres.pid
        os.kill(self.postgres.pid, number)
        self._runner.run(self.postgres.wait())

    def bring_back(self) -> str:
        return self._runner.run(self.postgres.start())
