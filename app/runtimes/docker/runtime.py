"""Runtime `docker`: containers of a Docker Engine, or of Podman as far as its socket goes.

A pod is a container that holds its network and other namespaces, and those that join it. Only with `live-restore` on do
containers outlive a restart of the engine itself; what became of them is known when it is back. What a pod mounts is
on the engine's machine, so the agent is there, too.

Podman does not tell OOMKilled before its version 5, and ends standard input with the first who attached; its containers
never depend on its service. Where it needs another configuration than Docker, `docker_config.adapt_to_podman` makes it.
"""

import asyncio
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

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
from app.runtimes.docker import config as docker_config
from app.runtimes.docker import images as docker_images
from app.runtimes.docker.containers import DockerContainers
from app.runtimes.docker.engine import DockerEngine
from app.runtimes.docker.exec_attach import DockerCommands
from app.runtimes.docker.images import DockerImages
from app.runtimes.docker.logs import EngineLogs
from app.runtimes.docker.recovery import DockerDiversion
from app.runtimes.docker.sandboxes import DockerSandboxes
from app.runtimes.engine.containers import TrackedContainer, answers
from app.runtimes.engine.errors import GONE, EngineError, unless_gone
from app.runtimes.engine.files import Files
from app.runtimes.engine.runtime import EngineRuntime
from app.structured_logging import Logger

SOCKET = "unix:///var/run/docker.sock"

logger = Logger(__name__)


def usual_endpoint() -> str:
    return os.environ.get("DOCKER_HOST") or SOCKET


