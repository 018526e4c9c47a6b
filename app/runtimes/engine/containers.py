"""Container cache of an engine: containers, their status, and events when it changes. Subclassed by cri and docker.

The engine is the truth. What has ended does not change any more, and is not asked for again.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from app.runtimes.base import ContainerKey, ContainerStatus, Unsupported
from app.runtimes.engine.errors import EngineError
from app.runtimes.engine.outputs import Outputs
from app.runtimes.wakeups import Hints
from app.structured_logging import Logger

AGAIN = 0.5  # seconds until an engine that went away is asked for events again
SOON, LATEST = 0.1, 1.0  # seconds between looks at an engine that tells no events, while something ends and else
AT_ONCE = 16  # questions of one sort, at a time
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
)  # seconds between looks at a container that has ended, by an event

T = TypeVar("T")
logger = Logger(__name__)


async def answers(questions: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
    """The answers to many questions, some at a time."""
    slots = asyncio.Semaphore(AT_ONCE)

    async def one(question: Coroutine[Any, Any, T]) -> T:
        async with slots:
            return await question

    try:
        return await asyncio.gather(*map(one, questions))
    except asyncio.CancelledError:  # by now each has ended, or will never be begun, of which Python would complain
        for question in questions:
            question.close()
        raise


class ListedContainer(NamedTuple):
    """A container in an engine's list."""

    key: ContainerKey
    id: str
    is_running: bool


@dataclass(eq=False, slots=True)
class TrackedContainer:
    """A container, and how it was when last looked at."""

    key: ContainerKey
    id: str
    status: ContainerStatus | None = None
    has_begun: bool = False  # its start was answered, whatever status says

    @property
    def over(self) -> ContainerStatus | None:
        return self.status if self.status and self.status.state == "exited" else None

    def agrees(self, found: ListedContainer) -> bool:
        """Return whether the engine's list has no news of it."""
        running = self.status is not None and self.status.state == "running"
        return bool(self.over) or (running and found.is_running)


