"""Whole pods on containerd and on Docker: what the engine does by itself, our runtime over it, and a Job through the service.

The engine by itself gets the same work, so many at a time: containerd the very same calls in a loop with nothing around
it, Docker a shell loop.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Generator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Literal

from app.runtimes import make_runtime
from app.runtimes.base import ContainerKey, ContainerSpec, Runtime, SandboxSpec
from benchmarks.bare_engines import COMMAND, OnePod, containerd_pods, docker_rate, rate
from benchmarks.case import Case
from benchmarks.cases.node import agent_memory
from benchmarks.cluster import Checkout
from benchmarks.figures import Figure
from benchmarks.jobs import JOBS, completions, job
from benchmarks.load import scaled
from tests.runtimes.dockers import Dockerd, dockerd
from tests.runtimes.engines import Containerd, containerd
from tests.runtimes.images import IMAGE

COUNT, AT_ONCE = 48, 8
RUNNING = 100  # pods while the agent's memory is looked at


@dataclass(frozen=True)
class _At:
    """An engine that runs."""

    runtime: Literal["cri", "docker"]
    endpoint: str
    folder: Path


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    count = max(2 * AT_ONCE, scaled(COUNT, scale))
    standing = scaled(RUNNING, scale)
    async with _engine("cri", containerd()) as at:
        async with containerd_pods(at.endpoint, at.folder) as one_pod:
            alone = await rate(one_pod, count, AT_ONCE)
        figures = await _over(checkout, at, alone, count, standing)
    async with _engine("docker", dockerd()) as at:
        alone = await docker_rate(at.endpoint, count, AT_ONCE)
        return [*figures, *await _over(checkout, at, alone, count, standing)]


async def _over(checkout: Checkout, at: _At, alone: float, count: int, standing: int) -> list[Figure]:
    async with _runtime(at) as one_pod:
        ours = await rate(one_pod, count, AT_ONCE)
    whole, held = await _job(checkout, at, count, standing)
    note = f"{AT_ONCE} at a time; own network, one container that ends at once, removed"
    least, name = 0.8 * alone, at.runtime
    return [
        Figure(name=f"{name}: engine alone", value=alone, unit="pods/s", higher_is_better=True, note=note),
        Figure(name=f"{name}: runtime", value=ours, unit="pods/s", target=least, higher_is_better=True),
        Figure(
            name=f"{name}: a Job", value=whole, unit="pods/s", target=least, higher_is_better=True, note="API and all"
        ),
        replace(held, name=f"{name}: {held.name}"),
    ]


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


async def _job(checkout: Checkout, at: _At, count: int, standing: int) -> tuple[float, Figure]:
    containers = [{"name": "main", "image": IMAGE, "command": COMMAND}]
    async with (
        checkout.up(at.runtime, endpoint=at.endpoint) as cluster,
        completions(cluster.client) as completed,
        cluster.client.connection() as connection,
    ):
        began = time.time_ns()
        body = job("bench", pod={"containers": containers}, completions=count, parallelism=AT_ONCE)
        await connection.post(JOBS, body)
        await completed.reach(1)
        rate = count / ((completed.at["bench"] - began) / 1e9)
        stands = {"name": "main", "image": IMAGE, "command": ["/bin/sleep", "300"]}
        return rate, await agent_memory(cluster, standing, {"containers": [stands]})


CASE = Case(name="engines", about="48 pods, 8 at a time, on containerd, then on Docker; needs root and both", run=run)