class DockerRuntime(EngineRuntime):
    """`node`: tells this agent's pods from others' on one engine. `pids`: most processes of a container; 0: any number."""

    def __init__(self, endpoint: str, root: Path, node: str, pids: int = 0) -> None:
        self._engine, self._node, self._pids = DockerEngine(endpoint), node, pids
        files = Files(root)
        self._logs, self._images = EngineLogs(self._engine, files), DockerImages(self._engine)
        self._sandboxes = DockerSandboxes(self._engine, node)
        self._containers = DockerContainers(self._engine, files, self._logs, node, self._sandboxes)
        self._diversion = DockerDiversion(self._containers.outputs, self._sandboxes.bundles)
        commands = DockerCommands(self._engine, self._containers)
        super().__init__(files, self._sandboxes, self._containers, commands, self._containers.recovery)

    async def info(self) -> RuntimeInfo:
        found = await self._engine.ask("version")
        podman = await self._engine.is_podman()
        if not podman and not (await self._engine.ask("info")).get("LiveRestoreEnabled"):
            logger.warning(
                "Docker runs without live-restore; it kills all containers when it restarts. Turn live-restore on"
            )
        return RuntimeInfo(
            name="podman" if podman else "docker",
            version=found["Version"],
            store=str(await self._logs.root()),
            survives_agent=True,
            images=True,
            pod_network=True,
            limits=True,
            security=True,
            seccomp=True,
            terminals=True,
        )

    async def _create(self, spec: ContainerSpec) -> TrackedContainer:
        sandbox = await self._sandboxes.of(spec.key.pod_uid)
        if sandbox is None:
            raise StartError(f'pod "{spec.key.pod_uid}" has no sandbox')
        await asyncio.to_thread(self._files.make, spec.key)
        try:
            user = ""
            if spec.security.user is None and spec.security.group is not None:
                user = await self._images.user(spec.image)
            log = await self._log(spec, sandbox[0])
            body = docker_config.container(spec, *sandbox, self._files.message(spec.key), user, log)
            body["HostConfig"]["PidsLimit"] = self._pids or None
            if await self._engine.is_podman():
                docker_config.adapt_to_podman(body, spec.security.seccomp)
            name = docker_config.name(self._node, *spec.key)
            made = await self._engine.ask("containers/create", "POST", body, name=name)
        except EngineError as error:
            raise CreateError(error.details) from error
        except OSError as error:
            if isinstance(error, ConnectionError):
                raise
            raise CreateError(str(error)) from error  # its seccomp profile cannot be read
        return self._containers.note(spec.key, made["Id"])

    async def _log(self, spec: ContainerSpec, sandbox_id: str) -> docker_config.Body:
        """Log configuration of a container."""
        podman = await self._engine.is_podman()
        if await self._diversion.decide(spec.key, sandbox_id, is_possible=not (podman or spec.tty)):
            return docker_config.NO_LOG
        return docker_config.PODMAN_LOG if podman else docker_config.LOG

    async def _begin(self, key: ContainerKey, known: TrackedContainer) -> None:
        if self._containers.outputs.is_diverted(key):
            await self._divert(key, known.id)
        await self._logs.root()  # asked now: recovery needs it when the engine is dead
        with self._containers.recovery.starting(key):
            self._files.begin(key)
            await self._request_start(key, known)
        await self._containers.look(key)

    async def _ask_to_start(self, known: TrackedContainer) -> None:
        await self._engine.ask(f"containers/{known.id}/start", "POST")

    async def _divert(self, key: ContainerKey, id_: str) -> None:
        if sandbox := await self._sandboxes.of(key.pod_uid):
            await self._sandboxes.bundles.find(sandbox[0])
        self._diversion.divert(key, id_)

    async def list(self) -> list[ContainerStatus]:
        found = await super().list()
        try:
            await self._containers.recovery.kill_lost()
        except (EngineError, OSError) as error:
            logger.info("cannot look for containers that the engine has lost; retrying", error=error)
        return found

    async def _end(self, known: TrackedContainer, grace: timedelta) -> None:
        seconds = max(0.0, grace.total_seconds())
        with unless_gone():
            if seconds:
                about = await self._containers.ask(known.id)
                await self._signal(known, about["Config"].get("StopSignal") or "SIGTERM")
                with suppress(TimeoutError):
                    async with asyncio.timeout(seconds):
                        await self._containers.until_over(known.key)
                        return
            await self._signal(known, "SIGKILL")
            await self._containers.until_over(known.key)

    async def _signal(self, known: TrackedContainer, signal: str) -> None:
        """Fine if it does not run any more; Podman has no code of its own for that."""
        try:
            await self._engine.ask(f"containers/{known.id}/kill", "POST", signal=signal)
        except EngineError as error:
            if error.code == GONE or (await self._containers.ask(known.id))["State"]["Running"]:
                raise

    async def usage(self) -> Sequence[ContainerUsage]:
        try:
            running = await self._containers.running()
        except EngineError as error:  # of a container that goes at this moment
            raise ConnectionError(str(error)) from error
        found = await answers([self._usage_of(*one) for one in running])
        return [one for one in found if one]

    async def _usage_of(self, key: ContainerKey, id_: str, disk: int) -> ContainerUsage | None:
        try:
            found: Mapping[str, Any] = await self._engine.ask(f"containers/{id_}/stats?stream=0&one-shot=1") or {}
        except EngineError:
            return None
        memory = found.get("memory_stats") or {}
        details = memory.get("stats") or {}
        idle = details.get("total_inactive_file", details.get("inactive_file", 0))
        if "usage" not in memory:
            return None
        cpu = found["cpu_stats"]["cpu_usage"]["total_usage"]
        return ContainerUsage(key, cpu, max(0, memory["usage"] - idle), disk)

    async def images(self) -> Sequence[Image]:
        return await self._images.all()

    async def pull(self, image: str, login: Login | None = None) -> str:
        return await docker_images.pull(self._engine, image, login)

    async def remove_image(self, image_id: str) -> None:
        await self._images.remove(image_id)

    async def _read(self, key: ContainerKey, offset: int, limit: int) -> bytes:
        known = await self._containers.find(key)
        if known is None:
            return b""
        if self._logs.path(known.id) is None:
            await self._containers.look(key)
        return self._logs.read(known.id, offset, limit)

    async def close(self) -> None:
        await super().close()
        self._logs.close()
        await self._engine.close()
