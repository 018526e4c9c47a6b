"""Base class of the runtimes that drive a container engine (cri, docker).

The engine keeps the containers and their labels, so they survive the agent, which adopts what `list` finds. An engine that is
away is a ConnectionError everywhere, and nothing is lost by it.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Sequence
from datetime import timedelta
from typing import Protocol
from weakref import WeakValueDictionary

from app.runtimes.base import (
    ContainerKey,
    ContainerSpec,
    ContainerStatus,
    LogChunk,
    Pipe,
    Sandbox,
    SandboxSpec,
    Session,
    StartError,
)
from app.runtimes.engine.containers import Containers, TrackedContainer
from app.runtimes.engine.errors import EngineError, start_code
from app.runtimes.engine.files import Files
from app.runtimes.engine.recovery import Recovery, StartRefusal, VoidError
from app.runtimes.linux import network_namespaces
from app.runtimes.logs import log_files
from app.structured_logging import Logger

logger = Logger(__name__)


class Sandboxes(Protocol):
    """The pods' sandboxes at an engine."""

    async def run(self, spec: SandboxSpec) -> Sandbox: ...

    async def standing(self) -> Sequence[Sandbox]: ...

    async def uids(self) -> set[str]:
        """Pods that have a sandbox, be it a dead one."""

    async def remove(self, pod_uid: str) -> None:
        """With its containers, whatever they do."""

    async def network(self, pod_uid: str) -> str:
        """The path of a pod's network namespace; empty if it is the node's. Raises ConnectionError, Unsupported."""


class Commands(Protocol):
    """Commands in containers, and sessions with their own processes."""

    async def execute(self, key: ContainerKey, argv: Sequence[str], *, tty: bool) -> Session: ...

    async def attach(self, key: ContainerKey) -> Session: ...


