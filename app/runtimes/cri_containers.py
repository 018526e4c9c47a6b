"""What is known of the containers at an engine: which there are, how they are, who has to be told that they changed.

The engine knows best. What has ended does not change any more, and is not asked for again.
"""

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from cri_api.v1 import api_pb2 as pb

from app.runtimes import cri_config, cri_events, cri_status
from app.runtimes.base import ContainerKey, ContainerStatus, Unsupported
from app.runtimes.cri_config import NODE, POD
from app.runtimes.cri_engine import Engine, EngineError
from app.runtimes.cri_files import Files
from app.runtimes.hints import Hints
from app.runtimes.log_files import LogFiles

AGAIN = 0.5  # seconds until an engine that went away is asked for events again
SOON, LATEST = 0.1, 1.0  # seconds between looks at an engine that tells no events, while something ends and else
CHASE = (
    0.0,
    0.005,
    0.01,
    0.02,
    0.04,
    0.08,
    0.16,
    0.32,
    0.64,
    1.0,
)  # seconds between looks at what is said to have ended

logger = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Known:
    """A container, and how it was when last looked at."""

    id: str
    status: ContainerStatus | None = None

    @property
    def over(self) -> ContainerStatus | None:
        return self.status if self.status and self.status.state == "exited" else None

    def agrees(self, found: pb.Container) -> bool:
        """Whether the engine's list tells no news of it."""
        running = self.status is not None and self.status.state == "running"
        return bool(self.over) or (running and found.state == pb.CONTAINER_RUNNING)


class Containers:
    """Those of one node. `whole`: pods of which no container is unknown here."""

    def __init__(self, engine: Engine, files: Files, node: str, whole: set[str]) -> None:
        self._engine, self._files, self._node, self._whole = engine, files, node, whole
        self.events, self.logged = Hints(), Hints()
        self._logs = LogFiles(self.logged.add)
        self._known: dict[ContainerKey, Known] = {}
        self._keys: dict[str, ContainerKey] = {}  # by the engine's id
        self._chases: dict[ContainerKey, asyncio.Task[None]] = {}

    async def find(self, key: ContainerKey) -> Known | None:
        known = self._known.get(key)
        if known is None and key.pod_uid not in self._whole:
            for each in await self._list({POD: key.pod_uid}):
                if _key_of(each) == key:
                    known = self.note(key, each.id)
        return known

    async def status(self, key: ContainerKey) -> ContainerStatus | None:
        known = await self.find(key)
        return (known.over or await self.look(key)) if known else None

    async def look(self, key: ContainerKey) -> ContainerStatus | None:
        """Asks the engine; who follows events is told if it is news."""
        known = self._known.get(key)
        if known is None:
            return None
        try:
            found = (await self.ask(known.id)).status
        except EngineError as error:
            if error.code != "NotFound":
                raise
            self.forget(key)
            return None
        return known.over or self._saw(key, known, found)  # over: somebody else was faster

    async def ask(self, id_: str, *, verbose: bool = False) -> pb.ContainerStatusResponse:
        request = pb.ContainerStatusRequest(container_id=id_, verbose=verbose)
        return await self._engine.ask(request, pb.ContainerStatusResponse)

    async def list(self) -> list[ContainerStatus]:
        before = set(self._known)
        found = {_key_of(each): each for each in await self._list({})}
        for key in before - found.keys():
            self.forget(key)
        unclear = [key for key, each in found.items() if not self.note(key, each.id).agrees(each)]
        await self._engine.each([self.look(key) for key in unclear])
        known = [self._known.get(key) for key in found]
        return [each.status for each in known if each and each.status]

    async def ended(self, key: ContainerKey) -> ContainerStatus | None:
        """Its status once that says so; what it is after a while, if it does not. For what is sure to have ended."""
        status = None
        for pause in CHASE:
            await asyncio.sleep(pause)
            status = await self.status(key)
            if status is None or status.state == "exited":
                break
        return status

    def note(self, key: ContainerKey, id_: str) -> Known:
        known = self._known.get(key)
        if known is None or known.id != id_:
            known = self._known[key] = Known(id_)
            self._keys[id_] = key
        return known

    def follow_log(self, key: ContainerKey) -> None:
        self._logs.follow(key, self._files.log(key))

    def forget(self, key: ContainerKey) -> None:
        known = self._known.pop(key, None)
        if known:
            self._keys.pop(known.id, None)
        self._logs.forget(key)

    def forget_pod(self, pod_uid: str) -> None:
        for key in [key for key in self._known if key.pod_uid == pod_uid]:
            self.forget(key)

    async def watch(self) -> None:
        """What the engine tells of ends, for ever. What it may have told while it was not heard is looked up."""
        away = False
        while True:
            try:
                async for container_id in cri_events.ended(self._engine):
                    self._heard(container_id)
            except Unsupported as error:
                logger.info("%s; it is asked again and again instead", error)
                await self._poll()
            except ConnectionError as error:
                if not away:
                    logger.warning("%s", error)
                away = True
            await asyncio.sleep(AGAIN)
            with suppress(ConnectionError, EngineError):
                await self.list()
                away = False

    async def close(self) -> None:
        for task in self._chases.values():
            task.cancel()
        self._logs.close()
        self.events.close()
        self.logged.close()

    async def _poll(self) -> None:
        """Until the engine goes away."""
        pause = SOON
        with suppress(ConnectionError, EngineError):
            while True:
                before = [known.over for known in self._known.values()]
                await self.list()
                quiet = before == [known.over for known in self._known.values()]
                pause = min(pause * 2, LATEST) if quiet else SOON
                await asyncio.sleep(pause)

    def _heard(self, container_id: str) -> None:
        key = self._keys.get(container_id)
        if key and key not in self._chases:
            task = asyncio.get_running_loop().create_task(self._chase(key))
            self._chases[key] = task
            task.add_done_callback(lambda _: self._chases.pop(key, None))

    async def _chase(self, key: ContainerKey) -> None:
        try:
            await self.ended(key)
        except (ConnectionError, EngineError) as error:  # the next list finds it
            logger.warning("container %s of pod %s: %s", key.name, key.pod_uid, error)

    def _saw(self, key: ContainerKey, known: Known, found: pb.ContainerStatus) -> ContainerStatus:
        if found.state == pb.CONTAINER_CREATED and (words := self._files.failure(key)):
            found.state, found.reason, found.message = pb.CONTAINER_EXITED, "StartError", words
            found.finished_at = found.created_at
        status = cri_status.status_of(key, found, self._files.last_words(key))
        before, known.status = known.status, status
        if known.over:
            self._logs.forget(key)
            self.logged.add(key)
        elif status.state == "running":
            self.follow_log(key)
        if before is None or before.state != status.state:
            self.events.add(key)
        return status

    async def _list(self, labels: dict[str, str]) -> Sequence[pb.Container]:
        wanted = pb.ContainerFilter(label_selector={NODE: self._node, **labels})
        found = await self._engine.ask(pb.ListContainersRequest(filter=wanted), pb.ListContainersResponse)
        return [*found.containers]


def _key_of(found: pb.Container) -> ContainerKey:
    return cri_config.key(dict(found.labels), found.metadata.attempt)
