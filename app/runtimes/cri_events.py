"""Ids of containers that have ended, as an engine tells them: by CRI where it can, else by containerd's own events.

containerd before 1.7, and CRI-O unless configured, lack those of CRI. containerd's own come a moment before its CRI side
knows: whoever asks then may have to ask again.
"""

from collections.abc import AsyncIterator, Iterator

from cri_api.v1 import api_pb2 as pb

from app.runtimes.base import Unsupported
from app.runtimes.cri_engine import Engine
from app.runtimes.engine_errors import EngineError

_BY_CRI = "/runtime.v1.RuntimeService/GetContainerEvents"
_BY_CONTAINERD = "/containerd.services.events.v1.Events/Subscribe"
_FILTER = b'namespace==k8s.io,topic=="/tasks/exit"'


async def ended(engine: Engine) -> AsyncIterator[str]:
    """Hints, until the engine goes away: ConnectionError. Unsupported if it tells nothing."""
    for source in (_by_cri, _by_containerd):
        try:
            async for container_id in source(engine):
                yield container_id
        except EngineError as error:
            trouble = error
        else:
            raise ConnectionError("the container engine tells no more events")
    raise Unsupported(f"the container engine tells no events: {trouble}")


async def _by_cri(engine: Engine) -> AsyncIterator[str]:
    async for message in engine.follow(_BY_CRI, pb.GetEventsRequest().SerializeToString()):
        event = pb.ContainerEventResponse.FromString(message)
        if event.container_event_type == pb.CONTAINER_STOPPED_EVENT:
            yield event.container_id


async def _by_containerd(engine: Engine) -> AsyncIterator[str]:
    async for envelope in engine.follow(_BY_CONTAINERD, b"\x0a" + bytes([len(_FILTER)]) + _FILTER):
        event = dict(_fields(dict(_fields(envelope)).get(4, b"")))  # of the envelope, the event; of that, its value
        exit_ = dict(_fields(event.get(2, b"")))
        if exit_.get(1) == exit_.get(2):  # else it was a command that ran in the container
            yield exit_.get(1, b"").decode()


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Numbers and contents of a protobuf message's texts and messages; what else is in it is left out."""
    at = 0
    while at < len(message):
        tag, at = _number(message, at)
        length = {1: 8, 5: 4}.get(tag & 7, 0)
        if tag & 7 == 0:
            _, at = _number(message, at)
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
