"""One lab for each runtime: starts containers that behave as told, and waits for what becomes of them."""

import asyncio
import json
import os
import socket
import tempfile
import uuid
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.agent.network.pod_network import NetworkedRuntime
from app.runtimes import RuntimeName, make_runtime
from app.runtimes.base import (
    ContainerKey,
    ContainerSpec,
    ContainerStatus,
    Mount,
    Runtime,
    RuntimeInfo,
    Sandbox,
    SandboxSpec,
    Session,
)
from app.runtimes.process.runtime import ProcessRuntime
from tests.runtimes import dockers, engines, oci_images
from tests.runtimes.dockers import Dockerd
from tests.runtimes.engines import Containerd
from tests.runtimes.images import IMAGE

PATIENCE = 60  # seconds until a test gives up waiting


@dataclass(frozen=True)
class Behaviour:
    """What a container does: as a command, and as an annotation for runtimes that only pretend."""

    command: Sequence[str]
    simulate: dict[str, Any]


def script(text: str) -> Behaviour:
    """For runtimes that run commands."""
    return Behaviour(["sh", "-c", text], {})


# Starts $!, and goes on once that has a session of its own: before, it ends with the container's.
LEAVES_ITS_SESSION = 'setsid sleep 1000 & until [ "$(cut -d" " -f6 /proc/$!/stat)" = $! ]; do :; done; '


def exits(code: int) -> Behaviour:
    return Behaviour(["sh", "-c", f"exit {code}"], {"exitCode": code})


def says(text: str) -> Behaviour:
    return Behaviour(["printf", "%s\\n", text], {"log": text})


# The first process of a PID namespace is spared the signals that it does not ask for, hence the trap.
FOREVER = Behaviour(
    ["sh", "-c", "trap 'kill $!; exit 143' TERM; echo ready; sleep 1000 & wait"], {"log": "ready", "seconds": 1000}
)
STUBBORN = Behaviour(
    ["sh", "-c", "trap '' TERM; echo ready; exec sleep 1000"], {"log": "ready", "seconds": 1000, "ignoreTerm": True}
)
MISSING = Behaviour(["no-such-program"], {"startError": "no such program"})


def a_key(pod: str = "pod-1", name: str = "main", attempt: int = 0) -> ContainerKey:
    return ContainerKey(pod, name, attempt)


def raw(records: bytes, stream: bytes = b"stdout") -> bytes:
    """What the container wrote to a stream, from its log."""
    assert records == b"" or records.endswith(b"\n")
    fields = [line.split(b" ", 3) for line in records.split(b"\n")[:-1]]
    return b"".join(text + (b"\n" if kind == b"F" else b"") for _, of, kind, text in fields if of == stream)


@dataclass(frozen=True)
class Made:
    """All that makes a runtime, in this process or another.

    namespace_uid: of the namespace for which its pods are isolated.
    pod_cidr: of the node, for a runtime that an agent gives a network.
    """

    name: RuntimeName
    state: Path
    endpoint: str = ""
    node: str = "node"
    namespace_uid: str = ""
    pod_cidr: str = ""

    def __call__(self) -> Runtime:
        return make_runtime(self.name, self.state, _now, self.endpoint, self.node)


