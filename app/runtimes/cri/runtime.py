"""Runtime `cri`: containers of an engine that speaks CRI, containerd or CRI-O. Makes the calls of a kubelet, over its socket.

Logs are files that the engine writes in Kubernetes' format; they are read from disk. An engine that a kubelet uses
cannot be shared with it: it would end our pods as strangers.

CRI-O makes a container's process when it makes the container: what cannot be run is a CreateError there, not a StartError.
A stop without grace is SIGTERM and at once SIGKILL. Unless it is configured to tell events, ends are polled for.
"""

import asyncio
import math
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path

from app.runtimes.base import (
    ContainerKey,
    ContainerSpec,
    ContainerStatus,
    ContainerUsage,
    CreateError,
    Image,
    Login,
    RuntimeInfo,
    StartError,
)
from app.runtimes.cri import config as cri_config
from app.runtimes.cri import images as cri_images
from app.runtimes.cri import network
from app.runtimes.cri.containers import CriContainers
from app.runtimes.cri.engine import TIMEOUT, CriEngine
from app.runtimes.cri.exec_attach import CriCommands
from app.runtimes.cri.messages import pb
from app.runtimes.cri.recovery import CriDiversion
from app.runtimes.cri.sandboxes import CriSandboxes
from app.runtimes.engine.config import CONTAINER, NODE
from app.runtimes.engine.containers import TrackedContainer
from app.runtimes.engine.errors import EngineError, unless_gone
from app.runtimes.engine.files import Files
from app.runtimes.engine.runtime import EngineRuntime
from app.runtimes.linux import pids_limit
from app.runtimes.logs import log_files
from app.structured_logging import Logger

logger = Logger(__name__)


class CriRuntime(EngineRuntime):
    """`node`: tells this agent's pods from others' on one engine. `pids`: most processes of a container; 0: any number."""

    def __init__(self, endpoint: str, root: Path, node: str, pids: int = 0) -> None:
        self._engine, self._node, self._pids = CriEngine(endpoint), node, pids
        self._limited: set[ContainerKey] = set()
        files = Files(root)
        self._sandboxes = CriSandboxes(self._engine, files, node)
        self._containers = CriContainers(self._engine, files, node, self._sandboxes.fresh)
        self._diversion = CriDiversion(self._engine, self._containers.outputs)
        commands = CriCommands(self._engine, self._containers)
        super().__init__(files, self._sandboxes, self._containers, commands, self._containers.recovery)

    async def info(self) -> RuntimeInfo:
        found = await self._engine.ask(pb.VersionRequest(), pb.VersionResponse)
        return RuntimeInfo(
            name=found.runtime_name,
            version=found.runtime_version,
            survives_agent=True,
            images=True,
            pod_network=True,
            handlers=True,
            limits=True,
            security=True,
            seccomp=True,
            terminals=True,
            store=await cri_images.store(self._engine),
        )

    async def _create(self, spec: ContainerSpec) -> TrackedContainer:
        sandbox = await self._sandboxes.of(spec.key.pod_uid)
        if sandbox is None:
            raise StartError(f'pod "{spec.key.pod_uid}" has no sandbox')
        log_path = await asyncio.to_thread(self._files.make, spec.key)
        config = cri_config.container(spec, sandbox[1], log_path, self._files.message(spec.key))
        request = pb.CreateContainerRequest(pod_sandbox_id=sandbox[0], config=config, sandbox_config=sandbox[1])
        fresh = self._sandboxes.fresh & {spec.key.pod_uid}
        self._sandboxes.fresh -= fresh  # until the engine has answered
        try:
            if spec.security.user is None and spec.security.group is not None:
                await cri_images.add_user(self._engine, request.config.image, request.config.linux.security_context)
            made = await self._engine.ask(request, pb.CreateContainerResponse)
        except EngineError as error:
            raise CreateError(error.details) from error
        self._sandboxes.fresh |= fresh
        return self._containers.note(spec.key, made.container_id)

    async def _begin(self, key: ContainerKey, known: TrackedContainer) -> None:
        places = await self._diversion.places(known.id)
        self._files.begin(key)
        with self._diversion.diverted(key, places):
            self._containers.follow_log(key)
            await self._request_start(key, known)
        await self._limit_processes(key, known.id)

    async def list(self) -> list[ContainerStatus]:
        found = await super().list()
        running = {each.key: each.id for each in found if each.state == "running"}
        self._limited &= running.keys()
        for key in running.keys() - self._limited:  # an agent died after it had started them
            await self._limit_processes(key, running[key])
        return found

    async def _limit_processes(self, key: ContainerKey, id_: str) -> None:
        """Once for each: CRI has a field for it on cgroups of version 2 only. A container that has ended needs none."""
        if not self._pids or key in self._limited:
            return
        with unless_gone(), suppress(FileNotFoundError, ProcessLookupError):
            if pid := await self._containers.pid(id_):
                self._limited.add(key)
                if not await asyncio.to_thread(pids_limit.set_limit, pid, id_, self._pids):
                    logger.warning("cannot limit the processes of a container: it has no cgroup here", **key.log_fields)

    async def _ask_to_start(self, known: TrackedContainer) -> None:
        await self._engine.ask(pb.StartContainerRequest(container_id=known.id), pb.StartContainerResponse)

    async def _end(self, known: TrackedContainer, grace: timedelta) -> None:
        seconds = max(0, math.ceil(grace.total_seconds()))  # the engine counts whole ones
        request = pb.StopContainerRequest(container_id=known.id, timeout=seconds)
        with unless_gone():
            await self._engine.ask(request, pb.StopContainerResponse, timeout=seconds + TIMEOUT)

    async def use_pod_cidr(self, cidr: str) -> bool:
        """Give pods addresses of it from now on. False if somebody else has configured their network.

        Raises ConnectionError, OSError.
        """
        return await network.write(self._engine, self._node, cidr)

    async def usage(self) -> Sequence[ContainerUsage]:
        wanted = pb.ContainerStatsFilter(label_selector={NODE: self._node})
        found = await self._engine.ask(pb.ListContainerStatsRequest(filter=wanted), pb.ListContainerStatsResponse)
        return [
            self._usage_of(each)
            for each in found.stats
            if each.cpu.HasField("usage_core_nano_seconds") and CONTAINER in each.attributes.labels
        ]

    def _usage_of(self, found: pb.ContainerStats) -> ContainerUsage:
        key = cri_config.key(dict(found.attributes.labels), found.attributes.metadata.attempt)
        logs = self._containers.outputs.size(key) + log_files.size_on_disk(self._files.log(key))
        disk = found.writable_layer.used_bytes.value + logs
        return ContainerUsage(key, found.cpu.usage_core_nano_seconds.value, found.memory.working_set_bytes.value, disk)

    async def images(self) -> Sequence[Image]:
        return await cri_images.images(self._engine)

    async def pull(self, image: str, login: Login | None = None) -> str:
        return await cri_images.pull(self._engine, image, login)

    async def remove_image(self, image_id: str) -> None:
        await cri_images.remove(self._engine, image_id)

    async def _read(self, key: ContainerKey, offset: int, limit: int) -> bytes:
        return log_files.read(self._files.log(key), offset, limit)

    async def close(self) -> None:
        await super().close()
        await self._engine.close()
