"""Containers at an engine that speaks CRI: calls about them, and waiting for their ends. Called by the cri runtime."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from app.runtimes.base import ContainerKey, ContainerStatus
from app.runtimes.cri import config, events
from app.runtimes.cri import status as cri_status
from app.runtimes.cri.engine import Engine
from app.runtimes.cri.messages import pb
from app.runtimes.engine import containers as engine_containers
from app.runtimes.engine import shims as engine_shims
from app.runtimes.engine.config import NODE, POD
from app.runtimes.engine.containers import CHASE, Known, Row
from app.runtimes.engine.errors import GONE, EngineError, unless_gone
from app.runtimes.engine.files import Files

MAY_BE_UNBEGUN = (None, 137)  # exit codes; a restarted containerd kills what it had made and not started
LAGS = (*CHASE, *[1.0] * 8)  # seconds between looks at what runs, until a slow engine has noted down that it does


class Containers(engine_containers.Containers):
    """Those of one node."""

    def __init__(self, engine: Engine, files: Files, node: str, whole: set[str]) -> None:
        super().__init__(files.root, whole)
        self._engine, self._files, self._node = engine, files, node
        self.void: set[ContainerKey] = set()  # those that have to be made anew before they can be started

    async def rows(self, pod_uid: str = "") -> Sequence[Row]:
        labels = {NODE: self._node, POD: pod_uid} if pod_uid else {NODE: self._node}
        wanted = pb.ContainerFilter(label_selector=labels)
        found = await self._engine.ask(pb.ListContainersRequest(filter=wanted), pb.ListContainersResponse)
        return [
            Row(config.key(dict(one.labels), one.metadata.attempt), one.id, one.state == pb.CONTAINER_RUNNING)
            for one in found.containers
        ]

    async def ids(self) -> set[str]:
        """Of all containers of the engine, whoever's they are."""
        found = await self._engine.ask(pb.ListContainersRequest(), pb.ListContainersResponse)
        return {one.id for one in found.containers}

    async def ask(self, id_: str, *, verbose: bool = False) -> pb.ContainerStatusResponse:
        request = pb.ContainerStatusRequest(container_id=id_, verbose=verbose)
        return await self._engine.ask(request, pb.ContainerStatusResponse)

    async def ask_status(self, key: ContainerKey, id_: str) -> ContainerStatus | None:
        try:
            found = await self._noted_down(key, id_)
        except EngineError as error:
            if error.code != GONE:
                raise
            return None
        if found.state == pb.CONTAINER_CREATED and (words := self._files.failure(key)):
            found.state, found.reason, found.message = pb.CONTAINER_EXITED, "StartError", words
            found.finished_at = found.created_at
        if self._is_void(key, found):
            self.void.add(key)
            return ContainerStatus(key=key, state="created", id=id_)
        if self._ran_unnoted(key, found):
            found.state = pb.CONTAINER_UNKNOWN
        elif cri_status.ran(found) and not found.started_at:  # a restarted engine has not seen when
            found.started_at = int(self._files.begun_at(key) * 1_000_000_000)
        status = cri_status.status_of(key, found, self._files.last_words(key))
        return cri_status.with_code(status, self._files.exit_code(key))

    async def _noted_down(self, key: ContainerKey, id_: str) -> pb.ContainerStatus:
        """What a container writes may be seen before the engine has noted down that it runs: then that is waited for."""
        found = (await self.ask(id_)).status
        for pause in LAGS:
            if not self._ran_unnoted(key, found) or self._is_newer_than(key):
                break
            await asyncio.sleep(pause)
            found = (await self.ask(id_)).status
        return found

    def _ran_unnoted(self, key: ContainerKey, found: pb.ContainerStatus) -> bool:
        """Whether it has run, and the engine says that it was only made."""
        if found.state != pb.CONTAINER_CREATED or self._files.failure(key) or self._is_void(key, found):
            return False
        return self._files.exit_code(key) not in MAY_BE_UNBEGUN or self.outputs.has_some(key)

    def _is_newer_than(self, key: ContainerKey) -> bool:
        """Whether the engine was restarted since it was to start a container: what it does not know, it never will."""
        started = engine_shims.started_at(self._engine.process[0])
        return started is not None and started > self._files.begun_at(key)

    def _is_void(self, key: ContainerKey, found: pb.ContainerStatus) -> bool:
        """Whether it is of no use any more, and never ran: the engine was killed while it made or started it."""
        if found.state == pb.CONTAINER_UNKNOWN:
            return not self._files.has_begun(key)
        if found.reason == "StartError" and cri_status.never_began(found.message):
            return True
        if found.state == pb.CONTAINER_RUNNING or found.started_at or not self.outputs.is_diverted(key):
            return False
        return cri_status.was_not_let_go(self.outputs.beginning(key, cri_status.OUTPUT_LIMIT))

    async def begins(self, key: ContainerKey) -> bool:
        """Whether it goes on from being made, in a while. Raises ConnectionError, EngineError."""
        for pause in CHASE:
            await asyncio.sleep(pause)
            status = await self.look(key)
            if status and status.state != "created":
                return True
        return False

    async def remove(self, key: ContainerKey, known: Known) -> None:
        """Raises ConnectionError, EngineError."""
        request = pb.RemoveContainerRequest(container_id=known.id)
        with unless_gone():
            await self._engine.ask(request, pb.RemoveContainerResponse)
        self._files.forget_start(key)
        self.outputs.unmake(key)
        self.forget(key)

    def forget(self, key: ContainerKey) -> None:
        super().forget(key)
        self.void.discard(key)

    async def ends(self) -> AsyncIterator[str]:
        """Exit codes are kept at once: an engine that is killed soon after forgets them."""
        async for end in events.ended(self._engine):
            key = self._keys.get(end.container_id)
            if key and end.code is not None:
                self._files.exited(key, end.code)
            yield end.container_id

    def log_path(self, key: ContainerKey) -> Path:
        return self._files.log(key)
