"""Embedded Postgres: a child of this process, for `jobplane up` and the tests: no port, no service to set up.

It runs over the distribution's programs or a wheel's, as root (giving root up) or not; ends when this process does,
even by kill -9; starts again after any kill of either. The data stays, in a folder that one process at a time owns.
"""

import asyncio
import os
import pwd
import re
import signal
import sys
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import IO
from urllib.parse import quote

from app.postgres import postgres_launch, postgres_password
from app.postgres.postgres_binaries import CACHE, Binaries, SetupError, copied, find
from app.postgres.postgres_folder import PORT, Account, Cluster, make_private

SETTINGS = {
    "max_connections": "60",
    "shared_buffers": "64MB",
    "min_wal_size": "80MB",
    "max_wal_size": "512MB",
    "max_parallel_workers_per_gather": "0",  # Docker's /dev/shm is 64 MB
    "max_logical_replication_workers": "0",  # their launcher would be a process that does nothing
    "jit": "off",
    "idle_in_transaction_session_timeout": "30s",
    "log_checkpoints": "off",
    "log_line_prefix": "%m [%p] ",
    "log_timezone": "UTC",
    "timezone": "UTC",
}
_FIXED = {
    "listen_addresses": "",
    "port": str(PORT),
    "unix_socket_permissions": "0700",
    "logging_collector": "off",
    "fsync": "on",
}
_START_SECONDS = 120  # crash recovery included
_ENDINGS = ((signal.SIGINT, 60), (signal.SIGQUIT, 10))  # fast, then immediate; never SIGKILL, which leaves backends
_STILL_HELD = ("pre-existing shared memory block", 'lock file "postmaster.pid" already exists')


