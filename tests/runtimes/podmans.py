"""A Podman for tests, with folders, a socket and a network of its own, and gone without a trace at the end.

Only where JOBPLANE_PODMAN is set are its tests run (`make test-long` does, if there is a Podman): they take a minute.
"""

import contextlib
import json
import os
import resource
import signal
import subprocess
import time
from collections.abc import Generator
from pathlib import Path

import pytest

from tests.runtimes.dockers import loaded
from tests.runtimes.engines import PLUGINS, STARTED_WITHIN, needed
from tests.runtimes.images import BUSYBOX, Built, write_image

CONFIG = """
[containers]
default_ulimits = ["nofile={files}:{files}", "nproc={processes}:{processes}"]
[engine]
cgroup_manager = "cgroupfs"
events_logger = "file"
exit_command_delay = 1
lock_type = "file"
runtime = "runc"
[network]
network_backend = "cni"
"""
PROCESSES = 32768  # Podman lowers its own limit to this, and some machines do not let it give more to containers


class Podman:
    """Podman's service, which may be killed and started again. `endpoint`: where it is reached."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.endpoint = f"unix://{folder}/podman.sock"
        self._service: subprocess.Popen[bytes] | None = None
        number = os.getpid() % 4096
        self._bridge = f"jppod{number}"
        self._network(f"10.{192 + number // 64}.{number % 64 * 4}.0/22")  # no other engine's of the same tests
        files, processes = (resource.getrlimit(each)[1] for each in (resource.RLIMIT_NOFILE, resource.RLIMIT_NPROC))
        processes = PROCESSES if processes < 0 else min(PROCESSES, processes)
        (folder / "containers.conf").write_text(CONFIG.format(files=files, processes=processes), encoding="utf-8")
        self._env = {**os.environ, "CONTAINERS_CONF": str(folder / "containers.conf")}

    def _network(self, subnet: str) -> None:
        addresses = {"type": "host-local", "dataDir": f"{self._folder}/addresses", "ranges": [[{"subnet": subnet}]]}
        bridge = {"type": "bridge", "bridge": self._bridge, "isGateway": True, "ipam": addresses}
        made = {"cniVersion": "0.4.0", "name": "podman", "plugins": [bridge]}
        (self._folder / "networks").mkdir()
        (self._folder / "networks" / "10-test.conflist").write_text(json.dumps(made), encoding="utf-8")

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            command = ["podman", *self._own(), "system", "service", "--time=0", self.endpoint]
            self._service = subprocess.Popen(
                command, stdout=log, stderr=log, env=self._env, cwd=self._folder, start_new_session=True
            )
        until = time.monotonic() + STARTED_WITHIN
        while self("--remote", "--url", self.endpoint, "version").returncode:
            assert time.monotonic() < until, (self._folder / "log").read_text(encoding="utf-8")[-2000:]
            time.sleep(0.05)

    def load(self, name: str, image: Built) -> None:
        write_image(self._folder / "image.tar", name, image)
        done = self(*self._own(), "load", "-i", str(self._folder / "image.tar"))
        assert done.returncode == 0, done.stderr

    def kill(self) -> None:
        """As a crash would. Containers go on."""
        assert self._service
        self._service.kill()
        self._service.wait()

    def close(self) -> None:
        assert self._service
        for _ in range(2):  # what others depend on is not removed before them
            self(*self._own(), "rm", "--all", "--force", "--time=0", "--volumes")
        self._service.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._service.wait(10)
        self._service.kill()
        self._service.wait()
        for pid in self._monitors():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for line in reversed(Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()):
            if line.split()[1].startswith(f"{self._folder}/"):
                subprocess.run(["umount", "-l", line.split()[1]], capture_output=True, check=False)
        subprocess.run(["ip", "link", "delete", self._bridge], capture_output=True, check=False)

    def _monitors(self) -> list[int]:
        """Those of commands stay for minutes."""
        found = []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                words = path.read_bytes()
                if f"{self._folder}/".encode() in words and words.split(b"\0")[0].endswith(b"conmon"):
                    found.append(int(path.parent.name))
        return found

    def _own(self) -> list[str]:
        folders = {"root": "root", "runroot": "run", "tmpdir": "tmp", "network-config-dir": "networks"}
        return [*(f"--{name}={self._folder}/{each}" for name, each in folders.items()), "--storage-driver=overlay"]

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["podman", *words], capture_output=True, text=True, check=False, env=self._env)


def podman() -> Generator[Podman, None, None]:
    """One that has the images of the tests."""
    if not os.environ.get("JOBPLANE_PODMAN"):
        pytest.skip("for long runs: JOBPLANE_PODMAN is not set")
    needed("podman", "conmon", "runc", "ip", PLUGINS / "bridge", BUSYBOX)
    yield from loaded(Podman, "jobplane-podman-")
