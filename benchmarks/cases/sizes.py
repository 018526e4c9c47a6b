"""Three sizes of a lab that run on this machine, held against what `benchmarks.model` says of them.

Each first stands idle with its nodes and watchers, which gives what a node costs, then runs Jobs at an even pace, which gives
what a Job costs when few are under way: most of a lab's day, and several times the cost of a burst's. How quick a core is just
now, which other programs change, too, a burst as that of `many-jobs` tells before each size.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import asyncpg

from benchmarks.case import Case
from benchmarks.cases import many_jobs
from benchmarks.cases.kept_jobs import open_database
from benchmarks.cluster import Checkout, Cluster
from benchmarks.figures import Figure, cpu_each, percentile
from benchmarks.jobs import JOBS, job
from benchmarks.load import scaled
from benchmarks.model import COSTS, PROCESSES, Lab, Need, need
from benchmarks.pods import PODS
from benchmarks.runs import say
from benchmarks.steady import Held, Progress, Watcher, following, look, loopback, post_evenly

SIZES = (
    Lab(nodes=100, jobs=5, watchers=2),
    Lab(nodes=500, jobs=20, watchers=5),
    Lab(nodes=2_000, jobs=50, watchers=10),
)
SECONDS, IDLE_SECONDS = 60.0, 20.0
MOST_OFF = 1.5  # within what the model keeps in reserve: two runs of an hour differ by a third
KIB = 1 << 10
KEPT = ("heads", "versions", "job_records", "job_record_attempts")


@dataclass(frozen=True)
class Stretch:
    """What was used in some seconds: CPU seconds by role, bytes of loopback, and what was held before and after."""

    seconds: float
    cpu: Mapping[str, float]
    bytes: int
    before: Held
    after: Held

    def cores(self, role: str) -> float:
        return self.cpu.get(role, 0.0) / self.seconds


class Meter:
    """Measures stretches of one cluster."""

    def __init__(self, cluster: Cluster, database: asyncpg.Connection) -> None:
        self._cluster, self._database = cluster, database

    async def start(self) -> None:
        self._before = await look(self._cluster, self._database)
        self._cpu, self._bytes, self._began = self._cluster.cpu(), loopback(), time.monotonic()

    async def stop(self) -> Stretch:
        cpu = await self._cluster.spent_since(self._cpu)
        seconds, received = time.monotonic() - self._began, loopback() - self._bytes
        return Stretch(seconds, cpu, received, self._before, await look(self._cluster, self._database))


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    figures: list[Figure] = []
    for lab in SIZES:
        core = await _core(checkout, scale)
        found = await _measure(checkout, lab._replace(nodes=scaled(lab.nodes, scale), jobs=lab.jobs * scale), core)
        for each in found:  # a later size that breaks does not lose them
            say(f"  {each.name}: {each.value:.4g} {each.unit} ({each.note})")
        figures += found
    return figures


async def _core(checkout: Checkout, scale: float) -> float:
    """How much CPU a Job of a burst takes, over what it took when the model's figures were measured."""
    found = next(each for each in await many_jobs.run(checkout, scale) if each.name == "CPU per Job")
    burst = COSTS.job_burst
    return found.value / sum(burst.of(process) for process in (*PROCESSES, "agent"))


async def _measure(checkout: Checkout, lab: Lab, core: float) -> list[Figure]:
    count = max(1, round(lab.jobs * SECONDS))
    async with checkout.up(nodes=lab.nodes, settle=30.0) as cluster, cluster.client.connection() as connection:
        database = await open_database(cluster)
        progress = Progress(cluster.client)
        watchers = [Watcher(cluster.client, (JOBS, PODS)[number % 2]) for number in range(lab.watchers)]
        meter = Meter(cluster, database)
        try:
            async with following([progress, *watchers]):
                await meter.start()
                await asyncio.sleep(IDLE_SECONDS)
                idle = await meter.stop()
                heard = _heard(watchers)
                await meter.start()
                await post_evenly(connection, progress, lab.jobs, (job(f"even-{number}") for number in range(count)))
                await progress.at_most(0)
                busy = await meter.stop()
                heard = _heard(watchers) - heard
        finally:
            await database.close()
    reached = lab._replace(jobs=count / busy.seconds, kept=0)
    latency = percentile(progress.latencies(), 50)
    return [
        *_costs(lab, idle, busy, count, heard, core),
        *_beside(reached, need(reached, core), idle, busy, count, latency),
    ]


def _heard(watchers: Iterable[Watcher]) -> Counter[str]:
    """Events that were delivered so far, and their bytes."""
    given = list(watchers)
    return Counter(events=sum(each.events for each in given), bytes=sum(each.received for each in given))


