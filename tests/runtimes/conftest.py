"""One lab for each runtime: starts containers that behave as told, and waits for what becomes of them."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from app.runtimes.base import ContainerKey, ContainerSpec, ContainerStatus, Runtime, SandboxSpec
from app.runtimes.log_format import HEAD
from app.runtimes.process import ProcessRuntime
from app.runtimes.simulated import SimulatedRuntime

PATIENCE = 20  # seconds until a test gives up waiting


@dataclass(frozen=True)
class Behaviour:
    """What a container does: as a command, and as an annotation for runtimes that only pretend."""

    command: Sequence[str]
    simulate: dict[str, Any]


def script(text: str) -> Behaviour:
    """For runtimes that run commands."""
    return Behaviour(["sh", "-c", text], {})


def exits(code: int) -> Behaviour:
    return Behaviour(["sh", "-c", f"exit {code}"], {"exitCode": code})


def says(text: str) -> Behaviour:
    return Behaviour(["printf", "%s\\n", text], {"log": text})


FOREVER = Behaviour(["sh", "-c", "echo ready; exec sleep 1000"], {"log": "ready", "seconds": 1000})
STUBBORN = Behaviour(
    ["sh", "-c", "trap '' TERM; echo ready; exec sleep 1000"], {"log": "ready", "seconds": 1000, "ignoreTerm": True}
)
MISSING = Behaviour(["no-such-program"], {"startError": "no such program"})


def a_key(pod: str = "pod-1", name: str = "main", attempt: int = 0) -> ContainerKey:
    return ContainerKey(pod, name, attempt)


def raw(records: bytes, stream: bytes = b"stdout") -> bytes:
    """What the container wrote to a stream, from its log."""
    assert records == b"" or records.endswith(b"\n")
    lines = [line for line in records.split(b"\n")[:-1] if line[HEAD - 9 : HEAD - 3] == stream]
    return b"".join(line[HEAD:] + (b"\n" if line[HEAD - 2 : HEAD] == b"F " else b"") for line in lines)


class Lab:
    """A runtime and what the tests do with it."""

    def __init__(self, make: Callable[[], Runtime]) -> None:
        self._make = make
        self.runtime = make()
        self.events = self.runtime.events()

    async def start(self, does: Behaviour, key: ContainerKey | None = None, **more: Any) -> ContainerKey:
        key = key or a_key()
        annotations = {"jobplane.dev/simulate": json.dumps(does.simulate)}
        await self.runtime.run_sandbox(
            SandboxSpec(pod_uid=key.pod_uid, namespace="default", name=key.pod_uid, annotations=annotations)
        )
        spec = {"image": "busybox", "env": {}, **more}
        await self.runtime.start_container(ContainerSpec(key=key, command=does.command, **spec))
        return key

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
        hints = self.runtime.logged()
        async with asyncio.timeout(PATIENCE):
            while text not in (found := await self.log(key)):
                await anext(hints)
        return found

    async def restart(self) -> None:
        """As if the agent had been: a new runtime finds what the old one left."""
        await self.runtime.close()
        self.runtime = self._make()
        self.events = self.runtime.events()

    async def close(self) -> None:
        for uid in {status.key.pod_uid for status in await self.runtime.list()}:
            await self.runtime.remove_sandbox(uid)
        await self.runtime.close()


def _now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture(params=["process", "simulated"])
async def lab(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Lab]:
    """Every runtime in turn."""
    made: dict[str, Callable[[], Runtime]] = {
        "process": lambda: ProcessRuntime(tmp_path / "state"),
        "simulated": lambda: SimulatedRuntime(_now),
    }
    lab = Lab(made[request.param])
    yield lab
    await lab.close()


@pytest.fixture
async def process(tmp_path: Path) -> AsyncIterator[Lab]:
    lab = Lab(lambda: ProcessRuntime(tmp_path / "state"))
    yield lab
    await lab.close()


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Where the process runtime keeps its state."""
    return tmp_path / "state"
