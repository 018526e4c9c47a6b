"""Calls to a container engine (containerd, CRI-O) over gRPC. The cri runtime makes them all here.

An engine that is away is a ConnectionError, whatever is asked of it; it may be asked again. What it refuses is an
EngineError with the words that a kubelet would show.
"""

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import suppress
from typing import Any, TypeVar

import grpc
import grpc.aio
from cri_api.v1 import api_pb2 as pb
from google.protobuf.message import Message

from app.runtimes import cri_stream
from app.runtimes.base import Unsupported
from app.runtimes.cri_line import Line
from app.runtimes.engine_errors import EngineError

TIMEOUT = 120.0  # seconds for what should take less than one; an engine under load takes its time
_SERVICE = "/runtime.v1."
_OF_IMAGES = frozenset({"ListImages", "ImageStatus", "PullImage", "RemoveImage", "ImageFsInfo"})
_CODES: dict[int, str] = {code.value[0]: code.name for code in grpc.StatusCode}
_AWAY = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"})
_LATER = (  # as containerd puts it
    "server is not initialized yet",  # in its first second
    "is reserved for",  # an agent that died had asked for the same
    "in starting state",  # likewise
)
_OPTIONS = (
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),  # thousands of containers in a list
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)

M = TypeVar("M", bound=Message)
logger = logging.getLogger(__name__)


class Engine:
    """One channel to one engine, which may die and come back. Made inside a running event loop."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint if "://" in endpoint else f"unix://{endpoint}"
        self._channel = grpc.aio.insecure_channel(self.endpoint, options=_OPTIONS)
        self._path = self.endpoint.removeprefix("unix:")
        self._line = Line(self._path)
        self._holding = asyncio.get_running_loop().create_task(self._hold())

    async def ask(self, request: Message, answer: type[M], timeout: float | None = TIMEOUT) -> M:  # noqa: ASYNC109 - a deadline that the engine is told
        """The method is named by the request. Raises ConnectionError, EngineError."""
        method = type(request).__name__.removesuffix("Request")
        service = "ImageService" if method in _OF_IMAGES else "RuntimeService"
        call = self._channel.unary_unary(
            f"{_SERVICE}{service}/{method}",
            request_serializer=type(request).SerializeToString,
            response_deserializer=answer.FromString,
        )
        try:
            found: M = await call(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            raise self._meaning(error.code().name, error.details() or "") from error
        return found

    async def follow(self, method: str, request: bytes) -> AsyncIterator[bytes]:
        """Undecoded answers of a method that goes on. Raises ConnectionError, EngineError; Unsupported if it is not here."""
        if not self.endpoint.startswith("unix:"):
            raise Unsupported(f"the container engine at {self.endpoint} has no socket on this machine")
        try:
            async for answer in cri_stream.answers(self._path, method, request):
                if isinstance(answer, bytes):
                    yield answer
                elif answer.status:
                    raise self._meaning(_CODES.get(answer.status, "UNKNOWN"), answer.details)
        except ConnectionError as error:
            raise ConnectionError(f"the container engine at {self.endpoint} does not answer: {error}") from error

    async def config(self) -> Mapping[str, Any]:
        """The engine's configuration, as far as it tells: containerd does. Raises ConnectionError."""
        try:
            told = (await self.ask(pb.StatusRequest(verbose=True), pb.StatusResponse)).info.get("config", "{}")
            found = json.loads(told)
        except (EngineError, ValueError) as error:
            logger.info("the container engine does not tell its configuration: %s", error)
            return {}
        return found if isinstance(found, dict) else {}

    async def close(self) -> None:
        self._holding.cancel()
        await asyncio.gather(self._holding, return_exceptions=True)
        self._line.close()
        await self._channel.close()

    @property
    def process(self) -> tuple[int, str]:
        """The engine's process, 0 if it is not known, and the path of its socket."""
        return self._line.peer, self._path

    async def _hold(self) -> None:
        """Each connection, as soon as there is one."""
        while True:
            state = self._channel.get_state()
            if state is grpc.ChannelConnectivity.READY:
                with suppress(OSError):  # it is gone again, or no socket of this machine
                    self._line.hold()
            await self._channel.wait_for_state_change(state)

    def _meaning(self, code: str, details: str) -> Exception:
        if code in _AWAY:
            return ConnectionError(f"the container engine at {self.endpoint} does not answer: {details}")
        if any(text in details for text in _LATER):
            return ConnectionError(f"the container engine at {self.endpoint} cannot do it yet: {details}")
        code = code.title().replace("_", "")
        return EngineError(code, details, f"rpc error: code = {code} desc = {details}")
