"""The scheduler alone: pods that wait, and nodes without agents that all come at once. Decided and stored."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from app.cli_process import now
from app.kinds import by_resource
from app.kinds.base import Kind
from app.registry.codec import write_of
from app.registry.objects import Registry
from app.registry.versions import new
from app.store import Store, Write, open_store
from app.store.embedded import Postgres
from benchmarks import processes
from benchmarks.case import Case
from benchmarks.cluster import Checkout, Cluster
from benchmarks.figures import Figure, cpu_each
from benchmarks.load import scaled

CLASSES, LABEL = 20, "bench"
PATIENCE = 120.0
MIB = 1 << 20
_BOUND = "select count(*) from heads where kind = 'pods' and node is not null"
_KINDS = {"pods": by_resource("", "v1", "pods"), "nodes": by_resource("", "v1", "nodes")}


async def some(checkout: Checkout, scale: float) -> list[Figure]:
    rate, spent, peak = await _scheduled(checkout, scaled(10_000, scale), scaled(1_000, scale))
    return [
        Figure(name="throughput", value=rate, unit="bindings/s", target=5_000, higher_is_better=True),
        spent,
        Figure(name="controllers' peak memory", value=peak, unit="MiB"),
    ]


async def many(checkout: Checkout, scale: float) -> list[Figure]:
    rate, spent, peak = await _scheduled(checkout, scaled(50_000, scale), scaled(5_000, scale))
    return [
        Figure(name="throughput", value=rate, unit="bindings/s", higher_is_better=True),
        spent,
        Figure(name="controllers' peak memory", value=peak, unit="MiB", target=300),
    ]


async def _scheduled(checkout: Checkout, pods: int, nodes: int) -> tuple[float, Figure, float]:
    async with checkout.up(settle=5.0) as cluster, open_store(dsn(cluster), ring_bytes=0) as store:
        await _create(store, "pods", (_pod(number) for number in range(pods)))
        await cluster.settle(20.0)
        before, began = cluster.cpu(), time.perf_counter()
        await create_nodes(store, nodes)
        await _all_bound(store, pods)
        seconds = time.perf_counter() - began
        spent = await cluster.spent_since(before)
        peak = processes.peak(cluster.pid_of("controllers")) / MIB
    return pods / seconds, cpu_each("binding", spent, pods), peak


def dsn(cluster: Cluster) -> str:
    """Its database."""
    return Postgres(Path(cluster.folder) / "postgres").dsn


async def create_nodes(store: Store, count: int, first: int = 0) -> None:
    """Ready, and without agents: they are believed for as long as a node may be silent."""
    await _create(store, "nodes", (_node(number) for number in range(first, first + count)))


async def bound(store: Store) -> int:
    """How many pods have their place."""
    return int(await store.pool.fetchval(_BOUND))


async def _create(store: Store, plural: str, manifests: Iterator[dict[str, Any]]) -> None:
    """As the API would, but in few large write sets: what they cost is not measured."""
    kind = _KINDS[plural]
    assert kind is not None
    registry = Registry(store, now)
    writes = [_write(registry, kind, each) for each in manifests]
    for start in range(0, len(writes), 5_000):
        await store.commit(writes[start : start + 5_000])


def _write(registry: Registry, kind: Kind, manifest: dict[str, Any]) -> Write:
    given: Any = msgspec.convert(manifest, kind.type)
    made: Any = new(kind, "default" if kind.namespaced else "", given, registry.now())
    if kind is _KINDS["nodes"]:  # which is ready from the start
        made = replace(made, spec=given.spec, status=given.status)
    return write_of(kind, made, "A")


async def _all_bound(store: Store, pods: int) -> None:
    async with asyncio.timeout(PATIENCE):
        while True:
            if await bound(store) >= pods:
                return
            await asyncio.sleep(0.02)


def _pod(number: int) -> dict[str, Any]:
    """Of one class of twenty. It goes to nodes whatever becomes of them, for no agent keeps them ready."""
    which = number % CLASSES
    requests = {"cpu": f"{100 + 10 * which}m", "memory": f"{64 + which}Mi"}
    container = {"name": "main", "image": "busybox", "resources": {"requests": requests}}
    spec = {
        "nodeSelector": {LABEL: "true"},
        "tolerations": [{"operator": "Exists"}],
        "restartPolicy": "Never",
        "containers": [container],
    }
    return {"metadata": {"name": f"pod-{number}", "labels": {"class": f"c{which}"}}, "spec": spec}


def _node(number: int) -> dict[str, Any]:
    has = {"cpu": "64", "memory": "256Gi", "pods": "110"}
    ready = {"type": "Ready", "status": "True", "reason": "AgentReady"}
    status = {"capacity": has, "allocatable": has, "conditions": [ready]}
    return {"metadata": {"name": f"bench-{number:05}", "labels": {LABEL: "true"}}, "status": status}


CASE = Case(
    name="schedule",
    about="10,000 waiting pods of 20 classes onto 1,000 nodes without agents, from the nodes' creation to the last binding",
    run=some,
)
LARGE = Case(
    name="schedule-large",
    about="50,000 waiting pods of 20 classes onto 5,000 nodes without agents",
    run=many,
)
