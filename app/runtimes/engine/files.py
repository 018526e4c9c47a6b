"""Files of the runtimes with engines, `<root>/<pod uid>/<container>/<attempt>.*`, for the engine and for themselves.

.log        the container's output, if the engine takes a path for it
.message    its termination message, mounted into it
.begun      exists once the engine was asked to start it
.void       exists once that failed without a start, and the container has to be made anew
.exit       its exit code, if an event reported it before the engine had noted it down; its time is that of the event
.failed     the engine's message if it could not be started
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from app.runtimes.base import ContainerKey
from app.runtimes.process.files import check_name

MESSAGE_LIMIT = 4096  # bytes, the last ones


class Files:
    """All pods'. Only the engine writes logs here, and a container nothing but its message."""

    def __init__(self, root: Path) -> None:
        self._root = self.root = root.resolve()
        self._root.mkdir(mode=0o700, parents=True, exist_ok=True)

    def pod(self, pod_uid: str) -> Path:
        return self._root / check_name(pod_uid)

    def log(self, key: ContainerKey) -> Path:
        return self._path(key, "log")

    def message(self, key: ContainerKey) -> Path:
        return self._path(key, "message")

    def make_pod(self, pod_uid: str) -> None:
        self.pod(pod_uid).mkdir(mode=0o700, exist_ok=True)

    def make(self, key: ContainerKey) -> str:
        """Prepares the files of a container; its log's path below the pod's."""
        log, message = self.log(key), self.message(key)
        log.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        log.touch(mode=0o640)
        message.touch()
        message.chmod(0o666)  # any user may write it
        return str(log.relative_to(self.pod(key.pod_uid)))

    def termination_message(self, key: ContainerKey) -> str:
        with suppress(OSError), self.message(key).open("rb") as file:
            file.seek(max(0, os.fstat(file.fileno()).st_size - MESSAGE_LIMIT))
            return file.read(MESSAGE_LIMIT).decode(errors="replace")
        return ""

    def fail(self, key: ContainerKey, words: str) -> None:
        self._path(key, "failed").write_text(words, encoding="utf-8")

    def failure(self, key: ContainerKey) -> str:
        with suppress(OSError):
            return self._path(key, "failed").read_text(encoding="utf-8")
        return ""

    def begin(self, key: ContainerKey) -> None:
        self._path(key, "exit").unlink(missing_ok=True)  # of a start that came to nothing
        self._path(key, "begun").touch()

    def has_begun(self, key: ContainerKey) -> bool:
        return self._path(key, "begun").exists()

    def begun_at(self, key: ContainerKey) -> float:
        """As a file's time; 0 if it has not."""
        return self._time(key, "begun")

    def make_void(self, key: ContainerKey) -> None:
        self._path(key, "void").touch()

    def is_void(self, key: ContainerKey) -> bool:
        return self._path(key, "void").exists()

    def forget_start(self, key: ContainerKey) -> None:
        """It came to nothing, and is made anew."""
        for kind in ("begun", "failed", "void", "exit"):
            self._path(key, kind).unlink(missing_ok=True)

    def write_exit(self, key: ContainerKey, code: int | None, at: float | None = None) -> None:
        """Keep a reported end. `code` is None if it was not reported; `at`: as a file's time, if not now."""
        new = self._path(key, "exit.new")
        with suppress(OSError):  # the pod is gone, or the disk full
            new.write_text("" if code is None else f"{code}\n", encoding="ascii")
            if at is not None:
                os.utime(new, (at, at))
            new.replace(self._path(key, "exit"))

    def exit_reported_at(self, key: ContainerKey) -> float:
        """Time of its reported end, as a file's time; 0 if there is none."""
        return self._time(key, "exit")

    def exit_code(self, key: ContainerKey) -> int | None:
        with suppress(OSError, ValueError):
            return int(self._path(key, "exit").read_text(encoding="ascii"))
        return None

    def remove_run(self, key: ContainerKey) -> None:
        """What one run of a container has left."""
        for path in self.log(key).parent.glob(f"{int(key.attempt)}.*"):
            path.unlink(missing_ok=True)
        shutil.rmtree(self.log(key).with_suffix(""), ignore_errors=True)  # what was diverted

    def remove(self, pod_uid: str) -> None:
        shutil.rmtree(self.pod(pod_uid), ignore_errors=True)

    def pods(self) -> Iterator[str]:
        """Uids of pods that have something here."""
        yield from os.listdir(self._root)

    def _time(self, key: ContainerKey, kind: str) -> float:
        with suppress(OSError):
            return self._path(key, kind).stat().st_mtime
        return 0.0

    def _path(self, key: ContainerKey, kind: str) -> Path:
        return self.pod(key.pod_uid) / check_name(key.name) / f"{int(key.attempt)}.{kind}"
