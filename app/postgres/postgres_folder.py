"""Folder of an embedded Postgres: its layout, its owner, its lock. Called by `embedded_postgres`.

    lock           held by the process that owns the folder, whose id is in it
    postgres.log   with the one before it, postgres.log.1
    pgpass         the password of its user `postgres`
    cluster/       Postgres' own data folder
    cluster.init-* an initdb that has not finished

Synchronous and quick. Whatever is not certain to be ours is refused and left as it is.
"""

import fcntl
import hashlib
import os
import pwd
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple

from app.postgres.postgres_binaries import SetupError

PORT = 5432  # only part of the socket's name
_SOCKET = f".s.PGSQL.{PORT}"
_LONGEST = 100  # bytes of a socket's path: Linux takes 107, macOS 103
_LOG_LIMIT = 16 * 2**20
_OURS = re.compile(r"lock|\.?pgpass(\.new)?|postgres\.log(\.1)?|cluster\.init-.*")


class InUseError(SetupError):
    """Another process owns the folder; `pid` if it wrote it down."""

    def __init__(self, root: Path, pid: str) -> None:
        super().__init__(
            f"another process {f'({pid}) ' if pid else ''}runs Postgres in {root}: stop it, or name another folder"
        )
        self.pid = pid


class Account(NamedTuple):
    """Who runs Postgres. uid -1 is whoever we are."""

    uid: int
    gid: int


@dataclass(frozen=True)
class Cluster:
    """One data folder; `root` is absolute and without links."""

    root: Path

    @property
    def data(self) -> Path:
        return self.root / "cluster"

    @property
    def log(self) -> Path:
        return self.root / "postgres.log"

    @property
    def passfile(self) -> Path:
        return self.root / "pgpass"

    @property
    def is_standby(self) -> bool:
        return (self.data / "standby.signal").exists()

    @property
    def is_ready_made(self) -> bool:
        return (self.data / "PG_VERSION").exists()

    @property
    def mark(self) -> str:
        """A setting that does nothing but show in the list of processes whose postmaster it is."""
        return f"jobplane.cluster={self.data}"

    def major(self) -> int | None:
        """The version that wrote the data; None if there is none yet."""
        return int((self.data / "PG_VERSION").read_text()) if self.is_ready_made else None

    def claim(self) -> IO[str]:
        """The folder, made if need be, and the lock on it, held until the file is closed."""
        self._refuse_foreign()
        if not self.root.exists():
            self.root.mkdir(parents=True, mode=0o700)
            give(self.root, self.account())
        lock = (self.root / "lock").open("a+")
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            lock.seek(0)
            owner = lock.read().strip()
            lock.close()
            raise InUseError(self.root, owner) from None
        lock.truncate(0)
        lock.write(str(os.getpid()))
        lock.flush()
        return lock

    def _refuse_foreign(self) -> None:
        if self.is_ready_made or not self.root.exists():
            return
        present = [each.name for each in self.root.iterdir() if not _OURS.fullmatch(each.name)]
        if present == ["cluster"] and not any(self.data.iterdir()):
            present = []
        if present:
            raise SetupError(
                f"{self.root} is not empty and holds no data of Postgres ({min(present)}, ...): name another"
            )

    def account(self) -> Account:
        """Postgres refuses root: it runs as the data's owner, or at first as an account that every system has."""
        if os.geteuid() != 0:
            return Account(-1, -1)
        if self.is_ready_made:
            owner = self.data.stat()
            if owner.st_uid == 0:
                raise SetupError(
                    f"{self.data} belongs to root, as whom Postgres does not run: chown it to its old owner"
                )
            return Account(owner.st_uid, owner.st_gid)
        for name in ("postgres", "nobody"):
            try:
                entry = pwd.getpwnam(name)
            except KeyError:
                continue
            return Account(entry.pw_uid, entry.pw_gid)
        raise SetupError("root, and no account postgres or nobody to run Postgres as: run as another user")

    def fresh(self) -> Path:
        """An empty folder for initdb; what a killed one left is removed."""
        for old in self.root.glob("cluster.init-*"):
            shutil.rmtree(old)
        folder = Path(tempfile.mkdtemp(prefix="cluster.init-", dir=self.root))
        give(folder, self.account())
        return folder

    def socket_folder(self) -> Path:
        """The data folder; a short private one if that name is too long, or a DSN would split at its characters."""
        own = self.data / _SOCKET
        if len(os.fsencode(own)) <= _LONGEST and re.fullmatch(r"[\w./+-]+", str(own), re.ASCII):
            return self.data
        name = f"jobplane-{hashlib.sha256(os.fsencode(self.data)).hexdigest()[:16]}"
        folder = Path(tempfile.gettempdir()) / name
        return folder if len(os.fsencode(folder / _SOCKET)) <= _LONGEST else Path("/tmp") / name  # noqa: S108 made private

    def postmaster(self) -> int | None:
        """The process id of a live postmaster on this data. A zombie, or a reused process id, is none."""
        try:
            pid = int(self._pid_lines()[0])
        except (IndexError, ValueError):
            return None
        return pid if {str(self.data), self.mark} & set(_command_line(pid)) else None

    def is_ready(self, pid: int) -> bool:
        """Return whether this postmaster accepts connections, as it writes into its file; as a standby, such that only read."""
        lines = self._pid_lines()
        return len(lines) >= 8 and lines[0] == str(pid) and lines[7].strip() in ("ready", "standby")

    def _pid_lines(self) -> list[str]:
        try:
            return (self.data / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return []

    def sweep(self) -> None:
        """Removes what a killed postmaster left, for by now its process ids may be anybody's.

        Safe under the lock and without a postmaster; should a backend live on, Postgres finds it by its shared memory.
        """
        for stale in (self.data / "postmaster.pid", self.socket_folder() / f"{_SOCKET}.lock"):
            stale.unlink(missing_ok=True)

    def trim_log(self) -> None:
        if self.log.exists() and self.log.stat().st_size > _LOG_LIMIT:
            self.log.replace(self.log.with_name("postgres.log.1"))


def give(folder: Path, account: Account) -> None:
    if account.uid >= 0:
        os.chown(folder, *account)


def make_private(folder: Path, account: Account) -> None:
    """A folder in a place where others write too: ours alone, or an error."""
    uid = os.geteuid() if account.uid < 0 else account.uid
    try:
        folder.mkdir(mode=0o700)
        give(folder, account)
    except FileExistsError:
        found = folder.lstat()
        if not folder.is_dir() or folder.is_symlink() or found.st_uid != uid or found.st_mode & 0o077:
            raise SetupError(f"{folder}, the place for Postgres' socket, is somebody else's: remove it") from None


def _command_line(pid: int) -> list[str]:
    if Path("/proc/self").exists():
        try:
            return Path(f"/proc/{pid}/cmdline").read_text(errors="surrogateescape").split("\0")
        except OSError:
            return []
    shown = subprocess.run(["ps", "-ww", "-o", "args=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return shown.stdout.split()
