"""Runs containers by an engine that speaks CRI: containerd or CRI-O. The same calls as a kubelet makes, over its socket.

The engine watches over the containers and remembers them by their labels, so they survive the agent: nothing has to be
adopted but what `list` finds. Logs are files that the engine writes in Kubernetes' format; they are read from disk. An
engine that is away is a ConnectionError everywhere, and nothing is lost by it. An engine that a kubelet uses cannot be
shared with it: it would end our pods as strangers.
"""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from pathlib import Path
from weakref import WeakValueDictionary

from cri_api.v1 import api_pb2 as pb

from app.runtimes import cri_config, cri_images, cri_status, log_files, netns
from app.runtimes.base import (
    ContainerKey,
    ContainerSpec,
    ContainerStatus,
    ContainerUsage,
    CreateError,
    Image,
    LogChunk,
    Login,
    Pipe,
    RuntimeInfo,
    Sandbox,
    SandboxSpec,
    Session,
    StartError,
)
from app.runtimes.cri_commands import Commands
from app.runtimes.cri_config import CONTAINER, NODE
from app.runtimes.cri_containers import Containers, Known
from app.runtimes.cri_engine import TIMEOUT, Engine, EngineError, unless_gone
from app.runtimes.cri_files import Files
from app.runtimes.cri_sandboxes import Sandboxes

logger = logging.getLogger(__name__)


