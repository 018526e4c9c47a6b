"""What container engines do by themselves, with the same work for each pod as our runtimes give them. Case `engines` asks.

A pod: its own network, held by a sandbox; one container in it that ends at once; both removed.
"""

import asyncio
import os
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

from app.runtimes.cri.engine import CriEngine
from app.runtimes.cri.messages import pb
from app.runtimes.docker.config import PAUSE
from tests.runtimes.images import IMAGE

COMMAND = ["/bin/true"]
LOOK = 0.01  # seconds between looks at a container, where nothing tells of its end
SHELL = """
set -e
docker run -d --name "$0" --ipc shareable --log-driver none {pause} >/dev/null
docker run --name "$0-main" --network "container:$0" --ipc "container:$0" --entrypoint {command} {image}
docker rm -f "$0-main" "$0" >/dev/null
"""

OnePod = Callable[[str], Awaitable[None]]


async def rate(one_pod: OnePod, count: int, at_once: int) -> float:
    """Pods a second."""
    names = iter([f"bench-{uuid.uuid4().hex[:8]}" for _ in range(count)])

    async def some() -> None:
        for name in names:
            await one_pod(name)

    await one_pod("bench-warm")
    began = time.perf_counter()
    await asyncio.gather(*[some() for _ in range(at_once)])
    return count / (time.perf_counter() - began)


async def docker_rate(endpoint: str, count: int, at_once: int) -> float:
    """Pods a second of a shell loop: xargs, and `docker` for every step."""
    await _loop(endpoint, ["bench-warm"], 1)
    began = time.perf_counter()
    await _loop(endpoint, [f"bench-{uuid.uuid4().hex[:8]}" for _ in range(count)], at_once)
    return count / (time.perf_counter() - began)


async def _loop(endpoint: str, names: list[str], at_once: int) -> None:
    script = SHELL.format(pause=PAUSE, command=COMMAND[0], image=IMAGE)
    words = ["xargs", "-n", "1", "-P", str(at_once), "sh", "-c", script]
    env = {**os.environ, "DOCKER_HOST": endpoint}
    loop = await asyncio.create_subprocess_exec(*words, env=env, stdin=asyncio.subprocess.PIPE)
    await loop.communicate("\n".join(names).encode())
    if loop.returncode:
        raise RuntimeError(f"the shell loop over docker ended with {loop.returncode}")


@asynccontextmanager
async def containerd_pods(endpoint: str, folder: Path) -> AsyncIterator[OnePod]:
    """The very same calls one after the other, with nothing around them and no programs started for them."""
    calls = CriEngine(endpoint)

    async def one_pod(name: str) -> None:
        meta = pb.PodSandboxMetadata(name=name, uid=name, namespace="default")
        pod = pb.PodSandboxConfig(metadata=meta, log_directory=str(folder / "logs"))
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

    (folder / "logs").mkdir()
    yield one_pod
    await calls.close()
