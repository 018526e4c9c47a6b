"""The containers at a Docker Engine: how it is asked for them, and for their ends. The docker runtime asks."""

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.runtimes import docker_config, docker_status, engine_containers
from app.runtimes.base import ContainerKey, ContainerStatus
from app.runtimes.docker_engine import Engine, filters
from app.runtimes.docker_logs import Logs
from app.runtimes.engine_config import CONTAINER, NODE, POD
from app.runtimes.engine_containers import Row
from app.runtimes.engine_errors import GONE, EngineError
from app.runtimes.engine_files import Files


class Containers(engine_containers.Containers):
    """Those of one node."""

    def __init__(self, engine: Engine, files: Files, logs: Logs, node: str, whole: set[str]) -> None:
        super().__init__(whole)
        self._engine, self._files, self._of_engine, self._node = engine, files, logs, node

    async def rows(self, pod_uid: str = "") -> Sequence[Row]:
        wanted = [f"{NODE}={self._node}", CONTAINER, *([f"{POD}={pod_uid}"] if pod_uid else [])]
        found = await self._engine.ask("containers/json", all=1, filters=filters(label=wanted))
        return [Row(docker_config.key(one["Labels"]), one["Id"], one["State"] == "running") for one in found]

    async def ask(self, id_: str) -> Mapping[str, Any]:
        """All that the engine knows of it."""
        found: Mapping[str, Any] = await self._engine.ask(f"containers/{id_}/json")
        return found

    async def ask_status(self, key: ContainerKey, id_: str) -> ContainerStatus | None:
        try:
            found = await self.ask(id_)
        except EngineError as error:
            if error.code != GONE:
                raise
            return None
        await self._of_engine.find(found)
        return docker_status.status_of(key, found, self._files.failure(key), self._files.last_words(key))

    async def ends(self) -> AsyncIterator[str]:
        wanted = filters(type=["container"], event=["die"], label=[f"{NODE}={self._node}", CONTAINER])
        async for event in self._engine.follow("events", filters=wanted):
            yield event["Actor"]["ID"]
        raise ConnectionError("the container engine tells no more events")

    def log_path(self, key: ContainerKey) -> Path | None:
        known = self._known.get(key)
        return self._of_engine.path(known.id) if known else None

    def forget(self, key: ContainerKey) -> None:
        known = self._known.get(key)
        if known:
            self._of_engine.forget(known.id)
        super().forget(key)
