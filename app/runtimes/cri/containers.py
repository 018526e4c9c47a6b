"""Containers at a CRI engine: lists, status, and events of their ends. Called by the cri runtime.

Ends come from containerd's own events, elsewhere from those of CRI. containerd's own come a moment before its CRI side knows,
which is what makes them valuable: killed in that moment, containerd forgets the exit code. A status that is asked for then may
still be the old one. CRI-O, unless configured, sends no events.
"""

import json
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, NamedTuple

from app.runtimes.base import ContainerKey, ContainerStatus, Unsupported
from app.runtimes.cri import config
from app.runtimes.cri.engine import CriEngine
from app.runtimes.cri.messages import pb
from app.runtimes.cri.recovery import CriRecovery, reason_of
from app.runtimes.engine import containers as engine_containers
from app.runtimes.engine.config import NODE, POD
from app.runtimes.engine.containers import ListedContainer, TrackedContainer
from app.runtimes.engine.errors import GONE, LOST, UNKNOWN, EngineError, start_code, unless_gone
from app.runtimes.engine.files import Files

_BY_CRI = "/runtime.v1.RuntimeService/GetContainerEvents"
_BY_CONTAINERD = "/containerd.services.events.v1.Events/Subscribe"
_FILTER = b'namespace==k8s.io,topic=="/tasks/exit"'


class CriContainers(engine_containers.Containers):
    """Those of one node."""

    def __init__(self, engine: CriEngine, files: Files, node: str, whole: set[str]) -> None:
        super().__init__(files.root, whole)
        self._engine, self._files, self._node = engine, files, node
        self.recovery = CriRecovery(engine, files, self.outputs, self.look)

    async def rows(self, pod_uid: str = "") -> Sequence[ListedContainer]:
        labels = {NODE: self._node, POD: pod_uid} if pod_uid else {NODE: self._node}
        wanted = pb.ContainerFilter(label_selector=labels)
        found = await self._engine.ask(pb.ListContainersRequest(filter=wanted), pb.ListContainersResponse)
        return [
            ListedContainer(
                config.key(dict(one.labels), one.metadata.attempt), one.id, one.state == pb.CONTAINER_RUNNING
            )
            for one in found.containers
        ]

    async def ask(self, id_: str, *, verbose: bool = False) -> pb.ContainerStatusResponse:
        request = pb.ContainerStatusRequest(container_id=id_, verbose=verbose)
        return await self._engine.ask(request, pb.ContainerStatusResponse)

    async def pid(self, id_: str) -> int:
        """Of a container's own process; 0 if it has none, or the engine does not tell. Raises ConnectionError, EngineError."""
        try:
            return int(json.loads((await self.ask(id_, verbose=True)).info["info"])["pid"])
        except (ValueError, KeyError, TypeError):
            return 0

    async def ask_status(self, key: ContainerKey, id_: str) -> ContainerStatus | None:
        try:
            found = await self.recovery.answer(key, lambda: self.ask(id_))
        except EngineError as error:
            if error.code != GONE:
                raise
            return None
        if found.state == pb.CONTAINER_CREATED and (message := self._files.failure(key)):
            found.state, found.reason, found.message = pb.CONTAINER_EXITED, "StartError", message
            found.finished_at = found.created_at
        if self.recovery.is_unusable(key, found):
            return ContainerStatus(key=key, state="created", id=id_)
        self.recovery.correct(key, found)
        status = status_of(key, found, self._files.termination_message(key))
        return with_code(status, self._files.exit_code(key))

    async def remove(self, key: ContainerKey, known: TrackedContainer) -> None:
        """Raises ConnectionError, EngineError."""
        request = pb.RemoveContainerRequest(container_id=known.id)
        with unless_gone():
            await self._engine.ask(request, pb.RemoveContainerResponse)
        self._files.forget_start(key)
        self.outputs.unmake(key)
        self.forget(key)

    def forget(self, key: ContainerKey) -> None:
        super().forget(key)
        self.recovery.forget(key)

    async def ends(self) -> AsyncIterator[str]:
        """Each end is kept at once: an engine that is killed soon after forgets it."""
        async for end in end_events(self._engine):
            if key := self._keys.get(end.container_id):
                self.recovery.keep_end(key, end.code)
            yield end.container_id

    def log_path(self, key: ContainerKey) -> Path:
        return self._files.log(key)


