"""`jobplane up`: Postgres and the three processes of Jobplane, each started again when it ends, all ended together.

Kept small on purpose: it imports none of what its children do. The children end with it even if it is killed, because
they watch their parent; containers go on, as they should.
"""

import asyncio
import contextlib
import logging
import os
import secrets
import signal
import sys
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from app.settings import Settings
from app.store.binaries import SetupError
from app.store.embedded import Postgres

log = logging.getLogger(__name__)
_PAUSE_SECONDS = 0.2  # before a process that ended is started again; doubled while it keeps ending at once
_LONGEST_PAUSE = 5.0
_STEADY_SECONDS = 5.0
_PATIENCE = 12.0  # how long a child may take to end before it is killed
PARENT = "JOBPLANE_PARENT"


class Supervisor:
    """Owns the children of one `jobplane up`."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._stopping = asyncio.Event()
        self._postgres: Postgres | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def run(self) -> int:
        """Run until SIGINT or SIGTERM."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopping.set)
        self._settings.data_dir.mkdir(parents=True, exist_ok=True)
        for name in ("admin.token", "agent.token"):
            _secret(self._settings.data_dir / name)
        given = self._settings.database_url.get_secret_value()
        self._postgres = None if given else Postgres(self._settings.data_dir / "postgres")
        environment = self._environment(self._postgres.dsn if self._postgres else given)
        try:
            await self._run(environment)
        finally:
            self._stopping.set()
            # Postgres last: what ends before it may still have something to write.
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._postgres:
                await self._postgres.stop()
        return 0

    async def _run(self, environment: dict[str, str]) -> None:
        """The API starts beside Postgres, for most of its start is not the database's; the others when there is one."""
        first, *others = self._commands()
        self._begin(self._keep(*first, environment))
        if self._postgres:
            await self._postgres.start()
            self._begin(self._keep_postgres(self._postgres))
        for name, arguments in others:
            self._begin(self._keep(name, arguments, _without_database(environment) if name == "agent" else environment))
        await self._stopping.wait()
        log.info("stopping")

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    def _environment(self, dsn: str) -> dict[str, str]:
        """The children's: secrets travel by environment and file, never by command line, which everybody may read."""
        return {
            **os.environ,
            "JOBPLANE_DATABASE_URL": dsn,
            "JOBPLANE_DATA_DIR": str(self._settings.data_dir),
            "JOBPLANE_TLS": str(self._settings.tls),
            "JOBPLANE_SCORING_STRATEGY": self._settings.scoring_strategy,
            "JOBPLANE_FEATURE_GATES": self._settings.feature_gates,
            "JOBPLANE_DEVICES": self._settings.devices,
            "JOBPLANE_TLS_NAME": "",  # it is our own, on this machine
            PARENT: str(os.getpid()),
        }

    def _commands(self) -> list[tuple[str, list[str]]]:
        settings, data = self._settings, self._settings.data_dir
        authority = ["--ca-file", str(data / "tls" / "ca.crt")]
        agent = ["agent", "--server", settings.url(), "--token-file", str(data / "agent.token")]
        agent += [*authority, "--runtime", settings.runtime, "--nodes", str(settings.nodes)]
        agent += ["--runtime-endpoint", settings.runtime_endpoint] if settings.runtime_endpoint else []
        return [
            ("api", ["api", "--host", settings.host, "--port", str(settings.port), "--migrate"]),
            ("controllers", ["controllers", *(authority if settings.tls else [])]),
            ("agent", agent + (["--node-name", settings.node_name] if settings.node_name else [])),
        ]

    async def _keep_postgres(self, postgres: Postgres) -> None:
        """Start Postgres again whenever it ends by itself."""
        while not self._stopping.is_set():
            ended = asyncio.ensure_future(postgres.wait())
            stopping = asyncio.ensure_future(self._stopping.wait())
            await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not ended.done():
                ended.cancel()
                return
            log.warning("Postgres ended with %s: starting it again", ended.result())
            await self._start_again(postgres)

    async def _start_again(self, postgres: Postgres) -> None:
        while not self._stopping.is_set():
            try:
                await postgres.start()
            except SetupError as error:
                log.error("Postgres does not start: %s", error)
                await self._pause(_LONGEST_PAUSE)
            else:
                return

    async def _pause(self, seconds: float) -> None:
        """Wait, but not beyond the moment when we stop."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _keep(self, name: str, arguments: Sequence[str], environment: dict[str, str]) -> None:
        """Run a child, and start it again whenever it ends, until we stop."""
        pause = _PAUSE_SECONDS
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            started = loop.time()
            try:
                child = await asyncio.create_subprocess_exec(
                    sys.executable, "-P", "-m", "app.cli", *arguments, env=environment
                )
            except OSError as error:  # no process or memory left, for now
                log.error("%s cannot be started: %s", name, error)
                await self._pause(_LONGEST_PAUSE)
                continue
            if await self._watched(child):
                return
            pause = _PAUSE_SECONDS if loop.time() - started > _STEADY_SECONDS else min(pause * 2, _LONGEST_PAUSE)
            if not self._stopping.is_set():  # Ctrl-C reaches children and us alike, in any order
                log.warning("%s ended with %s: starting it again", name, child.returncode)
            await self._pause(pause)

    async def _watched(self, child: asyncio.subprocess.Process) -> bool:
        """Wait for the child to end, or end it when we stop; tell whether we stop."""
        ended = asyncio.ensure_future(child.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if ended.done():
            return False
        child.terminate()
        try:
            await asyncio.wait_for(ended, _PATIENCE)
        except TimeoutError:
            child.kill()
            await child.wait()
        return True


def _without_database(environment: dict[str, str]) -> dict[str, str]:
    """The agent's: what it runs may be able to read it."""
    return {name: value for name, value in environment.items() if name != "JOBPLANE_DATABASE_URL"}


def _secret(path: Path) -> None:
    """A token that stays the same over restarts, readable by its owner only."""
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_urlsafe(32))
