"""An operator's manager as a process of this machine: with a kubeconfig, a log, and its end."""

import os
import shutil
import signal
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from tests.e2e.cluster import Cluster, environment, until

READY_SECONDS = 120
_LINES = 60  # of its log, that a failure shows


class Manager:
    """A running one. `log`: what it has printed."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path) -> None:
        self._process, self.log = process, log

    def said(self) -> str:
        return self.log.read_text(errors="replace")

    def until_it_answers(self, url: str) -> None:
        """Wait for a probe of its own, such as /readyz."""
        until(lambda: self.is_running() and _answers(url), READY_SECONDS, f"{url} answers")

    def until_it_says(self, text: str) -> None:
        until(lambda: self.is_running() and text in self.said(), READY_SECONDS, f"it says {text}")

    def is_running(self) -> bool:
        code = self._process.poll()
        assert code is None, f"it has ended with {code}"
        return True


@contextmanager
def running(
    command: Sequence[object], cluster: Cluster, folder: Path, env: Mapping[str, str] | None = None
) -> Iterator[Manager]:
    """Start it, and stop it in the end. A failure meanwhile shows the end of its log."""
    log = folder / "manager.log"
    variables = {"KUBECONFIG": str(cluster.kubeconfig), "HOME": str(folder), **(env or {})}
    with log.open("wb") as out:
        process = subprocess.Popen(
            [str(each) for each in command],
            stdout=out,
            stderr=out,
            cwd=folder,
            env=environment(**variables),
            start_new_session=True,
        )
    manager = Manager(process, log)
    try:
        yield manager
        manager.is_running()
    except BaseException as error:
        error.add_note("\n".join(["its log ends:", *manager.said().splitlines()[-_LINES:]]))
        raise
    finally:
        _stop(process)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


def overlaid(folder: str, files: Mapping[str, Path], scratch: Path, command: Sequence[object]) -> list[object]:
    """A command that sees more files in a folder of the system than there are: copies, for it alone.

    Some managers read their certificates from paths that cannot be set, to which a Deployment mounts them.
    """
    upper, work = scratch / "upper", scratch / "work"
    work.mkdir()
    for name, file in files.items():
        (upper / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, upper / name)
    options = f"lowerdir={folder},upperdir={upper},workdir={work}"
    return _with_mounts(f'mount -t overlay overlay -o "{options}" {folder}', command)


def bound(folder: Path, place: str, command: Sequence[object]) -> list[object]:
    """A command that sees a folder at another place, for it alone. The place is made, and stays empty for others."""
    return _with_mounts(f"mkdir -p {place} && mount --bind {folder} {place}", command)


def _with_mounts(mount: str, command: Sequence[object]) -> list[object]:
    as_root = [] if os.getuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", *as_root, "sh", "-c", f'{mount} && exec "$@"', "sh", *command]
