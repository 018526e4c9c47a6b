"""Containers at a Docker Engine: lists, status, and events of their ends. Called by the docker runtime."""

from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from app.runtimes.base import ContainerKey, ContainerStatus
from app.runtimes.docker import config
from app.runtimes.docker import status as docker_status
from app.runtimes.docker.engine import DockerEngine, filters
from app.runtimes.docker.logs import EngineLogs
from app.runtimes.docker.recovery import DockerRecovery, end_in
from app.runtimes.docker.sandboxes import DockerSandboxes
from app.runtimes.engine import containers as engine_containers
from app.runtimes.engine.config import CONTAINER, NODE, POD
from app.runtimes.engine.containers import ListedContainer, TrackedContainer
from app.runtimes.engine.errors import GONE, EngineError, unless_gone
from app.runtimes.engine.files import Files


class DockerContainers(engine_containers.Containers):
    """Those of one node."""

    def __init__(
        self, engine: DockerEngine, files: Files, logs: EngineLogs, node: str, sandboxes: DockerSandboxes
    ) -> None:
        super().__init__(files.root, sandboxes.fresh)
        self._bundles = sandboxes.bundles
        self.recovery = DockerRecovery(engine, files, self.outputs, sandboxes.bundles, logs)
        self._engine, self._files, self._of_engine, self._node = engine, files, logs, node
        self._is_away = False

    async def rows(self, pod_uid: str = "") -> Sequence[ListedContainer]:
        found = await self._list(pod_uid)
        self._is_away = False
        return [ListedContainer(config.key(one["Labels"]), one["Id"], one["State"] == "running") for one in found]

    async def running(self) -> list[tuple[ContainerKey, str, int]]:
        """Key and id of each that runs, and the bytes that it has written: outside of volumes, and as its log."""
        found = await self._list(sizes=True)
        return [
            (key, one["Id"], one.get("SizeRw", 0) + self._of_engine.size(one["Id"]) + self.outputs.size(key))
            for key, one in ((config.key(one["Labels"]), one) for one in found)
        ]

    async def _list(self, pod_uid: str = "", *, sizes: bool = False) -> Sequence[Mapping[str, Any]]:
        """All, or with `sizes` those that run."""
        wanted = [f"{NODE}={self._node}", CONTAINER, *([f"{POD}={pod_uid}"] if pod_uid else [])]
        found: Sequence[Mapping[str, Any]] = await self._engine.ask(
            "containers/json", filters=filters(label=wanted), all=int(not sizes), size=int(sizes)
        )
        return found

    async def ask(self, id_: str) -> Mapping[str, Any]:
        """The engine's record of it."""
        found: Mapping[str, Any] = await self._engine.ask(f"containers/{id_}/json")
        return found

    async def ask_status(self, key: ContainerKey, id_: str) -> ContainerStatus | None:
        try:
            found = await self.ask(id_)
        except EngineError as error:
            if error.code != GONE:
                raise
            return None
        if not self.outputs.is_diverted(key):
            await self._of_engine.find(found)
        status = docker_status.status_of(key, found, self._files.failure(key), self._files.termination_message(key))
        return await self.recovery.correct(key, status, found)

    async def remove(self, key: ContainerKey, known: TrackedContainer) -> None:
        with unless_gone():
            await self._engine.ask(f"containers/{known.id}", "DELETE", v=1)
        await self._bundles.remove(known.id)
        self._files.forget_start(key)
        self.forget(key)

    async def ends(self) -> AsyncIterator[str]:
        """Each end is kept at once: an engine that is killed soon after forgets it."""
        wanted = filters(type=["container"], event=["die", "died"], label=[f"{NODE}={self._node}", CONTAINER])
        try:
            async for event in self._engine.hear_events(filters=wanted):
                self._keep(event)
                yield event["Actor"]["ID"]
        except ConnectionError:
            if not self._is_away:
                self._is_away = True
                self.recovery.note_loss()
            raise

    def _keep(self, event: Mapping[str, Any]) -> None:
        """Unless it is of one that was made anew since."""
        if key := self._keys.get(event["Actor"]["ID"]):
            end = end_in(event)
            self.recovery.keep_end(key, end.code, end.at.timestamp())

    def log_path(self, key: ContainerKey) -> Path | None:
        if self.outputs.is_diverted(key):
            return self.outputs.folder(key).path / "log"
        known = self._known.get(key)
        return self._of_engine.path(known.id) if known else None

    def forget(self, key: ContainerKey) -> None:
        known = self._known.get(key)
        if known:
            self._of_engine.forget(known.id)
        super().forget(key)
