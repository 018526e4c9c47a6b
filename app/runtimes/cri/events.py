"""Ids of containers that have ended, as an engine tells them: by containerd's own events, elsewhere by those of CRI.

containerd's own come a moment before its CRI side knows, which is what makes them dear: killed in that moment, containerd
forgets the exit code. Whoever asks then may have to ask again. CRI-O, unless configured, tells nothing.
"""

from collections.abc import AsyncIterator, Iterator
from typing import NamedTuple

from app.runtimes.base import Unsupported
from app.runtimes.cri.engine import Engine
from app.runtimes.cri.messages import pb
from app.runtimes.engine.errors import EngineError

_BY_CRI = "/runtime.v1.RuntimeService/GetContainerEvents"
_BY_CONTAINERD = "/containerd.services.events.v1.Events/Subscribe"
_FILTER = b'namespace==k8s.io,topic=="/tasks/exit"'


class End(NamedTuple):
    """`code` is None if only the end is told."""

    container_id: str
    code: int | None = None


async def ended(engine: Engine) -> AsyncIterator[End]:
    """Hints, until the engine goes away: ConnectionError. Unsupported if it tells nothing."""
    for source in (_by_containerd, _by_cri):
        try:
            async for end in source(engine):
                yield end
        except EngineError as error:
            trouble = error
        else:
            raise ConnectionError("the container engine tells no more events")
    raise Unsupported(f"the container engine tells no events: {trouble}")


async def _by_cri(engine: Engine) -> AsyncIterator[End]:
    async for message in engine.follow(_BY_CRI, pb.GetEventsRequest().SerializeToString()):
        event = pb.ContainerEventResponse.FromString(message)
        if event.container_event_type == pb.CONTAINER_STOPPED_EVENT:
            yield End(event.container_id)
    raise Unsupported("the container engine tells no events, or no more")  # CRI-O, unless configured, ends them at once


async def _by_containerd(engine: Engine) -> AsyncIterator[End]:
    async for envelope in engine.follow(_BY_CONTAINERD, b"\x0a" + bytes([len(_FILTER)]) + _FILTER):
        event = dict(_fields(_bytes(dict(_fields(envelope)).get(4))))  # of the envelope, the event; of that, its value
        exit_ = dict(_fields(_bytes(event.get(2))))
        if exit_.get(1) == exit_.get(2):  # else it was a command that ran in the container
            code = exit_.get(4, 0)
            yield End(_bytes(exit_.get(1)).decode(), code if isinstance(code, int) else None)


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
