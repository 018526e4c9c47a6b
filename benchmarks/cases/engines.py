"""Whole pods on containerd: what the engine does by itself, our runtime over it, and a Job through the whole service.

The engine by itself: the very same calls one after the other, in a loop with nothing around it.
"""

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

from cri_api.v1 import api_pb2 as pb

from app.runtimes import make_runtime
from app.runtimes.base import ContainerKey, ContainerSpec, Runtime, SandboxSpec
from app.runtimes.cri_engine import Engine
from benchmarks.case import Case
from benchmarks.cases.node import agent_memory
from benchmarks.cluster import Checkout
from benchmarks.figures import Figure
from benchmarks.jobs import JOBS, completions, job
from benchmarks.load import scaled
from tests.runtimes.engines import Containerd, containerd
from tests.runtimes.images import IMAGE

COUNT, AT_ONCE = 60, 4
RUNNING = 100  # pods while the agent's memory is looked at
LOOK = 0.01  # seconds between looks at a container, where nothing tells of its end
COMMAND = ["/bin/true"]

OnePod = Callable[[str], Awaitable[None]]


async def run(checkout: Checkout, scale: float) -> list[Figure]:
    count = max(2 * AT_ONCE, scaled(COUNT, scale))
    async with _engine() as engine:
        async with _bare(engine) as one_pod:
            alone = await _rate(one_pod, count)
        async with _runtime(engine) as one_pod:
            ours = await _rate(one_pod, count)
        whole, held = await _job(checkout, engine, count, scaled(RUNNING, scale))
    note = f"{AT_ONCE} at a time; own network, one container that ends at once, removed"
    return [
        Figure(name="engine alone", value=alone, unit="pods/s", higher_is_better=True, note=note),
        Figure(name="cri runtime", value=ours, unit="pods/s", target=0.8 * alone, higher_is_better=True),
        Figure(name="a Job", value=whole, unit="pods/s", target=0.8 * alone, higher_is_better=True, note="API and all"),
        held,
    ]


async def _rate(one_pod: OnePod, count: int) -> float:
    """Pods a second."""
    names = iter([f"bench-{uuid.uuid4().hex[:8]}" for _ in range(count)])

    async def some() -> None:
        for name in names:
            await one_pod(name)

    await one_pod("bench-warm")
    began = time.perf_counter()
    await asyncio.gather(*[some() for _ in range(AT_ONCE)])
    return count / (time.perf_counter() - began)


@asynccontextmanager
async def _engine() -> AsyncIterator[Containerd]:
    made = containerd()
    engine = await asyncio.to_thread(next, made)
    try:
        yield engine
    finally:
        await asyncio.to_thread(made.close)


@asynccontextmanager
async def _bare(engine: Containerd) -> AsyncIterator[OnePod]:
    calls = Engine(engine.endpoint)

    async def one_pod(name: str) -> None:
        meta = pb.PodSandboxMetadata(name=name, uid=name, namespace="default")
        pod = pb.PodSandboxConfig(metadata=meta, log_directory=str(engine.folder / "logs"))
        made = await calls.ask(pb.RunPodSandboxRequest(config=pod), pb.RunPodSandboxResponse)
        config = pb.ContainerConfig(
            metadata=pb.ContainerMetadata(name="main"),
            image=pb.ImageSpec(image=IMAGE),
            command=COMMAND,
            log_path=f"{name}.log",
        )
        request = pb.CreateContainerRequest(pod_sandbox_id=made.pod_sandbox_id, config=config, sandbox_config=pod)
        container = (await calls.ask(request, pb.CreateContainerResponse)).container_id
        await calls.ask(pb.StartContainerRequest(container_id=container), pb.StartContainerResponse)
        looked = pb.ContainerStatusRequest(container_id=container)
        while (await calls.ask(looked, pb.ContainerStatusResponse)).status.state != pb.CONTAINER_EXITED:  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(LOOK)
        id_ = made.pod_sandbox_id
        await calls.ask(pb.StopPodSandboxRequest(pod_sandbox_id=id_), pb.StopPodSandboxResponse)
        await calls.ask(pb.RemovePodSandboxRequest(pod_sandbox_id=id_), pb.RemovePodSandboxResponse)

    (engine.folder / "logs").mkdir()
    yield one_pod
    await calls.close()


@asynccontextmanager
async def _runtime(engine: Containerd) -> AsyncIterator[OnePod]:
    runtime = make_runtime("cri", engine.folder / "bench", lambda: datetime.now(UTC), engine.endpoint, "bench")

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


async def _job(checkout: Checkout, engine: Containerd, count: int, standing: int) -> tuple[float, Figure]:
    containers = [{"name": "main", "image": IMAGE, "command": COMMAND}]
    async with (
        checkout.up("cri", endpoint=engine.endpoint) as cluster,
        completions(cluster.client) as completed,
        cluster.client.connection() as connection,
    ):
        began = time.time_ns()
        body = job("bench", pod={"containers": containers}, completions=count, parallelism=2 * AT_ONCE)
        await connection.post(JOBS, body)
        await completed.reach(1)
        rate = count / ((completed.at["bench"] - began) / 1e9)
        stands = {"name": "main", "image": IMAGE, "command": ["/bin/sleep", "300"]}
        return rate, await agent_memory(cluster, standing, {"containers": [stands]})


CASE = Case(name="engines", about="60 pods on containerd, 4 at a time; needs root and containerd", run=run)
