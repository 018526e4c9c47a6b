"""Very many finished Jobs that are kept: what they cost the controllers, and what the next Job pays for them.

The Jobs are copies of one that has run, made by SQL while nothing else writes: to run a million takes hours.
"""

import os
import signal
import time
from pathlib import Path
from statistics import median
from typing import Any

import asyncpg

from app.postgres.postgres_folder import PORT
from benchmarks import processes
from benchmarks.case import Case
from benchmarks.cluster import Checkout, Cluster
from benchmarks.figures import Figure
from benchmarks.jobs import JOBS, completions, job
from benchmarks.load import post_all, scaled

COUNT, PROBES = 100_000, 200
SETTLE_SECONDS, QUIET_SECONDS = 900.0, 30.0
SLICE = 10_000
MIB = 1 << 20
PATTERN, GROUP = "pattern", "bench-group"
# Of a text of the pattern: its copy's. Of every 50 copies, the pods are a group.
_COPIED = """replace(replace(replace(replace({}, 'group-of-all', 'group-' || n / 50), 'pattern', 'kept-' || n),
    $3, left($3, 24) || lpad(n::text, 12, '0')), $4, left($4, 24) || lpad(n::text, 12, '0'))"""
_TEXTS = {"marks": _COPIED.format("f.marks"), "body": _COPIED.format("convert_from(f.body, 'UTF8')")}
# Copies of the newest version of each object: the Job and its pod get a number in their names and UIDs.
_COPY = """with numbers as (select n, row_number() over () - 1 as at from generate_series($1::bigint, $2) n),
    found as materialized (select h.*, s.body, row_number() over (order by h.kind) as part
        from heads h join history s using (revision)
        where h.kind in ('jobs.batch', 'pods') and h.name like 'pattern%'),
    made as (select n, f.kind, f.namespace, replace(f.name, 'pattern', 'kept-' || n) as name,
            left(f.uid, 24) || lpad(n::text, 12, '0') as uid, left(f.owner, 24) || lpad(n::text, 12, '0') as owner, f.node,
            {marks} as marks, {body} as body,
            $5 + at * 2 + f.part as revision, {dormant}
        from numbers, found f),
    versions as (insert into versions (revision, kind, namespace, name, uid, change, marks, body, previous)
        select revision, kind, namespace, name, uid, 'A', marks, convert_to(body, 'UTF8'), 0 from made),
    news as (insert into heads (kind, namespace, name, uid, revision, deleting, owner, node, marks{columns})
        select kind, namespace, name, uid, revision, false, owner, node, marks{columns} from made)
    select count(*) from made"""
_READERS = ("job_recorder", "webhook_cursor")
_TAKE = "update counter set revision = revision + $1 returning revision - $1"  # also the lock of whoever writes


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    count = scaled(COUNT, scale)
    async with checkout.up(nodes=4) as cluster:
        before = await probe(cluster, "before", PROBES)
        empty = processes.memory(cluster.pid_of("controllers")).resident / MIB
        async with completions(cluster.client) as completed, cluster.client.connections(1) as clients:
            await post_all(clients, JOBS, [pattern()])
            await completed.reach(1)
        await cluster.settle(QUIET_SECONDS)
        await copy_kept(cluster, count)
        first = await restart(cluster, "first")
        await cluster.settle(SETTLE_SECONDS)
        second = await restart(cluster, "second")
        await cluster.settle(SETTLE_SECONDS)
        pid = cluster.pid_of("controllers")
        after = await probe(cluster, "after", PROBES)
        held, peak = processes.memory(pid).resident / MIB, processes.peak(pid) / MIB
    note = f"{median(before):.0f} ms with none kept"
    return [
        Figure(name="controllers' memory", value=held, unit="MiB", target=400, note=f"{empty:.0f} with none kept"),
        Figure(name="controllers' peak memory", value=peak, unit="MiB"),
        Figure(name="kill -9 to a new Job's end, first", value=first, unit="s", target=5),
        Figure(name="kill -9 to a new Job's end, again", value=second, unit="s", target=5),
        Figure(name="POST to Complete, p50", value=median(after), unit="ms", target=median(before) * 1.1, note=note),
    ]