class Lab:
    """A runtime and what the tests do with it."""

    def __init__(self, make: Callable[[], Runtime]) -> None:
        self._make = make
        self._namespace_uid = make.namespace_uid if isinstance(make, Made) else ""
        self._pod_cidr = make.pod_cidr if isinstance(make, Made) else ""
        self.runtime = make()
        self.events = self.runtime.events()

    async def prepare(self) -> None:
        """As an agent does before the first pod."""
        if self._pod_cidr:
            assert isinstance(self.runtime, NetworkedRuntime)
            assert await self.runtime.use_pod_cidr(self._pod_cidr)

    async def sandbox(self, pod: str = "pod-1", does: Behaviour | None = None, **more: Any) -> Sandbox:
        annotations = {"jobplane.dev/simulate": json.dumps(does.simulate if does else {})}
        more = {"namespace_uid": self._namespace_uid, **more}
        return await self.runtime.run_sandbox(
            SandboxSpec(pod_uid=pod, namespace="default", name=pod, annotations=annotations, **more)
        )

    async def start(
        self, does: Behaviour, key: ContainerKey | None = None, *, pod: dict[str, Any] | None = None, **more: Any
    ) -> ContainerKey:
        """`pod`: what is particular about its sandbox."""
        key = key or a_key()
        await self.sandbox(key.pod_uid, does, **(pod or {}))
        spec = {"image": IMAGE, "env": {}, **more}
        await self.runtime.start_container(ContainerSpec(key=key, command=does.command, **spec))
        return key

    async def shared(self, folder: Path) -> tuple[Mount, ...]:
        """What lets a container see a folder of the host at the same path."""
        isolated = (await self.runtime.info()).images or self._namespace_uid
        return (Mount(source=folder, target=str(folder)),) if isolated else ()

    async def ended(self, key: ContainerKey) -> ContainerStatus:
        async with asyncio.timeout(PATIENCE):
            while True:
                status = await self.runtime.status(key)
                assert status is not None
                if status.state == "exited":
                    return status
                await anext(self.events)

    async def run(self, does: Behaviour, key: ContainerKey | None = None, **more: Any) -> ContainerStatus:
        return await self.ended(await self.start(does, key, **more))

    async def stop(self, key: ContainerKey, seconds: float) -> ContainerStatus:
        async with asyncio.timeout(PATIENCE):
            await self.runtime.stop_container(key, timedelta(seconds=seconds))
        return await self.ended(key)

    async def log(self, key: ContainerKey, limit: int = 65536) -> bytes:
        """All that there is of it."""
        found = b""
        while data := (await self.runtime.read_log(key, len(found), limit)).data:
            found += data
        return found

    async def logged(self, key: ContainerKey, text: bytes) -> bytes:
        """Waits until the log holds the text."""
        hints = self.runtime.log_events()
        async with asyncio.timeout(PATIENCE):
            while text not in (found := await self.log(key)):
                await anext(hints)
        return found

    async def restart(self) -> None:
        """As if the agent had been: a new runtime finds what the old one left."""
        await self.runtime.close()
        self.runtime = self._make()
        await self.prepare()
        self.events = self.runtime.events()

    async def close(self) -> None:
        found = {status.key.pod_uid for status in await self.runtime.list()}
        for uid in found | {sandbox.pod_uid for sandbox in await self.runtime.sandboxes()}:
            await removed(self.runtime, uid)
        await self.runtime.close()
        if self._pod_cidr:
            oci_images.remove_network(self._pod_cidr)


async def removed(runtime: Runtime, pod_uid: str) -> None:
    """As an agent does, which asks again while an engine is busy with what was broken off."""
    async with asyncio.timeout(PATIENCE):
        while True:
            try:
                await runtime.remove_sandbox(pod_uid)
            except ConnectionError:
                await asyncio.sleep(0.1)
            else:
                return


async def output_of(session: Session) -> dict[str, bytes]:
    """Everything that it writes, by stream."""
    found: dict[str, bytes] = {}
    async with asyncio.timeout(PATIENCE):
        async for stream, data in session.output():
            found[stream] = found.get(stream, b"") + data
    return found


def _now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture(scope="session")
def containerd() -> Iterator[Containerd]:
    yield from engines.containerd()


@pytest.fixture(scope="session")
def dockerd() -> Iterator[Dockerd]:
    yield from dockers.dockerd()


@pytest.fixture(scope="session")
def images_of_oci() -> Iterator[Path]:
    """A folder of images with that of the tests."""
    yield from oci_images.folder()