class CriRuntime:
    """See `base.Runtime`. Made inside a running event loop. `node`: tells this agent's pods from others' on one engine."""

    def __init__(self, endpoint: str, root: Path, node: str) -> None:
        self._engine, self._files, self._node = Engine(endpoint), Files(root), node
        self._sandboxes = Sandboxes(self._engine, self._files, node)
        self._containers = Containers(self._engine, self._files, node, self._sandboxes.fresh)
        self._commands = Commands(self._engine, self._containers)
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._swept = False
        self._watch = asyncio.get_running_loop().create_task(self._containers.watch())

    async def info(self) -> RuntimeInfo:
        found = await self._engine.ask(pb.VersionRequest(), pb.VersionResponse)
        return RuntimeInfo(
            name=found.runtime_name,
            version=found.runtime_version,
            survives_agent=True,
            images=True,
            pod_network=True,
            limits=True,
            security=True,
            seccomp=True,
            terminals=True,
        )

    async def run_sandbox(self, spec: SandboxSpec) -> Sandbox:
        async with self._one_at_a_time(spec.pod_uid):
            return await self._sandboxes.run(spec)

    async def sandboxes(self) -> Sequence[Sandbox]:
        return await self._sandboxes.standing()

    async def remove_sandbox(self, pod_uid: str) -> None:
        async with self._one_at_a_time(pod_uid):
            await self._sandboxes.remove(pod_uid)
            self._containers.forget_pod(pod_uid)
            await asyncio.to_thread(self._files.remove, pod_uid)

    async def start_container(self, spec: ContainerSpec) -> None:
        async with self._one_at_a_time(spec.key.pod_uid):
            known = await self._containers.find(spec.key)
            if known is None:
                await self._start(spec.key, await self._create(spec))
                return
            status = await self._containers.look(spec.key)
            if status and status.state == "created":  # an agent died in between
                await self._start(spec.key, known)

    async def _create(self, spec: ContainerSpec) -> Known:
        sandbox = await self._sandboxes.of(spec.key.pod_uid)
        if sandbox is None:
            raise StartError(f'pod "{spec.key.pod_uid}" has no sandbox')
        log_path = await asyncio.to_thread(self._files.make, spec.key)
        config = cri_config.container(spec, sandbox[1], log_path, self._files.message(spec.key))
        request = pb.CreateContainerRequest(pod_sandbox_id=sandbox[0], config=config, sandbox_config=sandbox[1])
        try:
            if spec.security.user is None and spec.security.group is not None:
                await cri_images.add_user(self._engine, spec.image, request.config.linux.security_context)
            made = await self._engine.ask(request, pb.CreateContainerResponse)
        except EngineError as error:
            raise CreateError(error.details) from error
        return self._containers.note(spec.key, made.container_id)

    async def _start(self, key: ContainerKey, known: Known) -> None:
        self._containers.follow_log(key)
        try:
            await self._engine.ask(pb.StartContainerRequest(container_id=known.id), pb.StartContainerResponse)
        except EngineError as error:
            self._files.fail(key, error.details)
            await self._containers.look(key)
            raise StartError(error.details, cri_status.start_code(error.details)) from error
        self._containers.events.add(key)

    async def stop_container(self, key: ContainerKey, grace: timedelta) -> None:
        known = await self._containers.find(key)
        if known is None or known.over:
            return
        seconds = max(0, math.ceil(grace.total_seconds()))  # the engine counts whole ones
        request = pb.StopContainerRequest(container_id=known.id, timeout=seconds)
        with unless_gone():
            await self._engine.ask(request, pb.StopContainerResponse, timeout=seconds + TIMEOUT)
        await self._containers.ended(key)

    async def list(self) -> list[ContainerStatus]:
        found = await self._containers.list()
        await self._sweep({status.key.pod_uid for status in found})
        return found

    async def status(self, key: ContainerKey) -> ContainerStatus | None:
        return await self._containers.status(key)

    async def usage(self) -> Sequence[ContainerUsage]:
        wanted = pb.ContainerStatsFilter(label_selector={NODE: self._node})
        found = await self._engine.ask(pb.ListContainerStatsRequest(filter=wanted), pb.ListContainerStatsResponse)
        return [
            ContainerUsage(
                cri_config.key(dict(each.attributes.labels), each.attributes.metadata.attempt),
                each.cpu.usage_core_nano_seconds.value,
                each.memory.working_set_bytes.value,
            )
            for each in found.stats
            if each.cpu.HasField("usage_core_nano_seconds") and CONTAINER in each.attributes.labels
        ]

    async def images(self) -> Sequence[Image]:
        return await cri_images.images(self._engine)

    async def pull(self, image: str, login: Login | None = None) -> str:
        return await cri_images.pull(self._engine, image, login)

    async def remove_image(self, image_id: str) -> None:
        await cri_images.remove(self._engine, image_id)

    async def execute(self, key: ContainerKey, argv: Sequence[str], *, tty: bool = False) -> Session:
        return await self._commands.execute(key, argv, tty=tty)

    async def attach(self, key: ContainerKey) -> Session:
        return await self._commands.attach(key)

    async def dial(self, pod_uid: str, port: int) -> Pipe:
        return await netns.dial(await self._sandboxes.network(pod_uid), port)

    def events(self) -> AsyncIterator[ContainerKey]:
        return self._containers.events.read()

    def logged(self) -> AsyncIterator[ContainerKey]:
        return self._containers.logged.read()

    async def read_log(self, key: ContainerKey, offset: int, limit: int) -> LogChunk:
        try:
            return LogChunk(offset, log_files.read(self._files.log(key), offset, limit))
        except (OSError, ValueError) as error:
            logger.warning("log of container %s of pod %s: %s", key.name, key.pod_uid, error)
            return LogChunk(offset, b"")

    async def close(self) -> None:
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)
        await self._containers.close()
        await self._engine.close()

    def _one_at_a_time(self, pod_uid: str) -> asyncio.Lock:
        """Held while something of the pod is made or removed."""
        lock = self._locks.get(pod_uid)
        if lock is None:
            lock = self._locks[pod_uid] = asyncio.Lock()
        return lock

    async def _sweep(self, found: set[str]) -> None:
        """Once: files of pods that were removed while an agent died."""
        if not self._swept:
            standing = await self._sandboxes.uids() | found
            self._swept = True
            for uid in set(self._files.pods()) - standing - set(self._locks.keys()):
                await asyncio.to_thread(self._files.remove, uid)
