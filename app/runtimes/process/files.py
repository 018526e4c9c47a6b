"""Folder of a container, `<root>/<pod uid>/<container>.<attempt>/`: state of the process runtime on disk.

Made by O_EXCL (mkdir) before anything runs, so that nothing runs twice. In it:

    spec.json     what was asked for, without the environment (it may hold secrets), and the identity of the shim;
                  written before the shim is let go: its time is the start
    run           what becomes of it, a line each: `go` once the shim was let go; pid and stat line of the container's
                  process, written by itself before it becomes the command; last `end` and the exit code, with
                  OOMKilled, if so: then the file's time is the end
    inside        bubblewrap's report of the command's pid, if there are mounts
    out, err      raw output, written by the container
    log, position stamped output and how far it goes (`logs`)
    message       the termination message
    verdict.json  the agent's finding where there is no such end: start errors, and ends that were not seen

These are few files, for each is made and deleted again with every pod. The container can write here, so all are opened
without following links, and only if they are ordinary ones.
"""

import errno
import fcntl
import os
import re
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from app.runtimes.base import ContainerKey
from app.runtimes.linux.process_table import Identity, Process, parse

_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC
_SEGMENT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,252}")


class FileContent(NamedTuple):
    """A file's end and the nanosecond of its last change."""

    data: bytes
    changed: int


def check_name(segment: str) -> str:
    """A pod uid or container name that is safe as a path segment. Names with a dot in front stay ours."""
    if not _SEGMENT.fullmatch(segment):
        raise ValueError(f"{segment!r} cannot name a folder")
    return segment


def open_ordinary(name: str, flags: int, folder: int) -> int:
    """Opens a file that is no link, pipe or device, and that has no second name."""
    fd = os.open(name, flags | _FILE, 0o600, dir_fd=folder)
    found = os.fstat(fd)
    if stat.S_ISREG(found.st_mode) and found.st_nlink == 1:
        return fd
    os.close(fd)
    raise OSError(errno.ELOOP, "not an ordinary file", name)


def lock(root: Path) -> int:
    """A descriptor that holds the root for one agent alone. Makes the root. RuntimeError if another has it."""
    root.mkdir(mode=0o700, parents=True, exist_ok=True)
    fd = os.open(root / ".lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(fd)
        raise RuntimeError(f"another agent uses {root}") from error
    return fd


class Folder:
    """The files of one run of one container."""

    def __init__(self, root: Path, key: ContainerKey) -> None:
        self.key = key
        self.root = root
        self._parts = (check_name(key.pod_uid), f"{check_name(key.name)}.{int(key.attempt)}")
        self.path = root.joinpath(*self._parts)
        self._fd = -1

    def create(self) -> bool:
        """The marker of a start; False if there was one. FileNotFoundError without a sandbox."""
        try:
            os.mkdir(self.path, 0o700)
        except FileExistsError:
            return False
        return True

    def was_let_go(self) -> bool:
        """Return whether it may have run, or was refused; if its shim is dead."""
        return any(os.path.lexists(self.path / name) for name in ("run", "verdict.json"))

    @contextmanager
    def open_folder(self) -> Iterator[int]:
        """A descriptor of the folder, reached without following a link below the root. Within, it stays the same."""
        if self._fd >= 0:
            yield self._fd
            return
        fd = os.open(self.root, _FOLDER & ~os.O_NOFOLLOW)
        try:
            for part in self._parts:
                inner = os.open(part, _FOLDER, dir_fd=fd)
                os.close(fd)
                fd = inner
            self._fd = fd
            yield fd
        finally:
            self._fd = -1
            os.close(fd)

    def write(self, name: str, data: bytes) -> None:
        """A new file; of two writers the first wins."""
        with suppress(FileExistsError), self.open_folder() as folder:
            fd = open_ordinary(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL, folder)
            try:
                os.write(fd, data)
            finally:
                os.close(fd)

    def read(self, name: str, limit: int = 4096) -> FileContent | None:
        """The last `limit` bytes of a file; None if there is none, or nothing ordinary."""
        try:
            with self.open_folder() as folder:
                fd = open_ordinary(name, os.O_RDONLY, folder)
                try:
                    found = os.fstat(fd)
                    return FileContent(os.pread(fd, limit, max(0, found.st_size - limit)), found.st_mtime_ns)
                finally:
                    os.close(fd)
        except OSError:
            return None

    def record(self, asked: dict[str, Any], shim: Identity) -> None:
        self.write("spec.json", msgspec.json.encode({"shim": shim, **asked}))

    def read_record(self) -> dict[str, Any]:
        """Return what `record` wrote; nothing if that cannot be read."""
        content = self.read("spec.json", 4 * 1024 * 1024)
        try:
            return dict(msgspec.json.decode(content.data)) if content else {}
        except (ValueError, TypeError):
            return {}

    def shim(self) -> Identity | None:
        """Return who watches over the container, or did."""
        try:
            return Identity(*self.read_record()["shim"])
        except (KeyError, TypeError):
            return None

    def cgroups(self) -> list[Path]:
        """Those that the container was put into."""
        found = self.read_record().get("cgroups")
        return [Path(each) for each in found if isinstance(each, str)] if isinstance(found, list) else []

    def main(self) -> Process | None:
        """The container's process as it was when it began."""
        content = self.read("run")
        lines = content.data.split(b"\n") if content else []
        try:
            return parse(lines[2]) if len(lines) > 3 else None  # a line is whole if another follows
        except ValueError:
            return None

    def end(self) -> FileContent | None:
        """The shim's record of the end, once it exists: the exit code, and why."""
        content = self.read("run")
        if content is None or not content.data.endswith(b"\n"):
            return None
        word, _, rest = content.data[:-1].rpartition(b"\n")[2].partition(b" ")
        return FileContent(rest, content.changed) if word == b"end" else None

    def inside(self) -> int | None:
        """The pid that bubblewrap gave the command: 0 while it is not recorded, None if bubblewrap was not used."""
        content = self.read("inside")
        if content is None:
            return None
        try:
            return int(msgspec.json.decode(content.data)["child-pid"])
        except (ValueError, KeyError, TypeError):
            return 0


def containers(root: Path, pod_uid: str) -> Iterator[ContainerKey]:
    """The containers that a pod's folder holds."""
    for each in _names(root / pod_uid):
        name, _, attempt = each.rpartition(".")
        if name and attempt.isdecimal():
            yield ContainerKey(pod_uid, name, int(attempt))


def pods(root: Path) -> list[str]:
    return _names(root)


def _names(folder: Path) -> list[str]:
    try:
        return [name for name in os.listdir(folder) if _SEGMENT.fullmatch(name)]
    except (FileNotFoundError, NotADirectoryError):
        return []
