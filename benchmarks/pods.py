"""One watch of all pods of the default namespace, that tells when they were bound, ran, and went. Cases of nodes use it."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import msgspec

from benchmarks.wire import Client

PODS = "/api/v1/namespaces/default/pods"


class _Owner(msgspec.Struct):
    name: str = ""


class _Meta(msgspec.Struct, rename="camel"):
    name: str = ""
    owner_references: tuple[_Owner, ...] = ()


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Status(msgspec.Struct):
    phase: str = ""


class _Pod(msgspec.Struct):
    metadata: _Meta = msgspec.field(default_factory=_Meta)
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)


class _Line(msgspec.Struct):
    type: str
    object: _Pod


_decode = msgspec.json.Decoder(_Line).decode


@dataclass
class Pods:
    """When a watcher saw what of each pod, in nanoseconds of the wall clock; by name."""

    bound: dict[str, int] = field(default_factory=dict)
    running: dict[str, int] = field(default_factory=dict)
    gone: set[str] = field(default_factory=set)
    of: dict[str, str] = field(default_factory=dict)
    _rest: bytes = b""
    _heard: asyncio.Event = field(default_factory=asyncio.Event)

    def hear(self, piece: bytes) -> None:
        now = time.time_ns()
        *lines, self._rest = (self._rest + piece).split(b"\n")
        for line in lines:
            event = _decode(line)
            pod, name = event.object, event.object.metadata.name
            for owner in pod.metadata.owner_references:
                self.of.setdefault(owner.name, name)
            if pod.spec.node_name:
                self.bound.setdefault(name, now)
            if pod.status.phase == "Running":
                self.running.setdefault(name, now)
            if event.type == "DELETED":
                self.gone.add(name)
        self._heard.set()

    def standing(self, job: str) -> set[str]:
        """The pods of a Job that run, or have run and are still there."""
        return {name for name in self.running if name.startswith(f"{job}-")} - self.gone

    async def news(self) -> None:
        self._heard.clear()
        await asyncio.wait_for(self._heard.wait(), 60)

    async def first_of(self, job: str) -> str:
        while job not in self.of:
            await self.news()
        return self.of[job]

    async def runs(self, name: str) -> None:
        while name not in self.running:
            await self.news()


@asynccontextmanager
async def watched(client: Client) -> AsyncIterator[Pods]:
    """Watch from now on."""
    seen = Pods()
    async with client.connection() as asking, client.connection() as watching:
        revision = (await asking.read(f"{PODS}?limit=1"))["metadata"]["resourceVersion"]
        await watching.stream(f"{PODS}?watch=true&resourceVersion={revision}", seen.hear)
        yield seen
