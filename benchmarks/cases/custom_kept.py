"""Very many custom objects: what they cost the controllers and the API, and what Jobs pay for them.

They are copies of one, made by SQL while nothing else writes. Nothing owns them, and they own nothing.
"""

import asyncio
import os
import signal
import time
from statistics import median
from typing import Any

import asyncpg

from benchmarks import processes
from benchmarks.case import Case
from benchmarks.cases.custom_objects import CUSTOM, DEFINITION, DEFINITIONS, SWEEPS
from benchmarks.cases.kept_jobs import MIB, open_database, probe, take_revisions
from benchmarks.cluster import Checkout, Cluster, answers
from benchmarks.figures import Figure
from benchmarks.load import scaled

COUNT, PROBES, READS = 1_000_000, 200, 20
POLL_SECONDS = 0.01
SETTLE_SECONDS, QUIET_SECONDS = 900.0, 30.0
SLICE = 20_000
KIND, PATTERN = "sweeps.bench.example.com", "pattern"
_COPIED = "replace(replace({}, 'pattern', 'kept-' || n), $3, left($3, 24) || lpad(n::text, 12, '0'))"
_COPY = f"""with numbers as (select n, row_number() over () as at from generate_series($1::bigint, $2) n),
    found as (select h.*, s.body from heads h join history s using (revision)
        where h.kind = '{KIND}' and h.name = 'pattern'),
    made as (select n, f.kind, f.namespace, 'kept-' || n as name, left(f.uid, 24) || lpad(n::text, 12, '0') as uid,
            {_COPIED.format("f.marks")} as marks, {_COPIED.format("convert_from(f.body, 'UTF8')")} as body,
            $4 + at as revision, f.dormant
        from numbers, found f),
    versions as (insert into versions (revision, kind, namespace, name, uid, change, marks, body, previous)
        select revision, kind, namespace, name, uid, 'A', marks, convert_to(body, 'UTF8'), 0 from made),
    news as (insert into heads (kind, namespace, name, uid, revision, deleting, marks, dormant)
        select kind, namespace, name, uid, revision, false, marks, dormant from made)
    select count(*) from made"""


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    count = scaled(COUNT, scale)
    async with checkout.up(nodes=4) as cluster:
        async with cluster.client.connection() as connection:
            await connection.post(DEFINITIONS, _selectable())
            await connection.post(SWEEPS, {**CUSTOM, "metadata": {"name": PATTERN, "labels": {"of": PATTERN}}})
        empty, empty_api = _memory(cluster)
        started = [await _restart(cluster, "api", "none"), await _restart(cluster, "controllers", "none")]
        before = await probe(cluster, "before", PROBES)
        await cluster.settle(QUIET_SECONDS)
        await _copy(cluster, count)
        await cluster.settle(SETTLE_SECONDS)
        kept = [await _restart(cluster, "api", "kept"), await _restart(cluster, "controllers", "kept")]
        await cluster.settle(SETTLE_SECONDS)
        after = await probe(cluster, "after", PROBES)
        held, held_api = _memory(cluster)
        reads = await _reads(cluster, count)
    return [
        _compared("controllers' memory", held, empty, "MiB", 1.2),
        _compared("API's memory", held_api, empty_api, "MiB", 1.2),
        _compared("kill -9 of the API to an answer", kept[0], started[0], "s", 1.5),
        _compared("kill -9 of the controllers to a Job's end", kept[1], started[1], "s", 2.0),
        _compared("POST to Complete, p50", median(after), median(before), "ms", 1.2),
        *(Figure(name=name, value=took, unit="ms") for name, took in reads.items()),
    ]


def _selectable() -> dict[str, Any]:
    """The definition, with a field that lists can select by."""
    spec: dict[str, Any] = DEFINITION["spec"]  # type: ignore[assignment]  # the other one is its metadata
    (version,) = spec["versions"]
    return {
        **DEFINITION,
        "spec": {**spec, "versions": [{**version, "selectableFields": [{"jsonPath": ".spec.color"}]}]},
    }


def _compared(name: str, value: float, before: float, unit: str, times: float) -> Figure:
    return Figure(name=name, value=value, unit=unit, target=before * times, note=f"{before:.2f} {unit} with none")


def _memory(cluster: Cluster) -> tuple[float, float]:
    """Of the controllers and of the API, in MiB."""
    resident = [processes.memory(cluster.pid_of(role)).resident / MIB for role in ("controllers", "api")]
    return resident[0], resident[1]


async def _restart(cluster: Cluster, role: str, name: str) -> float:
    """Kill a process; seconds until its successor has done its work: run a Job, or answered."""
    began = time.monotonic()
    killed = cluster.pid_of(role)
    os.kill(killed, signal.SIGKILL)
    if role == "api":
        await _answered(cluster)
    else:
        await probe(cluster, f"{role}-{name}", 1)
    return time.monotonic() - began


async def _answered(cluster: Cluster) -> None:
    while True:
        if await answers(cluster):
            return
        await asyncio.sleep(POLL_SECONDS)


async def _reads(cluster: Cluster, count: int) -> dict[str, float]:
    """Milliseconds of what `kubectl get` asks for, and of one more object."""
    found = {
        "GET of one": f"{SWEEPS}/kept-{count // 2}",
        "list, limit 500": f"{SWEEPS}?limit=500",
        "list by a name": f"{SWEEPS}?fieldSelector=metadata.name%3Dkept-{count // 2}",
        "list by a label that one has": f"{SWEEPS}?labelSelector=of%3Dkept-{count // 2}",
        "list by a field that one has": f"{SWEEPS}?fieldSelector=spec.color%3Dblue&limit=500",
    }
    async with cluster.client.connection() as connection:
        await connection.post(SWEEPS, {**CUSTOM, "metadata": {"name": "zz-blue"}, "spec": {"color": "blue"}})
        took: dict[str, float] = {}
        for name, path in found.items():
            times = []
            for _ in range(READS):
                began = time.perf_counter()
                await connection.get(path)
                times.append((time.perf_counter() - began) * 1e3)
            took[name] = median(times)
    return took


async def _copy(cluster: Cluster, count: int) -> None:
    """Make so many copies, `kept-1` and on, of the one that is called PATTERN."""
    connection: asyncpg.Connection = await open_database(cluster)
    try:
        uid = await connection.fetchval(f"select uid from heads where kind = '{KIND}' and name = 'pattern'")
        for first in range(1, count + 1, SLICE):
            last = min(first + SLICE - 1, count)
            async with connection.transaction():
                after = await take_revisions(connection, last - first + 1)
                await connection.execute(_COPY, first, last, uid, after)
        await connection.execute("vacuum analyze heads")
        kept = await connection.fetchval(f"select count(*) from heads where kind = '{KIND}' and name like 'kept-%'")
        if kept != count:
            raise RuntimeError(f"{kept} objects instead of {count} were copied")
    finally:
        await connection.close()


CASE = Case(
    name="custom-kept",
    about="a million custom objects: memory and start of the API and the controllers, the next Jobs, and lists",
    run=run,
)
