"""Supervisor of `jobplane up`: runs Postgres, API, controllers and agent; restarts each when it ends; stops all together.

A child that ends with a code of `PERMANENT` would end so again: it stops them all, and its line is printed last.

Kept small: it imports nothing that its children need. The children end with it even if it is killed, as they watch their
parent; containers keep running.
"""

import asyncio
import contextlib
import os
import secrets
import signal
import tempfile
from collections.abc import Coroutine, Sequence
from pathlib import Path
from typing import Any

from app.agent.config import AgentConfig
from app.main.agent_process import agent_command, hold
from app.main.cli_errors import LAST_WORDS, PERMANENT, CommandError, ConfigError
from app.main.cli_process import PARENT
from app.postgres.embedded_postgres import Postgres
from app.postgres.postgres_binaries import SetupError
from app.postgres.postgres_folder import InUseError
from app.settings import Settings, variable
from app.structured_logging import Logger
from jobplane.program import command

logger = Logger(__name__)
_PAUSE_SECONDS = 0.2  # before a process that ended soon is started again; doubled while it keeps ending so
_LONGEST_PAUSE = 5.0
_STEADY_SECONDS = 5.0
_LOOK_SECONDS = 2.0  # between looks at files that children have read
_PATIENCE = 12.0  # seconds for a child to end before it is killed
_NOT_FOR_AGENTS = frozenset(
    {"JOBPLANE_DATABASE_URL", "JOBPLANE_OTLP_HEADERS", "JOBPLANE_SECRETS_KEY_FILE", "JOBPLANE_SECRETS_KEY_COMMAND"}
)