def _name(lab: Lab) -> str:
    return f"{lab.nodes:,} nodes"


def _costs(lab: Lab, idle: Stretch, busy: Stretch, count: int, heard: Counter[str], core: float) -> list[Figure]:
    """What the model's figures are from."""
    name = _name(lab)
    above = {role: used - idle.cores(role) * busy.seconds for role, used in busy.cpu.items()}
    moved = (busy.bytes - heard["bytes"] - idle.bytes / idle.seconds * busy.seconds) / count / KIB
    wal = idle.after.wal - idle.before.wal
    held = ", ".join(f"{role} {idle.after.memory[role]:.0f}" for role in PROCESSES)
    return [
        Figure(name=f"{name}: CPU of a core here, over the model's", value=core, unit="x"),
        Figure(
            name=f"{name}: memory idle", value=sum(idle.after.memory[role] for role in PROCESSES), unit="MiB", note=held
        ),
        _per_node(name, idle, lab.nodes),
        cpu_each(f"Job, {name}", above, count),
        Figure(
            name=f"{name}: loopback for a Job",
            value=moved,
            unit="KiB",
            note=_network_note(lab, idle, heard, count),
        ),
        Figure(name=f"{name}: WAL of a node", value=wal / idle.seconds / lab.nodes, unit="B/s"),
        Figure(
            name=f"{name}: open files of the API",
            value=busy.after.files.get("api", 0),
            unit="files",
            note=f"{lab.watchers} watchers; " + ", ".join(f"{role} {each}" for role, each in busy.after.files.items()),
        ),
    ]


def _network_note(lab: Lab, idle: Stretch, heard: Counter[str], count: int) -> str:
    return (
        f"{idle.bytes / idle.seconds / lab.nodes:.0f} bytes a second for a node; without {heard['events'] / count:.0f} "
        f"deliveries to watchers of {heard['bytes'] / max(1, heard['events']):.0f} bytes, and without Postgres, which has a "
        "socket of its own; other programs' bytes count, too"
    )


def _per_node(name: str, idle: Stretch, nodes: int) -> Figure:
    each = {role: used * 1000 / idle.seconds / nodes for role, used in idle.cpu.items()}
    note = ", ".join(f"{role} {used:.3f}" for role, used in sorted(each.items()))
    return Figure(name=f"CPU a second per node, {name}", value=sum(each.values()), unit="ms", note=note, parts=each)


def _beside(lab: Lab, said: Need, idle: Stretch, busy: Stretch, count: int, latency: float) -> list[Figure]:
    """Measured over what the model says."""
    name = f"{_name(lab)}, {lab.jobs:.3g} Jobs/s"
    grown = sum(busy.after.tables.get(each, 0) - busy.before.tables.get(each, 0) for each in KEPT)
    wal = busy.after.wal - busy.before.wal - (idle.after.wal - idle.before.wal) / idle.seconds * busy.seconds
    return [
        Figure(name=f"{name}: POST to Complete, p50", value=latency, unit="ms"),
        _ratio(f"{name}: cores over the model's", {each: busy.cores(each) for each in PROCESSES}, said.cores),
        _ratio(f"{name}: MiB over the model's", busy.after.memory, said.memory),
        *_disk(name, said, grown / count / KIB, wal / count / KIB),
    ]


def _ratio(name: str, measured: Mapping[str, float], said: Mapping[str, float]) -> Figure:
    parts = {role: (measured.get(role, 0.0), said[role]) for role in PROCESSES}
    note = ", ".join(f"{role} {here:.3g} of {there:.3g}" for role, (here, there) in parts.items())
    value = sum(here for here, _ in parts.values()) / sum(there for _, there in parts.values())
    return Figure(name=name, value=value, unit="x", target=MOST_OFF, note=note)


def _disk(name: str, said: Need, grown: float, wal: float) -> list[Figure]:
    return [
        Figure(
            name=f"{name}: disk of a Job over the model's",
            value=grown / said.job_kib,
            unit="x",
            target=MOST_OFF,
            note=f"{grown:.1f} of {said.job_kib:.1f} KiB",
        ),
        Figure(
            name=f"{name}: WAL of a Job over the model's",
            value=wal / said.wal_kib,
            unit="x",
            target=MOST_OFF,
            note=f"{wal:.1f} of {said.wal_kib:.1f} KiB",
        ),
    ]


CASE = Case(
    name="sizes",
    about="100, 500 and 2,000 simulated nodes with 5, 20 and 50 Jobs a second for a minute, beside what the model says",
    run=run,
    longest=2_400.0,
)
