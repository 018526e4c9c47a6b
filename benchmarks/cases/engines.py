"""Whole pods on containerd and on Docker: what the engine does by itself, our runtime over it, and a Job through the service.

The three are measured in turn, some rounds of them, and what is ours is told as a share of what the engine did by itself in the
same round: how fast a machine is changes while it is measured. The engine by itself gets the same work, so many at a time:
containerd the very same calls in a loop with nothing around it, Docker a shell loop. All the while a Jobplane is there, idle
but for its Job.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Literal, NamedTuple

from app.runtimes import make_runtime
from app.runtimes.base import ContainerKey, ContainerSpec, Runtime, SandboxSpec
from benchmarks.bare_engines import COMMAND, OnePod, containerd_pods, docker_rate, rate
from benchmarks.case import Case
from benchmarks.cases.node import agent_memory
from benchmarks.cluster import Checkout, Cluster
from benchmarks.figures import Figure
from benchmarks.jobs import JOBS, completions, job
from benchmarks.load import scaled
from tests.runtimes import dockers, engines
from tests.runtimes.dockers import Dockerd, dockerd
from tests.runtimes.engines import Containerd, containerd, missing
from tests.runtimes.images import IMAGE

COUNT, AT_ONCE, ROUNDS = 24, 8, 3
QUIET = 10.0  # seconds within which a Job's end should have died away
RUNNING = 100  # pods while the agent's memory is looked at


@dataclass(frozen=True)
class _At:
    """An engine that runs."""

    runtime: Literal["cri", "docker"]
    endpoint: str
    folder: Path


class _Round(NamedTuple):
    """Pods a second, measured one after the other."""

    alone: float
    runtime: float
    job: float


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    count = max(2 * AT_ONCE, scaled(COUNT, scale))
    standing = scaled(RUNNING, scale)
    async with (
        _engine("cri", containerd()) as at,
        containerd_pods(at.endpoint, at.folder) as one_pod,
    ):
        figures = await _measured(checkout, at, partial(rate, one_pod, count, AT_ONCE), count, standing)
    async with _engine("docker", dockerd()) as at:
        alone = partial(docker_rate, at.endpoint, count, AT_ONCE)
        return [*figures, *await _measured(checkout, at, alone, count, standing)]


async def _measured(
    checkout: Checkout, at: _At, alone: Callable[[], Awaitable[float]], count: int, standing: int
) -> list[Figure]:
    rounds = []
    async with _runtime(at) as one_pod, checkout.up(at.runtime, endpoint=at.endpoint) as cluster:
        for number in range(ROUNDS):
            by_itself, ours = await alone(), await rate(one_pod, count, AT_ONCE)
            rounds.append(_Round(by_itself, ours, await _job(cluster, f"bench-{number}", count)))
            await cluster.settle(QUIET)
        stands = {"name": "main", "image": IMAGE, "command": ["/bin/sleep", "300"]}
        held = await agent_memory(cluster, standing, {"containers": [stands]})
    return [replace(each, name=f"{at.runtime}: {each.name}") for each in (*_told(rounds), held)]


def _told(rounds: Sequence[_Round]) -> list[Figure]:
    """Figures of one engine."""
    alone = [each.alone for each in rounds]
    note = f"{AT_ONCE} at a time; own network, one container that ends at once, removed; beside an idle Jobplane"
    note += f"; rounds: {_listed(alone, 1)}"
    return [
        Figure(name="engine alone", value=median(alone), unit="pods/s", higher_is_better=True, note=note),
        _share("the runtime's share", [each.runtime for each in rounds], alone),
        _share("a Job's share", [each.job for each in rounds], alone, "API and all; "),
    ]


def _share(name: str, rates: Sequence[float], alone: Sequence[float], note: str = "") -> Figure:
    """Of what the engine does alone, each rate beside that of its round."""
    shares = [100 * ours / theirs for ours, theirs in zip(rates, alone, strict=True)]
    note += f"rounds: {_listed(shares, 0)} %; {_listed(rates, 1)} pods/s"
    return Figure(name=name, value=median(shares), unit="%", target=80, higher_is_better=True, note=note)


def _listed(values: Sequence[float], digits: int) -> str:
    return ", ".join(f"{each:.{digits}f}" for each in values)


@asynccontextmanager
async def _engine(
    runtime: Literal["cri", "docker"], made: Generator[Containerd | Dockerd, None, None]
) -> AsyncIterator[_At]:
    engine = await asyncio.to_thread(next, made)
    try:
        with TemporaryDirectory(prefix="jobplane-bench-") as folder:
            yield _At(runtime, engine.endpoint, Path(folder))
    finally:
        await asyncio.to_thread(made.close)


@asynccontextmanager
async def _runtime(at: _At) -> AsyncIterator[OnePod]:
    runtime = make_runtime(at.runtime, at.folder / "state", lambda: datetime.now(UTC), at.endpoint, "bench")

    async def one_pod(name: str) -> None:
        await runtime.run_sandbox(SandboxSpec(pod_uid=name, namespace="default", name=name))
        key = ContainerKey(name, "main", 0)
        events = runtime.events()
        await runtime.start_container(ContainerSpec(key=key, image=IMAGE, command=COMMAND, env={}))
        await _ended(runtime, key, events)
        await runtime.read_log(key, 0, 4096)
        await runtime.stop_container(key, timedelta())
        await runtime.remove_sandbox(name)

    yield one_pod
    await runtime.close()


async def _ended(runtime: Runtime, key: ContainerKey, events: AsyncIterator[ContainerKey]) -> None:
    async for each in events:
        if each == key and (status := await runtime.status(key)) and status.state == "exited":
            return


async def _job(cluster: Cluster, name: str, count: int) -> float:
    """Pods a second, from the POST of a Job until it is seen to be complete."""
    containers = [{"name": "main", "image": IMAGE, "command": COMMAND}]
    async with completions(cluster.client) as completed, cluster.client.connection() as connection:
        began = time.time_ns()
        body = job(name, pod={"containers": containers}, completions=count, parallelism=AT_ONCE)
        await connection.post(JOBS, body)
        await completed.reach(1)
    return count / ((completed.at[name] - began) / 1e9)


CASE = Case(
    name="engines",
    about="24 pods, 8 at a time, 3 rounds each way, on containerd, then on Docker; needs root and both",
    run=run,
    missing=lambda: missing(*{*engines.PROGRAMS, *dockers.PROGRAMS}),
)
