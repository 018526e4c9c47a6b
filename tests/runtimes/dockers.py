"""Docker Engines for tests, each on a containerd of its own, with folders, a socket and a bridge of its own."""

import contextlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Protocol, TypeVar

import pytest

from app.runtimes.docker.config import PAUSE
from tests.runtimes.engines import STARTED_WITHIN, Containerd, needed
from tests.runtimes.images import BUSYBOX, IMAGE, Built, built, pause, write_image


class Engine(Protocol):
    def start(self) -> None: ...
    def load(self, name: str, image: Built) -> None: ...
    def close(self) -> None: ...


E = TypeVar("E", bound=Engine)
PROGRAMS = ("dockerd", "docker-proxy", "docker", "containerd", "ctr", "runc", "ip", BUSYBOX)


class Dockerd:
    """A dockerd with `live-restore`, which may be killed and started again. `endpoint`: where it is reached."""

    def __init__(self, folder: Path) -> None:
        self._below = Containerd(folder)
        self._folder = folder
        self.endpoint = f"unix://{folder}/docker.sock"
        self._process: subprocess.Popen[bytes] | None = None
        number = os.getpid() % 4096
        self.bridge = f"jpdock{number}"
        self._subnet = f"10.{128 + number // 64}.{number % 64 * 4}"  # not a containerd's of the same tests

    def start(self) -> None:
        if not Path(f"/sys/class/net/{self.bridge}").exists():
            for words in (
                ["link", "add", self.bridge, "type", "bridge"],
                ["address", "add", f"{self._subnet}.1/22", "dev", self.bridge],
                ["link", "set", self.bridge, "up"],
            ):
                subprocess.run(["ip", *words], check=True)
        self._below.ensure()
        # A killed one leaves it, and will not start while anybody, even a thread, has the number that is in it.
        (self._folder / "docker-pidfile").unlink(missing_ok=True)
        folders = [f"--{name}={self._folder}/docker-{name}" for name in ("data-root", "exec-root", "pidfile")]
        plain = [f"--{name}=false" for name in ("iptables", "ip6tables", "ip-forward", "ip-masq")]
        own = ["-H", self.endpoint, f"--containerd={self._folder}/containerd.sock", f"--bridge={self.bridge}"]
        with (self._folder / "docker-log").open("ab") as log:
            command = ["dockerd", "--live-restore", *own, *folders, *plain]
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)
        until = time.monotonic() + STARTED_WITHIN
        while self("version").returncode:
            assert time.monotonic() < until, (self._folder / "docker-log").read_text(encoding="utf-8")[-2000:]
            time.sleep(0.05)

    def load(self, name: str, image: Built) -> None:
        write_image(self._folder / "image.tar", name, image)
        done = self("load", "-i", str(self._folder / "image.tar"))
        assert done.returncode == 0, done.stderr

    def kill(self, *, with_containerd: bool = False) -> None:
        """As a crash would. Containers go on."""
        assert self._process
        self._process.kill()
        self._process.wait()
        if with_containerd:
            self._below.kill()

    def ensure(self) -> None:
        """It runs, whatever a test did to it."""
        if self._process is None or self._process.poll() is not None:
            self.start()

    def lose_end(self, id_: str) -> None:
        """Of a container that has ended; as if the engine had died after it heard that, and before it noted it down."""
        address = f"--address={self._folder}/containerd.sock"
        subprocess.run(
            ["ctr", address, "--namespace=moby", "tasks", "delete", "--force", id_], capture_output=True, check=False
        )

    def config(self, id_: str) -> Path:
        """What it has noted down of a container, and of how it is."""
        return self._folder / "docker-data-root/containers" / id_ / "config.v2.json"

    def end_sandboxes(self) -> None:
        """Kills what holds pods' namespaces, as a crash of it would."""
        for each in self("ps", "-q", "--filter", f"ancestor={PAUSE}").stdout.split():
            self("kill", each)

    def containers(self) -> list[str]:
        """Sandboxes among them, and what runs of any."""
        return self("ps", "-aq").stdout.split()

    def pods(self) -> list[str]:
        """Whatever it has of pods: containers, running or not, their folders, and ends of their networks."""
        folders = ("docker-data-root/containers/*", "docker-exec-root/containerd/*", "docker-exec-root/runtime-*/*/*")
        found = [str(path) for pattern in folders for path in self._folder.glob(pattern)]
        return [*self.containers(), *found, *self.ends()]

    def ends(self) -> list[str]:
        """Of pods' networks, at the bridge."""
        return os.listdir(f"/sys/class/net/{self.bridge}/brif")

    def traces(self) -> tuple[list[str], int]:
        """Mounts below its folder, and how many shims it has."""
        return self._below.traces()

    def close(self) -> None:
        assert self._process
        self.ensure()
        for each in self("ps", "-aq").stdout.split():
            self("rm", "-f", "-v", each)
        self._process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(10)
        self._process.kill()
        self._below.close()
        subprocess.run(["ip", "link", "delete", self.bridge], capture_output=True, check=False)

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(["docker", "-H", self.endpoint, *words], capture_output=True, text=True, check=False)


# In `make test-long`; the gate has containerd, and oci, which is the default.
ALL_ENGINES = "JOBPLANE_ENGINES" in os.environ


def dockerd() -> Generator[Dockerd, None, None]:
    """One that has the images of the tests."""
    if not ALL_ENGINES:
        pytest.skip("for long runs: JOBPLANE_ENGINES is not set")
    needed(*PROGRAMS)
    yield from loaded(Dockerd, "jobplane-docker-")


def loaded(make: Callable[[Path], E], prefix: str) -> Generator[E, None, None]:
    """An engine in a folder of its own, with the images of the tests."""
    with tempfile.TemporaryDirectory(prefix=prefix, ignore_cleanup_errors=True) as folder:
        engine = make(Path(folder))
        engine.start()
        try:
            engine.load(IMAGE, built())
            engine.load(PAUSE, pause())
            yield engine
        finally:
            engine.close()
