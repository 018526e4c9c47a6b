"""The scheduler alone: pods that wait, and nodes without agents that all come at once. Decided and stored."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec.structs import replace

from app.kinds import by_resource
from app.machinery.base import Kind
from app.main.cli_process import now
from app.postgres.embedded_postgres import Postgres
from app.registry.codec import write_of
from app.registry.verbs.objects import Registry
from app.registry.verbs.versions import new
from app.store import Store, Write, open_store
from benchmarks import processes
from benchmarks.case import Case
from benchmarks.cluster import Checkout, Cluster
from benchmarks.figures import Figure, cpu_each
from benchmarks.load import scaled

CLASSES, LABEL = 20, "bench"
PATIENCE = 120.0
MIB = 1 << 20
_BOUND = "select count(*) from heads where kind = 'pods' and node is not null"
_EVENTS = "select count(*) from heads where kind = 'events'"
_KINDS = {"pods": by_resource("", "v1", "pods"), "nodes": by_resource("", "v1", "nodes")}


async def some(checkout: Checkout, scale: float) -> list[Figure]:
    return await _scheduled(checkout, scaled(10_000, scale), scaled(1_000, scale), throughput=5_000)


async def many(checkout: Checkout, scale: float) -> list[Figure]:
    return await _scheduled(checkout, scaled(50_000, scale), scaled(5_000, scale), memory=300)


async def _scheduled(
    checkout: Checkout, pods: int, nodes: int, throughput: float | None = None, memory: float | None = None
) -> list[Figure]:
    async with checkout.up(settle=5.0) as cluster, open_store(dsn(cluster), ring_bytes=0) as store:
        await _create(store, "pods", (_pod(number) for number in range(pods)))
        await cluster.settle(20.0)
        writes, events = _writes(store, "nodes", map(_node, range(nodes))), await _count(store, _EVENTS)
        before, began = cluster.cpu(), time.perf_counter()
        await _commit(store, writes)
        await _until(store, _BOUND, pods)
        bound_at = time.perf_counter()
        await _until(store, _EVENTS, events + pods)
        told_at = time.perf_counter()
        spent = await cluster.spent_since(before)
        peak = processes.peak(cluster.pid_of("controllers")) / MIB
    rate, with_events = pods / (bound_at - began), pods / (told_at - began)
    return [
        Figure(name="throughput", value=rate, unit="bindings/s", target=throughput, higher_is_better=True),
        Figure(name="to the last event", value=with_events, unit="bindings/s", higher_is_better=True),
        cpu_each("binding", spent, pods),
        Figure(name="controllers' peak memory", value=peak, unit="MiB", target=memory),
    ]


def dsn(cluster: Cluster) -> str:
    """Its database."""
    return Postgres(Path(cluster.folder) / "postgres").dsn


async def create_nodes(store: Store, count: int, first: int = 0) -> None:
    """Ready, and without agents: they are believed for as long as a node may be silent."""
    await _create(store, "nodes", (_node(number) for number in range(first, first + count)))


async def bound(store: Store) -> int:
    """How many pods have their place."""
    return await _count(store, _BOUND)


async def _count(store: Store, query: str) -> int:
    return int(await store.pool.fetchval(query))


async def _create(store: Store, plural: str, manifests: Iterator[dict[str, Any]]) -> None:
    """As the API would, but in few large write sets: what they cost is not measured."""
    await _commit(store, _writes(store, plural, manifests))


def _writes(store: Store, plural: str, manifests: Iterator[dict[str, Any]]) -> list[Write]:
    kind = _KINDS[plural]
    assert kind is not None
    registry = Registry(store, now)
    return [_write(registry, kind, each) for each in manifests]


async def _commit(store: Store, writes: list[Write]) -> None:
    for start in range(0, len(writes), 5_000):
        await store.commit(writes[start : start + 5_000])


def _write(registry: Registry, kind: Kind, manifest: dict[str, Any]) -> Write:
    given: Any = msgspec.convert(manifest, kind.type)
    made: Any = new(kind, "default" if kind.namespaced else "", given, registry.now())
    if kind is _KINDS["nodes"]:  # which is ready from the start
        made = replace(made, spec=given.spec, status=given.status)
    return write_of(kind, made, "A")


async def _until(store: Store, query: str, enough: int) -> None:
    """Looks seldom while much is missing: to count costs something, too."""
    async with asyncio.timeout(PATIENCE):
        while (count := await _count(store, query)) < enough:  # noqa: ASYNC110 - a database tells nobody of its counts
            await asyncio.sleep(0.02 if count > 0.8 * enough else 0.2)


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
