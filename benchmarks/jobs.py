"""Jobs to post, and one watch that tells when they have completed."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from benchmarks.wire import Client

PATIENCE = 60.0
JOBS = "/apis/batch/v1/namespaces/default/jobs"


def job(name: str, command: list[str] | None = None, pod: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    """A Job of one container. `pod` adds to the pod's spec, `spec` to the Job's."""
    container = {"name": "main", "image": "busybox", "command": command or ["true"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container], **(pod or {})}}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": {"template": template, **spec}}


class _Condition(msgspec.Struct):
    type: str
    status: str = ""


class _Status(msgspec.Struct):
    conditions: tuple[_Condition, ...] = ()


class _Meta(msgspec.Struct):
    name: str = ""


class _Job(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    status: _Status = msgspec.field(default_factory=_Status)


class _Line(msgspec.Struct):
    type: str
    object: _Job


_decode = msgspec.json.Decoder(_Line).decode


class Completions:
    """When which Job was first seen to be complete, in nanoseconds of the wall clock."""

    def __init__(self, patience: float = PATIENCE) -> None:
        self.at: dict[str, int] = {}
        self._patience = patience
        self._rest = b""
        self._news = asyncio.Event()
        self._trouble = ""

    async def reach(self, count: int) -> None:
        """Wait until so many have completed."""
        while len(self.at) < count:
            self._news.clear()
            try:
                await asyncio.wait_for(self._news.wait(), self._patience)
            except TimeoutError:
                self._trouble = f"{len(self.at)} of {count} Jobs so far, and no more for {self._patience:.0f} s"
            if self._trouble:
                raise RuntimeError(self._trouble)

    def hear(self, piece: bytes) -> None:
        now = time.time_ns()
        if not piece:
            self._trouble = "the watch has ended"
            self._news.set()
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            self._see(line, now)

    def _see(self, line: bytes, now: int) -> None:
        event = _decode(line)
        true = {each.type for each in event.object.status.conditions if each.status == "True"}
        if "Complete" in true:
            self.at.setdefault(event.object.metadata.name, now)
            self._news.set()
        elif "Failed" in true or event.type == "ERROR":
            self._trouble = f"the watch says {line[:2000].decode(errors='replace')}"
            self._news.set()


class Creations(Completions):
    """When which Job was first seen at all."""

    def _see(self, line: bytes, now: int) -> None:
        event = _decode(line)
        if event.type == "ERROR":
            super()._see(line, now)
        self.at.setdefault(event.object.metadata.name, now)
        self._news.set()


@asynccontextmanager
async def completions(client: Client, patience: float = PATIENCE) -> AsyncIterator[Completions]:
    """Watch the Jobs of the default namespace from now on; give up if none completes for so many seconds."""
    seen = Completions(patience)
    async with _watched(client, seen):
        yield seen


@asynccontextmanager
async def created(client: Client) -> AsyncIterator[Creations]:
    """Watch which Jobs the default namespace gets from now on."""
    seen = Creations()
    async with _watched(client, seen):
        yield seen


@asynccontextmanager
async def _watched(client: Client, seen: Completions) -> AsyncIterator[None]:
    async with client.connection() as asking, client.connection() as watching:
        revision = (await asking.read(f"{JOBS}?limit=1"))["metadata"]["resourceVersion"]
        await watching.stream(f"{JOBS}?watch=true&resourceVersion={revision}", seen.hear)
        yield
