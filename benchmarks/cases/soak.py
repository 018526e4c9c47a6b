"""An hour of steady, mixed load: what grows that should not. Memory, disk and latency, by their second half.

Jobs at an even pace that a TTL deletes, some that are kept, a CronJob, and watchers that come back twice a minute. What is
meant to grow is taken out of the disk's figure: versions of an hour, records of a month, and the Jobs that are kept.

Memory fills for the first ten minutes (changes in the API's buffer, pages in Postgres'), so a scale below a third shows only that
the case works.
"""

import asyncio
import time
from collections.abc import Iterator, Sequence
from typing import Any

import asyncpg

from benchmarks.case import Case
from benchmarks.cases.kept_jobs import open_database
from benchmarks.cluster import Checkout, Cluster
from benchmarks.figures import Figure, percentile, slope
from benchmarks.jobs import JOBS, job
from benchmarks.pods import PODS
from benchmarks.steady import Held, Object, Progress, Watcher, following, look, post_evenly

SECONDS, EVERY = 3_600.0, 5.0
NODES, RATE, WATCHERS = 50, 10.0, 10
TTL, EVENT_TTL = 20, "30"  # seconds: both are over long before the second half begins, also at a twentieth of the size
KEPT_OF = 50  # Jobs, of which one has no TTL
CRON_JOBS = "/apis/batch/v1/namespaces/default/cronjobs"
MEANT = ("versions", "job_record")  # tables that keep what is deleted begin so
KEPT_KIB = 4.0  # of heads for a Job that is kept
KIB = 1 << 10
MOST_MEMORY, MOST_DISK, MOST_SLOWER = 5.0, 0.1, 1.1  # MiB an hour, KiB a Job, times


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    seconds = SECONDS * scale
    environment = {"JOBPLANE_EVENT_TTL_SECONDS": EVENT_TTL}
    async with checkout.up(nodes=NODES, settle=30.0, environment=environment) as cluster:
        database = await open_database(cluster)
        try:
            return await _soak(cluster, database, seconds)
        finally:
            await database.close()


async def _soak(cluster: Cluster, database: asyncpg.Connection, seconds: float) -> list[Figure]:
    progress, crons = Progress(cluster.client), Crons(cluster)
    watchers = [Watcher(cluster.client, (JOBS, PODS)[number % 2]) for number in range(WATCHERS)]
    began = time.time()
    async with following([progress, crons, *watchers]), cluster.client.connection() as connection:
        await connection.post(CRON_JOBS, _cron_job())
        samples: list[Held] = []
        sampling = asyncio.create_task(_sample(cluster, database, samples))
        try:
            await post_evenly(connection, progress, RATE, _jobs(began + seconds))
            await progress.at_most(0)
        finally:
            sampling.cancel()
            await asyncio.gather(sampling, return_exceptions=True)
        samples.append(await look(cluster, database))
    ended = time.time()
    back = sum(each.returns for each in watchers)
    note = f"{len(progress.completed)} Jobs, {len(crons.seen)} of the CronJob; watchers came back {back} times"
    return [
        *grown_memory(samples),
        *grown_disk(samples, progress, began, ended),
        slower(progress, began, ended),
        Figure(name="rate", value=len(progress.completed) / (ended - began), unit="jobs/s", note=note),
    ]


class Crons(Progress):
    """Watches which Jobs the CronJob makes."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.client)
        self.seen: set[str] = set()

    def see(self, found: Object) -> None:
        if found.metadata.name.startswith("tick-"):
            self.seen.add(found.metadata.name)
        super().see(found)


def _cron_job() -> dict[str, Any]:
    spec = {"schedule": "* * * * *", "jobTemplate": {"spec": job("tick")["spec"]}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"}, "spec": spec}


def _jobs(until: float) -> Iterator[dict[str, Any]]:
    number = 0
    while time.time() < until:
        ttl: dict[str, Any] = {} if number % KEPT_OF == 0 else {"ttlSecondsAfterFinished": TTL}
        yield job(f"{'kept' if not ttl else 'soak'}-{number}", **ttl)
        number += 1


async def _sample(cluster: Cluster, database: asyncpg.Connection, samples: list[Held]) -> None:
    """Look again and again, until cancelled."""
    while True:
        samples.append(await look(cluster, database))
        await asyncio.sleep(EVERY)


def _second_half(samples: Sequence[Held]) -> Sequence[Held]:
    return samples[len(samples) // 2 :]


def grown_memory(samples: Sequence[Held]) -> Iterator[Figure]:
    half = _second_half(samples)
    for role in sorted(half[-1].memory):
        held = [each.memory.get(role, 0.0) for each in half]
        note = (
            f"{samples[0].memory.get(role, 0.0):.0f} MiB at the start, {held[0]:.0f} at half, {held[-1]:.0f} at the end"
        )
        grown = slope([each.at / 3600 for each in half], held)
        yield Figure(name=f"memory of {role}", value=grown, unit="MiB/h", target=MOST_MEMORY, note=note)


def grown_disk(samples: Sequence[Held], progress: Progress, began: float, ended: float) -> Iterator[Figure]:
    """What grows beyond what is to be kept."""
    half, middle = _second_half(samples), (began + ended) / 2
    first, last = half[0].tables, half[-1].tables
    grown = {name: last[name] - first.get(name, 0) for name in last}
    posted = [name for name, at in progress.posted.items() if at >= middle]
    kept = sum(name.startswith("kept") for name in posted) * KEPT_KIB * KIB
    beyond = sum(size for name, size in grown.items() if not name.startswith(MEANT)) - kept
    ordered = sorted(grown.items(), key=lambda pair: -abs(pair[1]))[:5]
    note = "all growth: " + ", ".join(f"{name} {size / len(posted) / KIB:.2f}" for name, size in ordered)
    each = beyond / len(posted) / KIB
    wal = (half[-1].wal - half[0].wal) / len(posted) / KIB
    yield Figure(name="disk beyond what is kept", value=each, unit="KiB/Job", target=MOST_DISK, note=note)
    yield Figure(name="WAL of a Job that is deleted", value=wal, unit="KiB", note=f"that of {NODES} nodes among it")


def slower(progress: Progress, began: float, ended: float) -> Figure:
    middle = (began + ended) / 2
    halves = [progress.latencies(began, middle), progress.latencies(middle, ended)]
    first, second = (percentile(each, 50) for each in halves)
    note = f"p50 {first:.1f}, then {second:.1f} ms; p99 {percentile(halves[0], 99):.0f}, then {percentile(halves[1], 99):.0f}"
    return Figure(
        name="POST to Complete, second half over first", value=second / first, unit="x", target=MOST_SLOWER, note=note
    )


CASE = Case(
    name="soak",
    about="an hour of 10 Jobs a second with a TTL, some that are kept, a CronJob and 10 watchers that come back: what grows",
    run=run,
    longest=7_200.0,
)
