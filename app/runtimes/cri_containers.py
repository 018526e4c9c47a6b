"""The containers at an engine that speaks CRI: how it is asked for them, and for their ends. The cri runtime asks."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from cri_api.v1 import api_pb2 as pb

from app.runtimes import cri_config, cri_events, cri_status, engine_containers
from app.runtimes.base import ContainerKey, ContainerStatus
from app.runtimes.cri_engine import Engine
from app.runtimes.cri_outputs import Outputs
from app.runtimes.engine_config import NODE, POD
from app.runtimes.engine_containers import CHASE, Known, Row
from app.runtimes.engine_errors import GONE, EngineError, unless_gone
from app.runtimes.engine_files import Files

_OVER = "CONTAINER_EXITED"


class Containers(engine_containers.Containers):
    """Those of one node."""

    def __init__(self, engine: Engine, files: Files, node: str, whole: set[str]) -> None:
        super().__init__(whole)
        self._engine, self._files, self._node = engine, files, node
        self._logs.close()
        self._logs = self.outputs = Outputs(engine, files.root, self.logged.add)

    async def rows(self, pod_uid: str = "") -> Sequence[Row]:
        labels = {NODE: self._node, POD: pod_uid} if pod_uid else {NODE: self._node}
        wanted = pb.ContainerFilter(label_selector=labels)
        found = await self._engine.ask(pb.ListContainersRequest(filter=wanted), pb.ListContainersResponse)
        return [
            Row(cri_config.key(dict(one.labels), one.metadata.attempt), one.id, one.state == pb.CONTAINER_RUNNING)
            for one in found.containers
        ]

    async def ask(self, id_: str, *, verbose: bool = False) -> pb.ContainerStatusResponse:
        request = pb.ContainerStatusRequest(container_id=id_, verbose=verbose)
        return await self._engine.ask(request, pb.ContainerStatusResponse)

    async def ask_status(self, key: ContainerKey, id_: str) -> ContainerStatus | None:
        try:
            found = (await self.ask(id_)).status
        except EngineError as error:
            if error.code != GONE:
                raise
            return None
        if found.state == pb.CONTAINER_CREATED and (words := self._files.failure(key)):
            found.state, found.reason, found.message = pb.CONTAINER_EXITED, "StartError", words
            found.finished_at = found.created_at
        return cri_status.status_of(key, found, self._files.last_words(key))

    async def begins(self, key: ContainerKey) -> bool:
        """Whether it goes on from being made, in a while. Raises ConnectionError, EngineError."""
        for pause in CHASE:
            await asyncio.sleep(pause)
            status = await self.look(key)
            if status and status.state != "created":
                return True
        return False

    def is_over(self, key: ContainerKey) -> bool:
        """As far as is known."""
        known = self._known.get(key)
        return bool(known and known.over)

    async def never_began(self, key: ContainerKey, error: EngineError) -> bool:
        """Whether it may be made anew: it is over for the engine, before it began, by the engine's fault."""
        if cri_status.never_began(error.details):
            return True
        status = await self.look(key) if _OVER in error.details else None
        return status is not None and status.state == "created"

    async def remove(self, key: ContainerKey, known: Known) -> None:
        """Raises ConnectionError, EngineError."""
        request = pb.RemoveContainerRequest(container_id=known.id)
        with unless_gone():
            await self._engine.ask(request, pb.RemoveContainerResponse)
        self.forget(key)

    def ends(self) -> AsyncIterator[str]:
        return cri_events.ended(self._engine)

    def log_path(self, key: ContainerKey) -> Path:
        return self._files.log(key)
