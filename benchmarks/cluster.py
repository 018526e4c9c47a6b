"""A fresh `jobplane up` as a child, on a folder and a port of its own, for the length of one `async with`."""

import asyncio
import os
import shutil
import signal
import socket
import ssl
import subprocess
import tempfile
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from app.runtimes import RuntimeName
from benchmarks import processes
from benchmarks.wire import Client, RefusedError

START_SECONDS, START_SECONDS_OF_A_NODE = 120.0, 0.15  # on a machine with much else to do
STOP_SECONDS = 60.0
_POLL = 0.02
_NODES_A_SECOND = 2_000  # that are read to see whether all are ready: more would slow their registration
_QUIET = 0.03  # of one CPU


@dataclass
class Cluster:
    """A running service. `folder` is its data folder; `ready_after`: seconds from its start to /readyz."""

    folder: Path
    port: int
    pid: int
    tls: bool = True
    ready_after: float = 0.0

    @cached_property
    def client(self) -> Client:
        trust = ssl.create_default_context(cafile=str(self.folder / "tls" / "ca.crt")) if self.tls else None
        return Client(self.port, (self.folder / "admin.token").read_text().strip(), trust)

    def cpu(self) -> dict[str, float]:
        return processes.cpu(self.pid)

    def pid_of(self, role: str) -> int:
        return next(each.pid for each in processes.tree(self.pid) if each.role == role)

    async def spent_since(self, before: dict[str, float]) -> dict[str, float]:
        """CPU seconds by role, with one second more for what trails behind the last answer."""
        await asyncio.sleep(1.0)
        now = self.cpu()
        return {role: now[role] - before.get(role, 0.0) for role in now}

    async def settle(self, seconds: float) -> None:
        """Wait until it has done next to nothing for three seconds, at most `seconds`."""
        quiet, ends = 0, time.monotonic() + seconds
        while quiet < 3 and time.monotonic() < ends:
            before = sum(self.cpu().values())
            await asyncio.sleep(1.0)
            quiet = quiet + 1 if sum(self.cpu().values()) - before < _QUIET else 0

    def postgres_version(self) -> str:
        server = next((each for each in processes.tree(self.pid) if each.role == processes.POSTGRES), None)
        if server is None:
            return "not its own"
        program = os.readlink(f"/proc/{server.pid}/exe")
        return subprocess.run([program, "--version"], capture_output=True, text=True, check=False).stdout.strip()


@dataclass(frozen=True)
class Checkout:
    """A source tree with its .venv."""

    path: Path

    @property
    def program(self) -> Path:
        return self.path / ".venv" / "bin" / "jobplane"

    def commit(self) -> str:
        told = subprocess.run(
            ["git", "-C", str(self.path), "describe", "--always", "--dirty"],
            capture_output=True,
            text=True,
            check=False,
        )
        return told.stdout.strip() or "unknown"

    @asynccontextmanager
    async def up(
        self,
        runtime: RuntimeName = "simulated",
        nodes: int = 1,
        settle: float = 10.0,
        *,
        tls: bool = True,
        endpoint: str = "",
        environment: Mapping[str, str] = {},
    ) -> AsyncIterator[Cluster]:
        """Start it, wait until all of its nodes are ready and it idles, at most `settle` seconds; end it afterwards.

        environment: variables beside this process's, whose own JOBPLANE_* are left out.
        """
        folder = Path(tempfile.mkdtemp(prefix="jobplane-bench-"))
        began, kept = time.monotonic(), False
        child, port = await self._start(
            folder,
            runtime,
            nodes,
            [*([] if tls else ["--no-tls"]), *(["--runtime-endpoint", endpoint] if endpoint else [])],
            environment,
        )
        try:
            cluster = Cluster(folder / "data", port, child.pid, tls)
            async with asyncio.timeout(START_SECONDS + nodes * START_SECONDS_OF_A_NODE):
                await _ready(cluster, child)
                cluster.ready_after = time.monotonic() - began
                await _nodes_ready(cluster, nodes)
            await cluster.settle(settle)
            yield cluster
        except Exception as error:
            kept = True
            error.add_note(f"its folder and log are kept in {folder}")
            raise
        finally:
            await _end(child)
            if not kept:
                await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)

    async def _start(
        self, folder: Path, runtime: str, nodes: int, more: list[str], environment: Mapping[str, str]
    ) -> tuple[asyncio.subprocess.Process, int]:
        port = free_port()
        flags = ["--data-dir", folder / "data", "--port", str(port), "--runtime", runtime, "--nodes", str(nodes), *more]
        with (folder / "log").open("wb") as log:
            child = await asyncio.create_subprocess_exec(
                self.program,
                "up",
                *map(str, flags),
                cwd=self.path,  # its `python -m app.main.cli` finds the checkout that it belongs to
                env={name: value for name, value in os.environ.items() if not name.startswith("JOBPLANE_")}
                | dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C reaches us, and we end it
            )
        return child, port


def free_port() -> int:
    """A port of the loopback that nothing has."""
    with socket.socket() as each:
        each.bind(("127.0.0.1", 0))
        port: int = each.getsockname()[1]
        return port


async def _ready(cluster: Cluster, child: asyncio.subprocess.Process) -> None:
    while True:
        if child.returncode is not None:
            log = cluster.folder.parent / "log"
            raise RuntimeError(f"jobplane up ended with {child.returncode}, see {log}:\n{log.read_text()[-2000:]}")
        if await answers(cluster):
            return
        await asyncio.sleep(_POLL)


async def answers(cluster: Cluster) -> bool:
    """Whether its API is ready."""
    if cluster.tls and not (cluster.folder / "tls" / "ca.crt").exists():
        return False
    try:
        async with cluster.client.connection() as connection:
            await connection.get("/readyz")
    except (OSError, RefusedError):  # while it starts, no is not yet
        return False
    return True


async def _nodes_ready(cluster: Cluster, nodes: int) -> None:
    async with cluster.client.connection() as connection:
        while True:
            items = (await connection.read("/api/v1/nodes"))["items"]
            if sum(map(_is_ready, items)) >= nodes:
                return
            await asyncio.sleep(max(_POLL * 5, nodes / _NODES_A_SECOND))


def _is_ready(node: dict[str, dict[str, list[dict[str, str]]]]) -> bool:
    conditions = node.get("status", {}).get("conditions", [])
    return any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)


async def _end(child: asyncio.subprocess.Process) -> None:
    """As a user would; by force, with all that it has started, only if that does not help."""
    if child.returncode is not None:
        return
    started = [each.pid for each in processes.tree(child.pid)]
    child.send_signal(signal.SIGTERM)
    try:
        await asyncio.wait_for(child.wait(), STOP_SECONDS)
    except TimeoutError:
        for pid in started:
            _kill(pid)
        await child.wait()


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
