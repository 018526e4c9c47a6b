"""Postgres on machines of their own, led by Patroni and etcd, as docs/how-to/high-availability.md has it."""

import asyncio
import json
import os
import re
import secrets
import shutil
import signal
import subprocess
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import asyncpg

from app.postgres.postgres_binaries import find
from tests.e2e import processes
from tests.e2e.cluster import free_port, until
from tests.e2e.environments import python_with
from tests.e2e.machines import Network
from tests.e2e.replicas import PAGE, page_file
from tests.e2e.secret_values import KNOWN
from tests.needs import lacking

PYTHON = "/usr/bin/python3"  # the user postgres may not be able to enter the folder of ours
REQUIREMENTS = ("patroni[etcd3]==4.1.5", "psycopg2-binary==2.9.13")
ACCOUNT = "postgres"
READY_SECONDS = 120
_LEADING = ("primary", "master", "leader")


class Patroni:
    """Machines of the network whose names begin with `db-`. The folder must be one that the user postgres can enter."""

    def __init__(self, folder: Path, network: Network) -> None:
        self.folder, self._network = folder, network
        self.names = [name for name in network.machines if name.startswith("db-")]
        self.log = folder / "log"
        self._passwords = {
            word: KNOWN.note_credential(secrets.token_hex(16), f"{word} of Patroni")
            for word in ("SUPERUSER-PASSWORD", "REPLICATION-PASSWORD", "DATABASE-PASSWORD")
        }
        self._running: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """As the page has it."""
        (line,) = re.findall(r"^JOBPLANE_DATABASE_URL=(.*)$", PAGE.read_text(), re.MULTILINE)
        return self._ours(line)

    def _ours(self, text: str) -> str:
        for at, name in enumerate(self.names):
            text = text.replace(f"192.0.2.{21 + at}:", f"{self._network.address(name)}:")
        for word, password in self._passwords.items():
            text = text.replace(word, password)
        return text

    def _start(self) -> None:
        for program in ("etcd", "setpriv", PYTHON):
            if shutil.which(program) is None:
                lacking(f"no {program}: apt-get install etcd-server util-linux")
        os.chmod(self.folder, 0o755)
        self._start_etcd()
        self._binaries = asyncio.run(find()).folder
        for name in self.names:
            self.start(name)
        until(self.is_whole, READY_SECONDS, f"one leads and the others follow; see {self.log}")
        asyncio.run(self._make_database())

    def _start_etcd(self) -> None:
        at, peers = f"{self._network.host}:{free_port()}", f"http://{self._network.host}:{free_port()}"
        self._etcd = at
        client = f"http://{at}"
        urls = ("--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peers)
        peer = ("--initial-advertise-peer-urls", peers, "--initial-cluster", f"default={peers}")
        self._launch("etcd", "etcd", "--data-dir", str(self.folder / "etcd"), *urls, *peer)

    def _launch(self, name: str, *command: str) -> None:
        with self.log.open("ab") as log:
            env = {"PATH": os.environ["PATH"], "HOME": str(self.folder / name)}
            self._running[name] = subprocess.Popen(command, stdout=log, stderr=log, cwd="/", env=env)

    def start(self, name: str) -> None:
        """Start Patroni on a machine, for the first time or again."""
        home, address = self.folder / name, self._network.address(name)
        home.mkdir(mode=0o700, exist_ok=True)
        shutil.chown(home, ACCOUNT, ACCOUNT)
        etcd = "192.0.2.31:2379,192.0.2.32:2379,192.0.2.33:2379"
        text = page_file(
            "patroni.yaml",
            **{"name: db-1": f"name: {name}", "192.0.2.21:": f"{address}:", etcd: self._etcd},
            **{"/var/lib/postgresql/jobplane": str(home / "data"), "/usr/lib/postgresql/15/bin": str(self._binaries)},
            **{"/var/run/postgresql": str(home)},
        )
        path = home / "patroni.yaml"
        path.write_text(self._ours(text))
        shutil.chown(path, ACCOUNT, ACCOUNT)
        path.chmod(0o600)
        as_user = ("setpriv", f"--reuid={ACCOUNT}", f"--regid={ACCOUNT}", "--clear-groups", "--pdeathsig=TERM")
        program = python_with("patroni", *REQUIREMENTS, base=PYTHON).with_name("patroni")
        self._launch(name, *self._network.into(name), *as_user, str(program), str(path))

    def members(self) -> list[dict[str, Any]]:
        """What Patroni says of all, asked of whichever machine answers; nothing if none does."""
        for name in self.names:
            with (
                suppress(OSError),
                urllib.request.urlopen(f"http://{self._network.address(name)}:8008/cluster", timeout=2) as answer,
            ):
                found: list[dict[str, Any]] = json.load(answer)["members"]
                return found
        return []

    def primary(self) -> str:
        """The machine that leads; empty if none is known to."""
        return next((each["name"] for each in self.members() if each["role"] in _LEADING), "")

    def is_whole(self) -> bool:
        """Return whether one leads, all others stream from it, and one of these is synchronous."""
        states = {each["name"]: (each["role"], each["state"]) for each in self.members()}
        roles = [role for role, _ in states.values()]
        streaming = sum(state == "streaming" for _, state in states.values())
        return len(states) == len(self.names) and streaming == len(states) - 1 and "sync_standby" in roles

    async def _make_database(self) -> None:
        superuser = self.url.replace(
            "jobplane:" + self._passwords["DATABASE-PASSWORD"], "postgres:" + self._passwords["SUPERUSER-PASSWORD"]
        )
        (block,) = re.findall(r"^```sql\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
        connection = await asyncpg.connect(superuser.replace("/jobplane?", "/postgres?"))
        try:
            for statement in self._ours(block).strip().splitlines():
                await connection.execute(statement)
        finally:
            await connection.close()

    def kill(self, name: str) -> None:
        """Kill Patroni and its Postgres, as if the machine were switched off; its network still refuses connections."""
        self._running[name].kill()
        self._running.pop(name).wait()
        postmaster = int((self.folder / name / "data" / "postmaster.pid").read_text().split()[0])
        processes.kill(postmaster)

    def signal(self, name: str, number: signal.Signals) -> None:
        """Send it to Patroni and all of its Postgres: SIGSTOP is a machine whose disk hangs, while the kernel acknowledges."""
        for each in processes.naming(f"{self.folder}/{name}/"):
            with suppress(ProcessLookupError):
                os.kill(each.pid, number)

    def stop(self) -> None:
        for name in self.names:
            self.signal(name, signal.SIGCONT)
        for name in [*self.names, "etcd"]:
            if name in self._running:
                self._running[name].terminate()
                try:
                    self._running[name].wait(30)
                except subprocess.TimeoutExpired:
                    self._running[name].kill()
                    self._running[name].wait()
        for each in processes.naming(f"{self.folder}/"):
            with suppress(ProcessLookupError):
                os.kill(each.pid, signal.SIGKILL)
        until(lambda: not processes.naming(f"{self.folder}/"), 20, f"nothing is left in {self.folder}")
