"""The containers at a Docker Engine: how it is asked for them, and for their ends. The docker runtime asks."""

from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from app.runtimes import docker_config, docker_status, engine_containers
from app.runtimes.base import ContainerKey, ContainerStatus
from app.runtimes.docker_engine import Engine, filters
from app.runtimes.docker_logs import Logs
from app.runtimes.docker_sandboxes import Sandboxes
from app.runtimes.docker_starts import CutStarts
from app.runtimes.docker_status import Loss
from app.runtimes.engine_config import CONTAINER, NODE, POD
from app.runtimes.engine_containers import Known, Row
from app.runtimes.engine_errors import GONE, EngineError, unless_gone
from app.runtimes.engine_files import Files

LOSSES = 20  # of the engine, that are remembered: a container may be asked about after the next one only


class Containers(engine_containers.Containers):
    """Those of one node."""

    def __init__(self, engine: Engine, files: Files, logs: Logs, node: str, sandboxes: Sandboxes) -> None:
        super().__init__(files.root, sandboxes.fresh)
        self._bundles = sandboxes.bundles
        self.cut_starts = CutStarts(files, self.outputs, sandboxes.bundles)
        self._engine, self._files, self._of_engine, self._node = engine, files, logs, node
        self._told: set[str] = set()  # ids of those whose end was told as it came
        self._losses: deque[Loss] = deque(maxlen=LOSSES)  # that this agent saw
        self._is_away = False

    async def rows(self, pod_uid: str = "") -> Sequence[Row]:
        found = await self._list(pod_uid)
        self._is_away = False
        return [Row(docker_config.key(one["Labels"]), one["Id"], one["State"] == "running") for one in found]

    async def running(self) -> list[tuple[ContainerKey, str, int]]:
        """Key and id of each that runs, and the bytes that it has written: outside of volumes, and as its log."""
        found = await self._list(sizes=True)
        return [
            (key, one["Id"], one.get("SizeRw", 0) + self._of_engine.size(one["Id"]) + self.outputs.size(key))
            for key, one in ((docker_config.key(one["Labels"]), one) for one in found)
        ]

    async def _list(self, pod_uid: str = "", *, sizes: bool = False) -> Sequence[Mapping[str, Any]]:
        """All, or with `sizes` those that run."""
        wanted = [f"{NODE}={self._node}", CONTAINER, *([f"{POD}={pod_uid}"] if pod_uid else [])]
        found: Sequence[Mapping[str, Any]] = await self._engine.ask(
            "containers/json", filters=filters(label=wanted), all=int(not sizes), size=int(sizes)
        )
        return found

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
        if not self.outputs.is_diverted(key):
            await self._of_engine.find(found)
        status = docker_status.status_of(key, found, self._files.failure(key), self._files.last_words(key))
        if status.state == "created" and await self.cut_starts.is_lost(key, found):
            status = replace(status, state="exited")
            return docker_status.unknown(status)
        return docker_status.unknown(status) if self._is_lost(status, found["State"]) else status

    def _is_lost(self, status: ContainerStatus, state: Mapping[str, Any]) -> bool:
        if status.exit_code != docker_status.LOST_CODE or status.reason != "Error" or status.id in self._told:
            return False
        began_at = self._engine.began_at()  # there may have been no agent that saw the one before go
        losses = [*self._losses, *([docker_status.begun(began_at)] if began_at else ())]
        return any(docker_status.may_be_lost(state, loss) for loss in losses)

    async def remove(self, key: ContainerKey, known: Known) -> None:
        with unless_gone():
            await self._engine.ask(f"containers/{known.id}", "DELETE", v=1)
        await self._bundles.remove(known.id)
        self._files.forget_start(key)
        self.forget(key)

    async def ends(self) -> AsyncIterator[str]:
        wanted = filters(type=["container"], event=["die", "died"], label=[f"{NODE}={self._node}", CONTAINER])
        try:
            async for event in self._engine.follow("events", filters=wanted):
                self._told.add(event["Actor"]["ID"])
                yield event["Actor"]["ID"]
        finally:
            if not self._is_away:
                self._is_away = True
                self._losses.append(Loss(datetime.now(UTC)))
        raise ConnectionError("the container engine tells no more events")

    def log_path(self, key: ContainerKey) -> Path | None:
        if self.outputs.is_diverted(key):
            return self.outputs.folder(key).path / "log"
        known = self._known.get(key)
        return self._of_engine.path(known.id) if known else None

    def forget(self, key: ContainerKey) -> None:
        known = self._known.get(key)
        if known:
            self._of_engine.forget(known.id)
            self._told.discard(known.id)
        super().forget(key)
