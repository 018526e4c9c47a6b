"""Container engines for tests: each with folders, sockets and a network of its own, and gone without a trace at the end.

Where an engine is missing its tests are skipped, but fail on machines that have promised to have everything.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from tests.needs import lacking
from tests.runtimes.images import BUSYBOX, IMAGE, PAUSE, built, pause, write_image

STARTED_WITHIN = 30  # seconds
PLUGINS = Path("/usr/lib/cni")
RESULTS = Path("/var/lib/cni/results")  # what the plugins remember of the networks that they made
CONFIG = """
version = 2
root = "{folder}/root"
state = "{folder}/state"
[grpc]
  address = "{folder}/containerd.sock"
[ttrpc]
  address = "{folder}/containerd.ttrpc"
[plugins]
  [plugins."io.containerd.grpc.v1.cri"]
    sandbox_image = "{pause}"
    restrict_oom_score_adj = true
    netns_mounts_under_state_dir = true
    stream_server_address = "127.0.0.1"
    stream_server_port = "0"
    [plugins."io.containerd.grpc.v1.cri".cni]
      bin_dir = "{plugins}"
      conf_dir = "{folder}/cni"
  [plugins."io.containerd.internal.v1.opt"]
    path = "{folder}/opt"
"""


PROGRAMS = (
    "containerd",
    "ctr",
    "runc",
    "ip",
    "iptables",
    PLUGINS / "bridge",
    PLUGINS / "portmap",
    PLUGINS / "loopback",
    BUSYBOX,
)
PORTS = {"type": "portmap", "capabilities": {"portMappings": True}}


def missing(*programs: str | Path) -> list[str]:
    """Programs that this machine lacks, and the rights of root."""
    found = [str(each) for each in programs if not shutil.which(each)]
    return found if os.geteuid() == 0 else [*found, "root's rights"]


def needed(*programs: str | Path) -> None:
    """Skips the test, or fails it in CI, unless this machine has these programs and we are root."""
    if found := missing(*programs):
        lacking(f"needs {', '.join(found)}")


class Containerd:
    """A containerd, which may be killed and started again. `endpoint`: where it is reached."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.endpoint = f"unix://{folder}/containerd.sock"
        self._process: subprocess.Popen[bytes] | None = None
        self.into: list[str] = []  # what its command begins with, to run elsewhere
        number = os.getpid() % 4096  # two at a time on one machine do not meet
        self._bridge = f"jptest{number}"
        self.subnet = f"10.{64 + number // 64}.{number % 64 * 4}"
        self._network(f"{self.subnet}.0/22")
        config = CONFIG.format(folder=folder, pause=PAUSE, plugins=PLUGINS)
        (folder / "config.toml").write_text(config, encoding="utf-8")

    def _network(self, subnet: str) -> None:
        addresses: dict[str, Any] = {
            "type": "host-local",
            "dataDir": f"{self.folder}/addresses",
            "ranges": [[{"subnet": subnet}]],
        }
        addresses["routes"] = [{"dst": "0.0.0.0/0"}]
        bridge: dict[str, Any] = {
            "type": "bridge",
            "bridge": self._bridge,
            "isGateway": True,
            "ipMasq": False,
            "ipam": addresses,
        }
        made = {"cniVersion": "0.4.0", "name": self._bridge, "plugins": [bridge, PORTS]}
        (self.folder / "cni").mkdir()
        (self.folder / "cni" / "10-test.conflist").write_text(json.dumps(made), encoding="utf-8")

    def start(self) -> None:
        with (self.folder / "log").open("ab") as log:
            command = [*self.into, "containerd", "-c", str(self.folder / "config.toml")]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + STARTED_WITHIN
        while self._ctr("plugins", "ls").returncode or "cri" not in self._ctr("plugins", "ls", "id==cri").stdout:
            assert time.monotonic() < until, (self.folder / "log").read_text(encoding="utf-8")[-2000:]
            time.sleep(0.05)

    def load(self) -> None:
        write_image(self.folder / "busybox.tar", IMAGE, built())
        write_image(self.folder / "pause.tar", PAUSE, pause())
        for name in ("busybox", "pause"):
            done = self._ctr("-n", "k8s.io", "images", "import", str(self.folder / f"{name}.tar"))
            assert done.returncode == 0, done.stderr

    def kill(self) -> None:
        """As a crash would. Containers go on."""
        assert self._process
        self._process.kill()
        self._process.wait()

    def ensure(self) -> None:
        """It runs, whatever a test did to it."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def status(self, container_id: str) -> bytes:
        """What it has noted down of how a container is."""
        return self._status(container_id).read_bytes()

    def forget_status(self, container_id: str, before: bytes | None = None) -> None:
        """As if it had been killed before it noted down how a container is, or how it is now."""
        if before is None:
            self._status(container_id).unlink()
        else:
            self._status(container_id).write_bytes(before)

    def _status(self, container_id: str) -> Path:
        return self.folder / "root/io.containerd.grpc.v1.cri/containers" / container_id / "status"

    def end_sandboxes(self) -> None:
        """Kills what holds pods' namespaces, as a crash of it would."""
        for line in self._ctr("-n", "k8s.io", "containers", "ls").stdout.splitlines():
            if PAUSE in line:
                self._ctr("-n", "k8s.io", "tasks", "kill", "-s", "KILL", line.split()[0])

    def traces(self) -> tuple[list[str], int]:
        """Mounts below its folder, and how many shims it has."""
        mounts = [line.split()[1] for line in Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()]
        return sorted(each for each in mounts if each.startswith(f"{self.folder}/")), len(self._shims())

    def containers(self) -> list[str]:
        """Sandboxes among them, and what runs of any."""
        found = self._ctr("-n", "k8s.io", "containers", "ls", "-q").stdout.split()
        return [*found, *self._ctr("-n", "k8s.io", "tasks", "ls", "-q").stdout.split()]

    def pods(self) -> list[str]:
        """Whatever it has of pods: sandboxes, containers, their folders, and addresses that are given out.

        Not what it was working on when it was killed.
        """
        found = self.containers()
        cri = "io.containerd.grpc.v1.cri"
        for folders in (
            f"root/{cri}/containers",
            f"root/{cri}/sandboxes",
            f"state/{cri}/containers",
            f"state/{cri}/sandboxes",
        ):
            found += map(str, self.folder.glob(f"{folders}/*"))
        found += map(str, self.folder.glob(f"addresses/{self._bridge}/[0-9]*"))
        for each in RESULTS.glob("*"):
            with contextlib.suppress(FileNotFoundError):  # somebody else's, just now
                found += [str(each)] if str(self.folder) in each.read_text(encoding="utf-8") else []
        return found

    def close(self) -> None:
        """Ends whatever is left, containers first: they would go on without an engine."""
        assert self._process
        for each in self._ctr("-n", "k8s.io", "tasks", "ls", "-q").stdout.split():
            self._ctr("-n", "k8s.io", "tasks", "kill", "-s", "KILL", "-a", each)
        for each in self._ctr("-n", "k8s.io", "tasks", "ls", "-q").stdout.split():
            self._ctr("-n", "k8s.io", "tasks", "rm", "-f", each)
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        for pid in self._shims():
            os.kill(pid, signal.SIGKILL)
        subprocess.run(["ip", "link", "delete", self._bridge], capture_output=True, check=False)
        for line in reversed(Path("/proc/self/mounts").read_text(encoding="utf-8").splitlines()):
            if line.split()[1].startswith(f"{self.folder}/"):
                subprocess.run(["umount", "-l", line.split()[1]], capture_output=True, check=False)

    def _shims(self) -> list[int]:
        """Known by the socket that they were told; those of an engine that was killed, too."""
        told, found = f"{self.folder}/containerd".encode(), []
        for path in Path("/proc").glob("[0-9]*/cmdline"):
            with contextlib.suppress(OSError):
                if told in path.read_bytes() and b"shim" in path.read_bytes():
                    found.append(int(path.parent.name))
        return found

    def _ctr(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = ["ctr", "-a", f"{self.folder}/containerd.sock", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False)


def containerd() -> Generator[Containerd, None, None]:
    """One that has the images of the tests."""
    needed(*PROGRAMS)
    with tempfile.TemporaryDirectory(prefix="jobplane-cri-", ignore_cleanup_errors=True) as folder:
        engine = Containerd(Path(folder))
        engine.start()
        try:
            engine.load()
            yield engine
        finally:
            engine.close()