def _declared(name: RuntimeName) -> set[str]:
    """What a runtime without an engine can do on this machine."""

    async def ask() -> set[str]:
        with tempfile.TemporaryDirectory() as folder:
            runtime = make_runtime(name, Path(folder), _now)
            info = await runtime.info()
            await runtime.close()
            return {name for name, value in vars(info).items() if value is True}

    return asyncio.run(ask())


ENGINES: dict[str, str] = {"cri": "containerd", "docker": "dockerd"}  # their fixtures
OCI = {  # of root
    *("survives_agent", "mounts", "runs_commands", "images", "pod_network"),
    *("limits", "security", "seccomp", "terminals"),
}
ALL = {field.name for field in fields(RuntimeInfo) if field.type in (bool, "bool")} - {
    "host_programs",
    "rootless",
}  # of engines
ISOLATED = "process, isolated"  # pods of a namespace that is not privileged, as far as this machine can isolate them
CAPABILITIES: dict[str, set[str]] = {
    "process": _declared("process"),
    ISOLATED: _declared("process") - {"security"},  # they are who they are
    "oci": OCI if os.geteuid() == 0 or oci_images.missing() else _declared("oci"),
    "cri": ALL,
    **({"docker": ALL - {"handlers"}} if dockers.ALL_ENGINES else {}),
    "simulated": _declared("simulated"),
}


def pytest_configure(config: pytest.Config) -> None:
    for name in ("needs", "lacks"):
        config.addinivalue_line("markers", f"{name}(*capabilities): of runtimes, who declares this, or does not")
    config.addinivalue_line("markers", "of_engines: of runtimes, who drives an engine")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Nothing is skipped for what a runtime cannot do: the test does not exist for it."""
    if "made" in metafunc.fixturenames:
        marks = metafunc.definition.iter_markers
        needs, lacks = ({each for mark in marks(name) for each in mark.args} for name in ("needs", "lacks"))
        able = [name for name, can in CAPABILITIES.items() if needs <= can and not lacks & can]
        if any(marks("of_engines")):
            able = [name for name in able if name in ENGINES]
        metafunc.parametrize("made", able, indirect=True)


@pytest.fixture
def made(request: pytest.FixtureRequest, tmp_path: Path) -> Made:
    """How each runtime is made, in turn."""
    if request.param == ISOLATED:
        tmp_path.chmod(0o777)
        return Made("process", tmp_path / "state", namespace_uid=str(uuid.uuid4()))
    if fixture := ENGINES.get(request.param):
        endpoint = request.getfixturevalue(fixture).endpoint
        return Made(request.param, tmp_path / "state", endpoint, uuid.uuid4().hex)
    if request.param == "oci":
        images = str(request.getfixturevalue("images_of_oci"))
        return Made("oci", tmp_path / "state", images, pod_cidr=oci_images.pod_cidr() if os.geteuid() == 0 else "")
    return Made(request.param, tmp_path / "state")


@pytest.fixture
async def lab(made: Made) -> AsyncIterator[Lab]:
    """Every runtime in turn."""
    usual = (
        os.umask(0) if made.namespace_uid else os.umask(0o022)
    )  # what tests make for containers, their users can use
    lab = Lab(made)
    await lab.prepare()
    yield lab
    await lab.close()
    os.umask(usual)


@pytest.fixture
async def cri(containerd: Containerd, tmp_path: Path) -> AsyncIterator[Lab]:
    lab = Lab(Made("cri", tmp_path / "state", containerd.endpoint, uuid.uuid4().hex))
    yield lab
    await lab.close()


@pytest.fixture
async def docker(dockerd: Dockerd, tmp_path: Path) -> AsyncIterator[Lab]:
    lab = Lab(Made("docker", tmp_path / "state", dockerd.endpoint, uuid.uuid4().hex))
    yield lab
    await lab.close()


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Lab]:
    lab = Lab(lambda: ProcessRuntime(tmp_path / "state"))
    yield lab
    await lab.close()


@pytest.fixture
def unused_tcp_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the process runtime keeps its state."""
    return tmp_path / "state"
