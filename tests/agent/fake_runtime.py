"""A runtime that a test plays by hand: it decides when a container writes, ends, or cannot be started."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Literal

from app.runtimes.bare import Imageless, Streamless
from app.runtimes.base import (
    ContainerKey,
    ContainerSpec,
    ContainerStatus,
    ContainerUsage,
    Image,
    LogChunk,
    Login,
    PullError,
    RuntimeInfo,
    Sandbox,
    SandboxSpec,
)


class FakeRuntime(Imageless, Streamless):
    """It outlives agents. `started` holds every start that was carried out, in order; `stops` every request to stop."""

    def __init__(self, now: Callable[[], datetime]) -> None:
        self._now = now
        self.containers: dict[ContainerKey, ContainerStatus] = {}
        self.specs: dict[ContainerKey, ContainerSpec] = {}
        self.logs: dict[ContainerKey, bytes] = {}
        self.started: list[ContainerKey] = []
        self.stops: list[tuple[ContainerKey, timedelta]] = []
        self.standing: set[str] = set()
        self.removed: list[str] = []
        self.refusals: dict[str, Exception] = {}
        self.sandbox_refusal: Exception | None = None
        self.removal_refusals: list[Exception] = []  # one for each call, in its middle
        self.capabilities = RuntimeInfo(name="fake", version="1", survives_agent=True)
        self.ips: dict[str, str] = {}
        self.have: list[Image] = []
        self.kept: set[str] = set()
        self.pulls: list[tuple[str, Login | None]] = []
        self.endless: set[str] = set()  # images whose pull does not end
        self.unpullable: dict[str, PullError | ConnectionError] = {}
        self.sandbox_specs: dict[str, SandboxSpec] = {}
        self.answers: dict[tuple[str, ...], FakeSession] = {}
        self.executed: list[tuple[ContainerKey, tuple[str, ...]]] = []
        self.stubborn: set[str] = set()
        self.memory = 1 << 20  # that each container uses
        self.looks = 0  # at what they use
        self._events: list[asyncio.Queue[ContainerKey]] = []
        self._logged: list[asyncio.Queue[ContainerKey]] = []
        self._ended = asyncio.Event()

    # What a test does

    def key(self, name: str = "main", attempt: int = 0, uid: str = "u-1") -> ContainerKey:
        return ContainerKey(uid, name, attempt)

    def exit(self, code: int | None, name: str = "main", attempt: int = 0, uid: str = "u-1") -> None:
        key = self.key(name, attempt, uid)
        self.containers[key] = replace(self.containers[key], state="exited", exit_code=code, finished_at=self._now())
        self._ended.set()
        self._ended = asyncio.Event()
        self._hint(self._events, key)

    def write(self, data: bytes, name: str = "main", attempt: int = 0, uid: str = "u-1") -> None:
        key = self.key(name, attempt, uid)
        self.logs[key] = self.logs.get(key, b"") + data
        self._hint(self._logged, key)

    def was_started(self, name: str = "main", attempt: int = 0, uid: str = "u-1") -> bool:
        return self.key(name, attempt, uid) in self.started

    # What the agent does

    async def info(self) -> RuntimeInfo:
        return self.capabilities

    async def run_sandbox(self, spec: SandboxSpec) -> Sandbox:
        if self.sandbox_refusal is not None:
            raise self.sandbox_refusal
        self.standing.add(spec.pod_uid)
        self.sandbox_specs[spec.pod_uid] = spec
        return Sandbox(spec.pod_uid, self.ips.get(spec.pod_uid, ""))

    async def sandboxes(self) -> Sequence[Sandbox]:
        return [Sandbox(uid, self.ips.get(uid, "")) for uid in self.standing]

    async def images(self) -> Sequence[Image]:
        return list(self.have)

    async def pull(self, image: str, login: Login | None = None) -> str:
        self.pulls.append((image, login))
        if image in self.endless:
            await asyncio.Event().wait()
        if image in self.unpullable:
            raise self.unpullable[image]
        found = next((each.id for each in self.have if image in each.names), "")
        if not found:
            found = f"sha256:{len(self.have):064}"
            self.have.append(Image(found, (image,), 1000))
        return found

    async def remove_image(self, image_id: str) -> None:
        self.have = [each for each in self.have if each.id != image_id or each.id in self.kept]

    async def execute(self, key: ContainerKey, argv: Sequence[str], *, tty: bool = False) -> "FakeSession":
        self.executed.append((key, tuple(argv)))
        return self.answers.setdefault(tuple(argv), FakeSession(0))

    async def start_container(self, spec: ContainerSpec) -> None:
        if spec.key.name in self.refusals:
            raise self.refusals[spec.key.name]
        if spec.key in self.containers:
            return
        self.specs[spec.key] = spec
        self.started.append(spec.key)
        self.containers[spec.key] = ContainerStatus(
            key=spec.key, state="running", id=f"{spec.key.name}-{spec.key.attempt}", started_at=self._now()
        )
        self._hint(self._events, spec.key)

    async def stop_container(self, key: ContainerKey, grace: timedelta) -> None:
        self.stops.append((key, grace))
        if key in self.containers and self.containers[key].state == "running" and key.name not in self.stubborn:
            self.exit(143, key.name, key.attempt, key.pod_uid)
        while key in self.containers and self.containers[key].state != "exited":
            await self._ended.wait()

    async def remove_container(self, key: ContainerKey) -> None:
        if key in self.containers and self.containers[key].state == "exited":
            del self.containers[key]

    async def remove_sandbox(self, pod_uid: str) -> None:
        for key in [key for key in self.containers if key.pod_uid == pod_uid]:
            del self.containers[key]
        if self.removal_refusals:
            raise self.removal_refusals.pop()
        self.standing.discard(pod_uid)
        self.removed.append(pod_uid)

    async def list(self) -> list[ContainerStatus]:
        return list(self.containers.values())

    async def status(self, key: ContainerKey) -> ContainerStatus | None:
        return self.containers.get(key)

    async def usage(self) -> Sequence[ContainerUsage]:
        """Half a core each, since the start, and `memory`."""
        self.looks += 1
        return [
            ContainerUsage(key, int((self._now() - each.started_at).total_seconds() * 500_000_000), self.memory)
            for key, each in self.containers.items()
            if each.state == "running" and each.started_at
        ]

    def events(self) -> AsyncIterator[ContainerKey]:
        return _reader(self._events)

    def log_events(self) -> AsyncIterator[ContainerKey]:
        return _reader(self._logged)

    async def read_log(self, key: ContainerKey, offset: int, limit: int) -> LogChunk:
        return LogChunk(offset, self.logs.get(key, b"")[offset : offset + limit])

    def release_log(self, key: ContainerKey, offset: int) -> None:
        pass

    async def close(self) -> None:
        pass

    def _hint(self, readers: "list[asyncio.Queue[ContainerKey]]", key: ContainerKey) -> None:
        for reader in readers:
            reader.put_nowait(key)


class FakeSession:
    """A command that was run. One that has no code yet goes on until it is given one."""

    def __init__(self, code: int | None, said: bytes = b"") -> None:
        self.code, self._said = code, said
        self.ended = asyncio.Event()
        if code is not None:
            self.ended.set()

    def end(self, code: int) -> None:
        self.code = code
        self.ended.set()

    async def output(self) -> AsyncIterator[tuple[Literal["stdout", "stderr"], bytes]]:
        yield "stdout", self._said
        await self.ended.wait()

    async def exit_code(self) -> int:
        assert self.code is not None
        return self.code

    async def write(self, data: bytes) -> None: ...

    async def end_input(self) -> None: ...

    async def resize(self, width: int, height: int) -> None: ...

    async def close(self) -> None: ...


def _reader(readers: "list[asyncio.Queue[ContainerKey]]") -> AsyncIterator[ContainerKey]:
    queue: asyncio.Queue[ContainerKey] = asyncio.Queue()
    readers.append(queue)

    async def read() -> AsyncIterator[ContainerKey]:
        while True:
            yield await queue.get()

    return read()