async def probe(cluster: Cluster, prefix: str, count: int) -> list[float]:
    """Milliseconds from POST to Complete, one Job after another."""
    took: list[float] = []
    async with completions(cluster.client) as completed, cluster.client.connections(1) as clients:
        for number in range(count):
            began = time.time_ns()
            await post_all(clients, JOBS, [job(f"{prefix}-{number}")])
            await completed.reach(number + 1)
            took.append((completed.at[f"{prefix}-{number}"] - began) / 1e6)
    return took


async def restart(cluster: Cluster, name: str) -> float:
    """Kill the controllers; seconds until their successors have run a Job."""
    began = time.monotonic()
    os.kill(cluster.pid_of("controllers"), signal.SIGKILL)
    await probe(cluster, name, 1)
    return time.monotonic() - began


def pattern() -> dict[str, Any]:
    """The Job that is copied. Its copies' pods have a label in common with 49 others."""
    made = job(PATTERN)
    made["spec"]["template"]["metadata"] = {"labels": {GROUP: "group-of-all"}}
    return made


def database_of(cluster: Cluster) -> dict[str, Any]:
    """How asyncpg finds the cluster's own Postgres."""
    folder: Path = cluster.folder / "postgres"
    passfile = str(folder / "pgpass")
    return {
        "host": str(folder / "cluster"), "port": PORT, "user": "postgres", "database": "postgres", "passfile": passfile
    }  # fmt: skip


async def open_database(cluster: Cluster) -> asyncpg.Connection:
    """A connection to the cluster's own Postgres."""
    return await asyncpg.connect(**database_of(cluster))


async def take_revisions(connection: asyncpg.Connection, count: int) -> int:
    """Take so many revisions, in a transaction: the last one before them."""
    after: int = await connection.fetchval(_TAKE, count)
    return after


async def copy_kept(cluster: Cluster, count: int) -> None:
    """Make so many finished Jobs, `kept-1` and on, each with a pod, of the one that is called PATTERN and has ended.

    The controllers are stopped first, as each copy would be news to them: `restart` them afterwards.
    """
    os.kill(cluster.pid_of("controllers"), signal.SIGSTOP)
    connection = await open_database(cluster)
    try:
        job_uid = await connection.fetchval("select uid from heads where kind = 'jobs.batch' and name = $1", PATTERN)
        pod_uid = await connection.fetchval("select uid from heads where kind = 'pods' and name like $1", f"{PATTERN}%")
        for first in range(1, count + 1, SLICE):
            last = min(first + SLICE - 1, count)
            async with connection.transaction():
                after = await take_revisions(connection, 2 * (last - first + 1))
                await connection.execute(await _statement(connection), first, last, job_uid, pod_uid, after)
                for reader in _READERS:  # what has been kept for long was recorded long ago
                    await connection.execute(f"update {reader} set revision = revision + $1", 2 * (last - first + 1))
        await connection.execute("vacuum analyze heads")
        kept = await connection.fetchval("select count(*) from heads where name like 'kept-%'")
        if kept != 2 * count:
            raise RuntimeError(f"{kept} objects instead of {2 * count} were copied")
    finally:
        await connection.close()


async def _statement(connection: asyncpg.Connection) -> str:
    """As the checkout's schema is, which may be an older one."""
    has_marks = await connection.fetchval(
        "select count(*) > 0 from information_schema.columns where table_name = 'heads' and column_name = 'dormant'"
    )
    if not has_marks:
        return _COPY.format(dormant="null as none", columns="", **_TEXTS)
    return _COPY.format(dormant="f.dormant, f.expires_at", columns=", dormant, expires_at", **_TEXTS)


CASE = Case(
    name="kept-jobs",
    about="100,000 finished Jobs of one pod each are kept: memory of the controllers, their start, and the next Job",
    run=run,
    longest=1_800.0,  # by `--scale 10` a million
)