class Supervisor:
    """Runs the children of one `jobplane up`."""

    def __init__(self, settings: Settings, agent: AgentConfig) -> None:
        self._settings, self._agent = settings, agent
        self._stopping = asyncio.Event()
        self._postgres: Postgres | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._failure = ""

    async def run(self) -> None:
        """Run until SIGINT or SIGTERM. Raises ConfigError, CommandError and SetupError, after all children have ended."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self._stopping.set)
        self._settings.data_dir.mkdir(
            mode=0o755, parents=True, exist_ok=True
        )  # whatever the umask: others may not write
        for name in ("admin.token", "agent.token"):
            _create_token(self._settings.data_dir / name)
        given = self._settings.database_url.get_secret_value()
        self._postgres = None if given else Postgres(self._settings.data_dir / "postgres")
        environment = self._environment(self._postgres.dsn if self._postgres else given)
        try:
            await self._run(environment)
        finally:
            self._stopping.set()
            # Postgres last: the others may still write to it.
            await asyncio.gather(*self._tasks, return_exceptions=True)
            if self._postgres:
                await self._postgres.stop()
        if self._failure:
            raise ConfigError(self._failure)

    async def _run(self, environment: dict[str, str]) -> None:
        """Start the API beside Postgres, as most of its start needs no database, and the others once Postgres runs."""
        first, *others = self._commands()
        if self._postgres:
            self._claim(self._postgres)
        self._start_task(self._supervise(*first, environment))
        if self._postgres:
            await self._postgres.start()
            self._start_task(self._supervise_postgres(self._postgres))
        for name, arguments in others:
            theirs = _without_database(environment) if name == "agent" else environment
            self._start_task(self._supervise(name, arguments, theirs, self._files_read_by(name)))
        await self._stopping.wait()
        logger.info("stopping")

    def _claim(self, postgres: Postgres) -> None:
        """Claim the folder before an API starts, which would overwrite the kubeconfig. Raises CommandError."""
        try:
            postgres.claim()
        except InUseError as error:
            data = self._settings.data_dir
            raise CommandError(
                f"`jobplane up`{f' (process {error.pid})' if error.pid else ''} already serves {data}: use `kubectl "
                f"--kubeconfig {data / 'kubeconfig'}`, stop it, or pass another --data-dir"
            ) from error

    def _start_task(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.append(asyncio.ensure_future(work))

    def _environment(self, dsn: str) -> dict[str, str]:
        """Environment of the children. It carries the secrets, as any user can read a command line."""
        return {
            **os.environ,
            "JOBPLANE_DATABASE_URL": dsn,
            "JOBPLANE_DATA_DIR": str(self._settings.data_dir),
            "JOBPLANE_TLS": str(self._settings.tls),
            "JOBPLANE_POD_CIDR": self._settings.pod_cidr,
            "JOBPLANE_SCORING_STRATEGY": self._settings.scoring_strategy,
            "JOBPLANE_FEATURE_GATES": self._settings.feature_gates,
            "JOBPLANE_DEVICES": self._settings.devices,
            "JOBPLANE_LOG_FORMAT": self._settings.log_format,
            "JOBPLANE_AGENT_NODES": ",".join(self._settings.own_nodes),
            "JOBPLANE_TLS_SAN": self._settings.tls_san,
            **self._oidc(),
            "JOBPLANE_METRICS_ADDRESS": "",  # each child has its own, as an argument
            "JOBPLANE_TLS_NAME": "",  # the API is on this machine
            **({"JOBPLANE_SECRETS_KEY_FILE": str(key_file)} if (key_file := self._settings.secrets_key_file) else {}),
            PARENT: str(os.getpid()),
        }

    def _oidc(self) -> dict[str, str]:
        """The settings of the identity provider that are given."""
        given = self._settings.model_dump(
            include={
                name for name in type(self._settings).model_fields if name.startswith(("oidc_", "authentication_"))
            }
        )
        return {variable(name): str(value) for name, value in given.items() if value}

    def _commands(self) -> list[tuple[str, list[str]]]:
        settings, data = self._settings, self._settings.data_dir
        authority = ["--ca-file", str(data / "tls" / "ca.crt")]
        metrics = ["--metrics-address", settings.metrics_address] if settings.metrics_address else []
        return [
            ("api", ["api", "--host", settings.host, "--port", str(settings.port), "--migrate"]),
            ("controllers", ["controllers", *(authority if settings.tls else []), *metrics]),
            # Only to be seen in lists of processes: `_agent` says all.
            ("agent", ["agent", "--data-dir", str(data), "--runtime", settings.runtime]),
        ]

    def _files_read_by(self, name: str) -> list[Path]:
        """Files that the child reads when it starts; it is restarted when one of them is replaced."""
        data = self._settings.data_dir
        token = [data / "agent.token"] if name == "agent" else []
        return [*token, *([data / "tls" / "ca.crt"] if self._settings.tls else [])]

    async def _supervise_postgres(self, postgres: Postgres) -> None:
        """Restart Postgres whenever it ends by itself."""
        while not self._stopping.is_set():
            ended = asyncio.ensure_future(postgres.wait())
            stopping = asyncio.ensure_future(self._stopping.wait())
            await asyncio.wait((ended, stopping), return_when=asyncio.FIRST_COMPLETED)
            stopping.cancel()
            if not ended.done():
                ended.cancel()
                return
            logger.warning("process ended; starting it again", process="postgres", exit_code=ended.result())
            await self._restart_postgres(postgres)

    async def _restart_postgres(self, postgres: Postgres) -> None:
        while not self._stopping.is_set():
            try:
                await postgres.start()
            except SetupError as error:
                logger.error("cannot start a process; retrying", process="postgres", error=error)
                await self._pause(_LONGEST_PAUSE)
            else:
                return

    async def _pause(self, seconds: float) -> None:
        """Wait, or return early if `up` stops."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._stopping.wait(), seconds)

    async def _supervise(
        self, name: str, arguments: Sequence[str], environment: dict[str, str], files: Sequence[Path] = ()
    ) -> None:
        """Run a child, and restart it whenever it ends, until `up` stops."""
        pause = 0.0
        loop = asyncio.get_running_loop()
        while not self._stopping.is_set():
            started = loop.time()
            code = await self._run_once(name, arguments, environment, files)
            if code in PERMANENT:
                self._stopping.set()
            if self._stopping.is_set():
                return
            pause = next_pause(pause, loop.time() - started)
            if code is not None:
                logger.warning("process ended; starting it again", process=name, exit_code=code)
            await self._pause(pause)

    async def _run_once(
        self, name: str, arguments: Sequence[str], environment: dict[str, str], files: Sequence[Path]
    ) -> int | None:
        """Run a child until it ends, a file is replaced, or `up` stops.

        Returns its exit code; None, after a log line, if a file was replaced or the child could not be started.
        """
        try:
            with tempfile.TemporaryFile() as last_words:
                child = await self._start(name, arguments, environment, last_words.fileno())
                if replaced := await self._wait_for_end(child, files):
                    logger.info(
                        "file of a process was replaced; restarting the process", process=name, path=str(replaced)
                    )
                    return None
                if child.returncode in PERMANENT and not self._stopping.is_set():
                    last_words.seek(0)
                    self._failure = (
                        last_words.read().decode()
                        or f"{name} ended with exit code {child.returncode}; see its message above"
                    )
                return child.returncode
        except OSError as error:  # no process, memory or disk is left, which may pass
            logger.error("cannot start a process; retrying", process=name, error=error)
            return None

    async def _start(
        self, name: str, arguments: Sequence[str], environment: dict[str, str], last_words: int
    ) -> asyncio.subprocess.Process:
        """Start a child. The agent gets its settings as they are: to read them once more costs as much as all its start."""
        env = {**environment, LAST_WORDS: str(last_words)}
        if name != "agent":
            program = [*command("app.main.cli"), *arguments]
            return await asyncio.create_subprocess_exec(*program, env=env, pass_fds=(last_words,))
        config = hold(self._agent)
        try:
            program = agent_command(config, arguments)
            return await asyncio.create_subprocess_exec(*program, env=env, pass_fds=(last_words, config))
        finally:
            os.close(config)

    async def _wait_for_end(self, child: asyncio.subprocess.Process, files: Sequence[Path]) -> Path | None:
        """Wait until the child ends; end it if `up` stops or a file is replaced. Returns the replaced file, if any."""
        ended = asyncio.ensure_future(child.wait())
        stopping = asyncio.ensure_future(self._stopping.wait())
        replaced = asyncio.ensure_future(_wait_for_replacement(files))
        await asyncio.wait((ended, stopping, replaced), return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        replaced.cancel()
        if ended.done():
            return None
        child.terminate()
        try:
            await asyncio.wait_for(ended, _PATIENCE)
        except TimeoutError:
            child.kill()
            await child.wait()
        return replaced.result() if replaced.done() and not replaced.cancelled() else None


def next_pause(before: float, lived: float) -> float:
    """Return how many seconds a process stays down that ended after `lived` seconds. `before`: the pause before its start."""
    if lived > _STEADY_SECONDS:
        return 0.0
    return min(max(2 * before, _PAUSE_SECONDS), _LONGEST_PAUSE)


async def _wait_for_replacement(files: Sequence[Path]) -> Path:
    """Wait until a file is replaced; return it. Files that appear later count from then on."""
    seen: dict[Path, tuple[int, int]] = {}
    while True:
        for file in files:
            with contextlib.suppress(OSError):
                found = file.stat()
                stamp = (found.st_ino, found.st_mtime_ns)
                if seen.setdefault(file, stamp) != stamp:
                    return file
        await asyncio.sleep(_LOOK_SECONDS)


def _without_database(environment: dict[str, str]) -> dict[str, str]:
    """The environment without secrets of other parts, for the agent: its containers may be able to read it."""
    return {name: value for name, value in environment.items() if name not in _NOT_FOR_AGENTS}


def _create_token(path: Path) -> None:
    """Create the file of a token, once, readable by its owner only; written atomically."""
    if path.exists() and path.stat().st_size:
        return
    fresh = path.with_name(f".{path.name}.new")
    fresh.unlink(missing_ok=True)
    with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        file.write(secrets.token_urlsafe(32))
    fresh.replace(path)