class Postgres:
    """One server on one data folder. A supervisor awaits `wait()` and calls `start()` again.

    The thread that calls `start()` has to live as long as the server: Linux takes its end for the parent's.
    """

    def __init__(
        self,
        data_dir: Path,
        *,
        settings: Mapping[str, str] | None = None,
        environ: Mapping[str, str] = os.environ,
        cache: Path = CACHE,
    ) -> None:
        self._cluster = Cluster(data_dir.resolve())
        self._settings = {**SETTINGS, **(settings or {}), **_FIXED}
        self._environ = environ
        self._cache = cache
        self._binaries: Binaries | None = None
        self._account = Account(-1, -1)
        self._lock: IO[str] | None = None
        self._process: asyncio.subprocess.Process | None = None

    @property
    def dsn(self) -> str:
        """For asyncpg as it is; for SQLAlchemy with `+asyncpg` after `postgresql`."""
        folder, passfile = self._cluster.socket_folder(), quote(str(self._cluster.passfile))
        return f"postgresql://postgres@/postgres?host={folder}&port={PORT}&passfile={passfile}"

    @property
    def pid(self) -> int | None:
        return self._process.pid if self._process else None

    @property
    def returncode(self) -> int | None:
        """None while it runs, and before the first start."""
        return self._process.returncode if self._process else None

    def claim(self) -> None:
        """Own the folder from now on, until `stop`; `start` does it otherwise. Raises InUseError and other SetupErrors."""
        try:
            self._lock = self._lock or self._cluster.claim()
        except PermissionError as error:
            raise SetupError(_permission_text(Path(error.filename or self._cluster.root))) from error

    async def start(self) -> str:
        """The DSN of a server that accepts connections. Raises SetupError; then nothing runs and nothing is held."""
        if self._process and self._process.returncode is None:
            return self.dsn
        try:
            self.claim()
            await self._take_over()
            await self._prepare()
            async with asyncio.timeout(_START_SECONDS):
                await self._set_password()
                await self._run()
        except BaseException as error:
            await self.stop()
            match error:
                case TimeoutError():
                    raise SetupError(f"Postgres is not ready in time, see {self._cluster.log}") from error
                case PermissionError():
                    raise SetupError(_permission_text(Path(error.filename or self._cluster.root))) from error
            raise
        return self.dsn

    async def wait(self) -> int:
        """The exit code, once it has ended for whatever reason."""
        if self._process is None:
            raise RuntimeError("never started")
        return await self._process.wait()

    async def stop(self) -> None:
        """A clean end, with a checkpoint. Harmless if it has ended, or never was."""
        if self._process and self._process.returncode is None:
            await _end(self._process.send_signal, self._process.wait)
        if self._cluster.socket_folder() != self._cluster.data:
            with suppress(OSError):
                self._cluster.socket_folder().rmdir()
        if self._lock:
            self._lock.close()
            self._lock = None

    async def _take_over(self) -> None:
        """Ends a postmaster that outlived the process that owned it: the next is our child, with our settings."""
        pid = self._cluster.postmaster()
        if pid is None:
            return

        async def wait_until_gone() -> None:
            while self._cluster.postmaster() == pid:  # noqa: ASYNC110 not our child: nothing tells of its end
                await asyncio.sleep(0.02)

        await _end(partial(os.kill, pid), wait_until_gone)

    async def _prepare(self) -> None:
        self._cluster.trim_log()
        self._account = self._cluster.account()
        self._binaries = await find(self._cluster.major(), self._environ)
        if self._account.uid >= 0 and await self._check() == postgres_launch.NOT_EXECUTABLE:
            self._binaries = await asyncio.to_thread(copied, self._binaries, self._cache)
        if not self._cluster.is_ready_made:
            await self._initialise()
        if self._cluster.socket_folder() != self._cluster.data:
            make_private(self._cluster.socket_folder(), self._account)

    async def _check(self) -> int:
        """Return whether the account may run the programs at all."""
        process = await self._launch(self._cluster.root, "postgres", "--version")
        return await process.wait()

    async def _initialise(self) -> None:
        """Beside the final name, and renamed: a killed initdb never looks like a cluster."""
        _require_name()
        since = self._log_size()
        fresh = self._cluster.fresh()
        process = await self._launch(
            fresh, "initdb", "-D", str(fresh), "-U", "postgres", "-A", "reject", "-E", "UTF8", "--locale=C"
        )
        try:
            if await process.wait():
                raise self._setup_error("initdb failed", since)
        except BaseException:
            if process.returncode is None:
                process.terminate()
                await process.wait()
            raise
        fresh.rename(self._cluster.data)

    async def _set_password(self) -> None:
        """Set it in a server that serves nobody else, unless the cluster asks for it already. A kill between leaves it to do."""
        password = postgres_password.ensure(self._cluster, self._account)
        if postgres_password.is_set(self._cluster, password):
            return
        if self._cluster.is_standby:
            raise SetupError(
                f"{self._cluster.data} is a standby: copy the primary's pgpass to {self._cluster.passfile}"
            )
        while not await self._execute_alone(postgres_password.statement(password)):  # noqa: ASYNC110 as in `_run`
            await asyncio.sleep(0.05)
        postgres_password.demand(self._cluster, password, self._account)

    async def _execute_alone(self, statement: str) -> bool:
        """False if an earlier server still holds the data. Raises SetupError."""
        since = self._log_size()
        self._cluster.sweep()
        single = ("--single", "-j", "-D", str(self._cluster.data), "postgres")
        process = await self._launch(self._cluster.data, "postgres", *single, stdin=asyncio.subprocess.PIPE)
        try:
            await process.communicate(f"{statement}\n".encode())
        except BaseException:
            if process.returncode is None:
                process.terminate()
                await process.wait()
            raise
        said = self._read_log(since)
        if process.returncode and any(each in said for each in _STILL_HELD):
            return False
        if process.returncode or re.search("ERROR|FATAL|PANIC", said):
            raise self._setup_error("cannot set the password of Postgres", since)
        return True

    async def _run(self) -> None:
        while True:
            since = self._log_size()
            self._cluster.sweep()
            self._process = await self._launch(self._cluster.data, "postgres", *self._arguments())
            while self._process.returncode is None:
                if self._cluster.is_ready(self._process.pid):
                    return
                await asyncio.sleep(0.02)
            if not any(each in self._read_log(since) for each in _STILL_HELD):
                raise self._setup_error(f"Postgres ended with {self._process.returncode}", since)
            await asyncio.sleep(0.05)  # a backend outlives a killed postmaster for as long as its statement computes

    def _arguments(self) -> list[str]:
        data = str(self._cluster.data)
        pairs = [f"{name}={value}" for name, value in self._settings.items()]
        options = [part for pair in (*pairs, self._cluster.mark) for part in ("-c", pair)]
        return ["-D", data, "-k", str(self._cluster.socket_folder()), *options]

    async def _launch(
        self, folder: Path, program: str, *arguments: str, stdin: int = asyncio.subprocess.DEVNULL
    ) -> asyncio.subprocess.Process:
        if self._binaries is None:
            raise RuntimeError("no binaries yet")
        script = [
            sys.executable,
            "-I",
            "-S",
            postgres_launch.__file__,
            str(os.getpid()),
            *map(str, self._account),
            str(folder),
        ]
        with self._cluster.log.open("ab") as log:
            return await asyncio.create_subprocess_exec(
                *script,
                str(self._binaries.folder / program),
                *arguments,
                stdin=stdin,
                stdout=log,
                stderr=log,
                env=_environment(self._environ),
                start_new_session=True,  # Ctrl-C is for us alone: clients end before the database
            )

    def _log_size(self) -> int:
        return self._cluster.log.stat().st_size if self._cluster.log.exists() else 0

    def _read_log(self, since: int) -> str:
        with self._cluster.log.open("rb") as log:
            log.seek(since)
            return log.read().decode(errors="replace")

    def _setup_error(self, what: str, since: int) -> SetupError:
        lines = self._read_log(since).strip().splitlines() or ["it said nothing"]
        cause = next((line for line in lines if re.search("FATAL|PANIC|error", line)), lines[-1])
        return SetupError(f"{what}, see {self._cluster.log}: {cause}")


def _environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Little: PG* variables would change the server, and our own hold secrets that backends need not see."""
    kept = {name: environ[name] for name in ("PATH", "LD_LIBRARY_PATH", "TMPDIR") if name in environ}
    return {"PATH": os.defpath, **kept, "LC_ALL": "C"}


def _permission_text(path: Path) -> str:
    """Names the owner of the path, or of the first folder above it that this user may look at."""
    for each in (path, *path.parents):
        with suppress(OSError):
            owner = f"{each} is owned by uid {each.stat().st_uid}"
            return f"user {os.geteuid()} cannot use {path} ({owner}): pass another --data-dir, or fix its owner"
    return f"user {os.geteuid()} cannot use {path}: pass another --data-dir"


def _require_name() -> None:
    """initdb insists on it; the server does not."""
    try:
        pwd.getpwuid(os.geteuid())
    except KeyError:
        raise SetupError(
            f"user {os.geteuid()} has no name here, without which initdb fails: give --database-url"
        ) from None


async def _end(send: Callable[[int], None], ended: Callable[[], Awaitable[object]]) -> None:
    for number, seconds in _ENDINGS:
        with suppress(ProcessLookupError, TimeoutError):
            send(number)
            async with asyncio.timeout(seconds):
                await ended()
            return
    await asyncio.wait_for(ended(), 1)