class Containers(ABC):
    """Those of one node. `root`: as in `engine.files`; `whole`: pods of which no container is unknown here."""

    def __init__(self, root: Path, whole: set[str]) -> None:
        self._whole = whole
        self.events, self.logged = Hints(), Hints()
        self.outputs = Outputs(root, self.logged.add)
        self._known: dict[ContainerKey, TrackedContainer] = {}
        self._keys: dict[str, ContainerKey] = {}  # by the engine's id
        self._chases: dict[ContainerKey, asyncio.Task[None]] = {}
        self._connections = 0  # so far, to the engine's events

    @abstractmethod
    async def rows(self, pod_uid: str = "") -> Sequence[ListedContainer]:
        """The engine's list: of all the node's pods, or of one."""

    @abstractmethod
    async def ask_status(self, key: ContainerKey, id_: str) -> ContainerStatus | None:
        """Return what the engine says of it; None if it is gone."""

    @abstractmethod
    async def remove(self, key: ContainerKey, known: TrackedContainer) -> None:
        """One that does not run. Raises ConnectionError, EngineError."""

    @abstractmethod
    def ends(self) -> AsyncIterator[str]:
        """Ids of containers that end, until the engine goes away: ConnectionError. Unsupported if it has no events."""

    @abstractmethod
    def log_path(self, key: ContainerKey) -> Path | None:
        """The file that grows with its log."""

    async def find(self, key: ContainerKey) -> TrackedContainer | None:
        known = self._known.get(key)
        if known is None and key.pod_uid not in self._whole:
            for row in await self.rows(key.pod_uid):
                if row.key == key:
                    known = self.note(key, row.id)
        return known

    async def status(self, key: ContainerKey) -> ContainerStatus | None:
        known = await self.find(key)
        return (known.over or await self.look(key)) if known else None

    async def look(self, key: ContainerKey) -> ContainerStatus | None:
        """Ask the engine; a change is an event."""
        known = self._known.get(key)
        if known is None:
            return None
        status = await self.ask_status(key, known.id)
        if status is None:
            self.forget(key)
            return None
        return known.over or self._take_status(key, known, status)  # over: another task was faster

    def is_over(self, key: ContainerKey) -> bool:
        """As far as is known."""
        known = self._known.get(key)
        return bool(known and known.over)

    def is_unbegun(self, key: ContainerKey) -> bool:
        """As far as is known; output before that is a message of the engine, and may be withdrawn."""
        known = self._known.get(key)
        if known is None or known.has_begun:
            return False
        return known.status is None or known.status.state == "created"

    async def list(self) -> list[ContainerStatus]:
        before = set(self._known)
        found = {row.key: row for row in await self.rows()}
        for key in before - found.keys():
            self.forget(key)
        unclear = [key for key, row in found.items() if not self.note(key, row.id).agrees(row)]
        await answers([self.look(key) for key in unclear])
        known = [self._known.get(key) for key in found]
        return [one.status for one in known if one and one.status]

    async def wait_until_ended(self, key: ContainerKey) -> ContainerStatus | None:
        """Its status once that is exited; what it is after a while, if it is not. For a container that is sure to have ended."""
        status = None
        for pause in CHASE:
            await asyncio.sleep(pause)
            status = await self.status(key)
            if status is None or status.state == "exited":
                break
        return status

    async def until_over(self, key: ContainerKey) -> None:
        """Returns when it has ended or is gone. A missed event costs a moment."""
        hints = self.events.read()
        while (status := await self.status(key)) and status.state != "exited":
            with suppress(TimeoutError):
                async with asyncio.timeout(LATEST):
                    while await anext(hints) != key:
                        pass

    def note(self, key: ContainerKey, id_: str) -> TrackedContainer:
        known = self._known.get(key)
        if known is None or known.id != id_:
            known = self._known[key] = TrackedContainer(key, id_)
            self._keys[id_] = key
        return known

    def follow_log(self, key: ContainerKey) -> None:
        path = self.log_path(key)
        if path:
            self.outputs.follow(key, path)

    def forget(self, key: ContainerKey) -> None:
        known = self._known.pop(key, None)
        if known:
            self._keys.pop(known.id, None)
        self.outputs.forget(key)

    def forget_pod(self, pod_uid: str) -> None:
        for key in [key for key in self._known if key.pod_uid == pod_uid]:
            self.forget(key)

    async def watch(self) -> None:
        """Follow the engine's events of ends, for ever. Ends that may have been missed are looked up."""
        while True:
            try:
                await self._follow_events()
            except Unsupported as error:
                logger.info("container engine reports no events; polling it", error=error)
                await self._poll()
            except ConnectionError as error:
                logger.warning("container engine does not answer; retrying", error=error)
            except Exception as error:  # a refusal or nonsense: neither may end the watch
                is_refusal = isinstance(error, EngineError)
                logger.warning(
                    "cannot watch the container engine's events; retrying",
                    error=error,
                    traceback_of=None if is_refusal else error,
                )
            await asyncio.sleep(AGAIN)
            await self._has_answered()

    async def _follow_events(self) -> None:
        # The engine subscribes us a moment later, and sends no events of what has ended by then.
        looking = asyncio.get_running_loop().create_task(self._list_once_ready())
        try:
            async for container_id in self.ends():
                self._on_end_event(container_id)
        finally:
            looking.cancel()

    async def _list_once_ready(self) -> None:
        """An engine that has just started may send events before it answers questions."""
        while True:
            await asyncio.sleep(AGAIN)
            if await self._has_answered():
                self._connections += 1
                logger.info("container engine answers; watching its events", attempt=self._connections)
                return

    async def _has_answered(self) -> bool:
        """If so, all changes are known."""
        try:
            await self.list()
        except (ConnectionError, EngineError):
            return False
        except Exception as error:
            logger.error("cannot list the container engine's containers; retrying", traceback_of=error)
            return False
        return True

    async def close(self) -> None:
        for task in self._chases.values():
            task.cancel()
        self.outputs.close()
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

    def _on_end_event(self, container_id: str) -> None:
        key = self._keys.get(container_id)
        if key and key not in self._chases:
            task = asyncio.get_running_loop().create_task(self._chase(key))
            self._chases[key] = task
            task.add_done_callback(lambda _: self._chases.pop(key, None))

    async def _chase(self, key: ContainerKey) -> None:
        try:
            await self.wait_until_ended(key)
        except (ConnectionError, EngineError) as error:  # the next list finds it
            logger.warning(
                "cannot look at a container that ended; the next list shows it", **key.log_fields, error=error
            )

    def _take_status(self, key: ContainerKey, known: TrackedContainer, status: ContainerStatus) -> ContainerStatus:
        before, known.status = known.status, status
        if known.over:
            self.outputs.forget(key)
            self.logged.add(key)
        elif status.state == "running":
            self.follow_log(key)
            if before is None or before.state != status.state:
                self.logged.add(key)  # output so far caused no event
        if before is None or before.state != status.state:
            self.events.add(key)
        return status
