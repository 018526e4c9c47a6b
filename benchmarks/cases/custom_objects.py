"""What custom objects cost beside ConfigMaps of the same size: one service, and the same bursts of both kinds in turns.

What else happens on the machine hits both alike, so ratios count. Watched objects go to 50 watchers of their namespace.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from benchmarks.case import Case
from benchmarks.cluster import Checkout, Cluster
from benchmarks.figures import Figure
from benchmarks.load import get_all, post_all, scaled
from benchmarks.wire import Connection

CONNECTIONS, ROUNDS, READS, WRITES, WATCHED, WATCHERS = 16, 5, 4_000, 1_500, 200, 50
ALLOWED = 1.5  # times what a ConfigMap costs
METHODS = ("POST", "GET", "watch")
SWEEPS = "/apis/bench.example.com/v1/namespaces/default/sweeps"
DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
SPEC = {
    "type": "object",
    "required": ["color"],
    "properties": {
        "color": {"type": "string", "enum": ["red", "blue"]},
        "replicas": {"type": "integer", "minimum": 0, "default": 1},
        "labels": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 63}},
        "parts": {
            "type": "array",
            "x-kubernetes-list-type": "map",
            "x-kubernetes-list-map-keys": ["name"],
            "items": {
                "type": "object",
                "required": ["name"],
                "properties": {"name": {"type": "string"}, "weight": {"type": "integer", "default": 5}},
            },
        },
    },
}
DEFINITION = {
    "metadata": {"name": "sweeps.bench.example.com"},
    "spec": {
        "group": "bench.example.com",
        "scope": "Namespaced",
        "names": {"plural": "sweeps", "kind": "Sweep"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {"openAPIV3Schema": {"type": "object", "properties": {"spec": SPEC}}},
            }
        ],
    },
}
CUSTOM = {
    "apiVersion": "bench.example.com/v1",
    "kind": "Sweep",
    "spec": {"color": "red", "labels": {"a": "b"}, "parts": [{"name": "one", "weight": 1}, {"name": "two"}]},
}
CONFIG_MAP = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "data": {"color": "red", "labels": "a: b", "parts": "one: 1, two"},
}


@dataclass
class _Side:
    """One of the two kinds, and what each of its rounds came to."""

    path: str
    example: dict[str, Any]
    rate: dict[str, list[float]] = field(default_factory=lambda: {each: [] for each in METHODS})
    cpu: dict[str, list[float]] = field(default_factory=lambda: {each: [] for each in METHODS})  # of the API, us each

    def objects(self, name: str, count: int) -> Iterator[dict[str, Any]]:
        return ({**self.example, "metadata": {"name": f"{name}-{number}"}} for number in range(count))

    async def measure(self, cluster: Cluster, method: str, count: int, act: Callable[[], Awaitable[object]]) -> None:
        before, began = cluster.cpu(), time.perf_counter()
        await act()
        self.rate[method].append(count / (time.perf_counter() - began))
        spent = await cluster.spent_since(before)
        self.cpu[method].append(spent["api"] * 1e6 / count)


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    async with checkout.up() as cluster, cluster.client.connections(CONNECTIONS) as connections:
        await connections[0].post(DEFINITIONS, DEFINITION)
        custom = _Side(SWEEPS, CUSTOM)
        plain = _Side("/api/v1/namespaces/default/configmaps", CONFIG_MAP)
        for side in (custom, plain):
            await post_all(connections, side.path, side.objects("warm", 100))
        for number in range(ROUNDS):
            for side in (custom, plain) if number % 2 else (plain, custom):
                await _round(cluster, connections, side, f"m{number}", scale)
    return [figure for method in METHODS for figure in _figures(method, custom, plain)]


async def _round(cluster: Cluster, connections: Sequence[Connection], side: _Side, name: str, scale: float) -> None:
    reads, writes, watched = (scaled(each, scale) for each in (READS, WRITES, WATCHED))
    await side.measure(cluster, "GET", reads, lambda: get_all(connections, f"{side.path}/warm-0", reads))
    await side.measure(cluster, "POST", writes, lambda: post_all(connections, side.path, side.objects(name, writes)))
    async with _watchers(cluster, side.path) as seen:

        async def write_and_see() -> None:
            await post_all(connections, side.path, side.objects(f"{name}-seen", watched))
            await seen.wait_for_all(watched)

        await side.measure(cluster, "watch", watched * WATCHERS, write_and_see)


class _Seen:
    """How many events each watcher has seen."""

    def __init__(self) -> None:
        self._counts = [0] * WATCHERS
        self._grown = asyncio.Event()

    def counter(self, index: int) -> Callable[[bytes], None]:
        def hear(piece: bytes) -> None:
            self._counts[index] += piece.count(b"\n")
            self._grown.set()

        return hear

    async def wait_for_all(self, count: int) -> None:
        while min(self._counts) < count:
            self._grown.clear()
            await self._grown.wait()


@asynccontextmanager
async def _watchers(cluster: Cluster, path: str) -> AsyncIterator[_Seen]:
    """Watch the path from now on."""
    seen = _Seen()
    async with cluster.client.connections(WATCHERS) as watchers:
        revision = (await watchers[0].read(f"{path}?limit=1"))["metadata"]["resourceVersion"]
        for index, each in enumerate(watchers):
            await each.stream(f"{path}?watch=true&resourceVersion={revision}", seen.counter(index))
        yield seen


def _figures(method: str, custom: _Side, plain: _Side) -> list[Figure]:
    """How many times a ConfigMap, each as the median of neighbouring rounds."""
    slower = median(theirs / mine for mine, theirs in zip(custom.rate[method], plain.rate[method], strict=True))
    dearer = median(mine / theirs for mine, theirs in zip(custom.cpu[method], plain.cpu[method], strict=True))
    unit = "events" if method == "watch" else "req"
    rates = f"{median(custom.rate[method]):.0f} of {median(plain.rate[method]):.0f} {unit}/s"
    spent = f"{median(custom.cpu[method]):.0f} of {median(plain.cpu[method]):.0f} us"
    return [
        Figure(name=f"{method}, time", value=slower, unit="times", target=ALLOWED, note=rates),
        Figure(name=f"{method}, CPU of the API", value=dearer, unit="times", target=ALLOWED, note=spent),
    ]


CASE = Case(name="custom-objects", about="POST, GET and watch of custom objects, against ConfigMaps, in turns", run=run)