def status_of(key: ContainerKey, found: pb.ContainerStatus, termination_message: str) -> ContainerStatus:
    """Status by the engine's answer."""
    state: Literal["created", "running", "exited"] = "exited"
    if found.state in (pb.CONTAINER_CREATED, pb.CONTAINER_RUNNING):
        state = "created" if found.state == pb.CONTAINER_CREATED else "running"
        return ContainerStatus(key=key, state=state, id=found.id, started_at=moment(found.started_at))
    reason, message = reason_of(found), found.message
    if reason == UNKNOWN:
        code, message = None, message or LOST
    else:
        code = start_code(message) if reason == "StartError" else found.exit_code
    return ContainerStatus(
        key=key,
        state=state,
        id=found.id,
        started_at=moment(found.started_at),
        finished_at=moment(max(found.started_at, found.finished_at)),
        exit_code=code,
        reason=reason,
        message=message,
        termination_message=termination_message,
    )


def with_code(status: ContainerStatus, code: int | None) -> ContainerStatus:
    """Status with the exit code of an event, if the engine does not know it."""
    if status.reason != UNKNOWN or code is None:
        return status
    return replace(status, exit_code=code, reason="Error" if code else "Completed", message="")


def moment(nanoseconds: int) -> datetime | None:
    """In whole seconds; None for 0."""
    return datetime.fromtimestamp(nanoseconds // 1_000_000_000, UTC) if nanoseconds > 0 else None


class ContainerEnd(NamedTuple):
    """`code` is None if the event has none."""

    container_id: str
    code: int | None = None


async def end_events(engine: CriEngine) -> AsyncIterator[ContainerEnd]:
    """Ends, until the engine goes away: ConnectionError. Unsupported if it has no events."""
    for source in (_by_containerd, _by_cri):
        try:
            async for end in source(engine):
                yield end
        except EngineError as error:
            trouble = error
        else:
            raise ConnectionError("the container engine tells no more events")
    raise Unsupported(f"the container engine tells no events: {trouble}")


async def _by_cri(engine: CriEngine) -> AsyncIterator[ContainerEnd]:
    async for message in engine.follow(_BY_CRI, pb.GetEventsRequest().SerializeToString()):
        event = pb.ContainerEventResponse.FromString(message)
        if event.container_event_type == pb.CONTAINER_STOPPED_EVENT:
            yield ContainerEnd(event.container_id)
    raise Unsupported("the container engine tells no events, or no more")  # CRI-O, unless configured, ends them at once


async def _by_containerd(engine: CriEngine) -> AsyncIterator[ContainerEnd]:
    async for envelope in engine.follow(_BY_CONTAINERD, b"\x0a" + bytes([len(_FILTER)]) + _FILTER):
        event = dict(_fields(_bytes(dict(_fields(envelope)).get(4))))  # of the envelope, the event; of that, its value
        exit_ = dict(_fields(_bytes(event.get(2))))
        if exit_.get(1) == exit_.get(2):  # else it was a command that ran in the container
            code = exit_.get(4, 0)
            yield ContainerEnd(_bytes(exit_.get(1)).decode(), code if isinstance(code, int) else None)


def _bytes(value: int | bytes | None) -> bytes:
    return value if isinstance(value, bytes) else b""


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and contents of a protobuf message's fields; those of a fixed length are left out."""
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        length = {1: 8, 5: 4}.get(tag & 7, 0)
        if tag & 7 == 0:
            number, at = _number(message, at)
            yield tag >> 3, number
        elif tag & 7 == 2:
            length, at = _number(message, at)
            yield tag >> 3, message[at : at + length]
        at += length


def _number(message: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while at < len(message):
        byte = message[at]
        found |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    return found, at