class EngineRuntime(ABC):
    """See `base.Runtime`. Made inside a running event loop."""

    def __init__(
        self, files: Files, sandboxes: Sandboxes, containers: Containers, commands: Commands, recovery: Recovery
    ) -> None:
        self._files, self._pods, self._known, self._commands = files, sandboxes, containers, commands
        self._recovery = recovery
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._has_old_files_removed = False
        self._watch = asyncio.get_running_loop().create_task(containers.watch())

    @abstractmethod
    async def _create(self, spec: ContainerSpec) -> TrackedContainer:
        """Raises StartError, CreateError."""

    @abstractmethod
    async def _begin(self, key: ContainerKey, known: TrackedContainer) -> None:
        """Prepare the start of a container that was made, and call `_request_start`. Raises EngineError, VoidError."""

    @abstractmethod
    async def _ask_to_start(self, known: TrackedContainer) -> None:
        """The engine's call. Raises EngineError."""

    @abstractmethod
    async def _end(self, known: TrackedContainer, grace: timedelta) -> None:
        """Ask it to end, and make it end after `grace`. Returns when it has, or is gone."""

    @abstractmethod
    async def _read(self, key: ContainerKey, offset: int, limit: int) -> bytes:
        """Bytes of the engine's log, none if there is no such container. Raises OSError, ValueError, EngineError."""

    async def run_sandbox(self, spec: SandboxSpec) -> Sandbox:
        async with self._one_at_a_time(spec.pod_uid):
            return await self._pods.run(spec)

    async def sandboxes(self) -> Sequence[Sandbox]:
        return await self._pods.standing()

    async def remove_sandbox(self, pod_uid: str) -> None:
        async with self._one_at_a_time(pod_uid):
            await self._pods.remove(pod_uid)
            self._known.forget_pod(pod_uid)
            await asyncio.to_thread(self._files.remove, pod_uid)

    async def remove_container(self, key: ContainerKey) -> None:
        async with self._one_at_a_time(key.pod_uid):
            status = await self._known.status(key)
            known = await self._known.find(key)
            if known and status and status.state == "exited":
                await self._known.remove(key, known)
                await asyncio.to_thread(self._files.remove_run, key)

    async def start_container(self, spec: ContainerSpec) -> None:
        async with self._one_at_a_time(spec.key.pod_uid):
            known = await self._known.find(spec.key)
            if known is None:
                await self._start(spec.key, await self._create(spec))
                return
            status = await self._known.look(spec.key)
            if status and status.state == "created":  # an agent died in between
                await self._start(spec.key, known)

    async def _start(self, key: ContainerKey, known: TrackedContainer) -> None:
        try:
            if self._recovery.is_void(key):
                raise VoidError
            await self._begin(key, known)
        except VoidError as error:
            await self._remake(key, known)
            raise ConnectionError("the container engine was killed, and this container has to be made anew") from error
        except EngineError as error:
            self._files.fail(key, error.details)
            await self._known.look(key)
            raise StartError(error.details, start_code(error.details)) from error
        known.has_begun = True
        self._known.events.add(key)
        self._known.logged.add(key)  # nothing else tells of what was written by now

    async def _request_start(self, key: ContainerKey, known: TrackedContainer) -> None:
        """Ask the engine to start it, though it may be killed over it. Raises EngineError, VoidError, ConnectionError."""
        try:
            await self._ask_to_start(known)
        except ConnectionError:
            if not await self._recovery.has_begun_unanswered(key, known.id):
                raise
        except EngineError as error:
            refusal = await self._recovery.judge_refusal(key, known.id, error.details)
            if refusal is StartRefusal.VOID:
                raise VoidError from error
            if refusal is StartRefusal.FAILED:
                raise

    async def _remake(self, key: ContainerKey, known: TrackedContainer) -> None:
        """Remove a void container: the next start makes it anew."""
        await self._recovery.clear(known.id)
        try:
            await self._known.remove(key, known)
        except EngineError as error:
            raise ConnectionError(f"a container that never ran cannot be removed yet: {error.details}") from error

    async def stop_container(self, key: ContainerKey, grace: timedelta) -> None:
        known = await self._known.find(key)
        if known and not known.over:
            await self._end(known, grace)
            await self._known.wait_until_ended(key)

    async def list(self) -> list[ContainerStatus]:
        found = await self._known.list()
        await self._remove_old_files({status.key.pod_uid for status in found})
        return found

    async def status(self, key: ContainerKey) -> ContainerStatus | None:
        return await self._known.status(key)

    async def execute(self, key: ContainerKey, argv: Sequence[str], *, tty: bool = False) -> Session:
        return await self._commands.execute(key, argv, tty=tty)

    async def attach(self, key: ContainerKey) -> Session:
        return await self._commands.attach(key)

    async def dial(self, pod_uid: str, port: int) -> Pipe:
        return await network_namespaces.dial(await self._pods.network(pod_uid), port)

    def events(self) -> AsyncIterator[ContainerKey]:
        return self._known.events.read()

    def log_events(self) -> AsyncIterator[ContainerKey]:
        return self._known.logged.read()

    async def read_log(self, key: ContainerKey, offset: int, limit: int) -> LogChunk:
        if self._known.outputs.is_diverted(key) and self._known.is_unbegun(key):
            return LogChunk(offset, b"")
        try:
            data = self._known.outputs.read(key, offset, limit, over=self._known.is_over(key))
            return LogChunk(offset, await self._read(key, offset, limit) if data is None else data)
        except ConnectionError:
            raise
        except (OSError, ValueError, EngineError) as error:
            logger.warning("cannot read the log of a container", **key.log_fields, error=error)
            return LogChunk(offset, b"")

    def release_log(self, key: ContainerKey, offset: int) -> None:
        path = self._known.log_path(key)
        if not self._known.outputs.release(key, offset) and path is not None:
            log_files.give_back(path, offset)

    async def close(self) -> None:
        self._watch.cancel()
        await asyncio.gather(self._watch, return_exceptions=True)
        await self._known.close()

    def _one_at_a_time(self, pod_uid: str) -> asyncio.Lock:
        """Held while something of the pod is made or removed."""
        lock = self._locks.get(pod_uid)
        if lock is None:
            lock = self._locks[pod_uid] = asyncio.Lock()
        return lock

    async def _remove_old_files(self, found: set[str]) -> None:
        """Once: files of pods that were removed while an agent died."""
        if not self._has_old_files_removed:
            standing = await self._pods.uids() | found
            self._has_old_files_removed = True
            for uid in set(self._files.pods()) - standing - set(self._locks.keys()):
                await asyncio.to_thread(self._files.remove, uid)
