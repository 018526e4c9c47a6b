"""Calls to a container engine (containerd, CRI-O) over gRPC. The cri runtime makes them all here.

An engine that is away is a ConnectionError, whatever is asked of it; it may be asked again. What it refuses is an
EngineError with the words that a kubelet would show.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import grpc.aio
from google.protobuf.message import Message

TIMEOUT = 120.0  # seconds for what should take less than one; an engine under load takes its time
AT_ONCE = 16  # questions of one sort, at a time
_SERVICE = "/runtime.v1."
_OF_IMAGES = frozenset({"ListImages", "ImageStatus", "PullImage", "RemoveImage", "ImageFsInfo"})
_AWAY = frozenset({"UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED"})
_STARTING = "server is not initialized yet"  # as containerd puts it in its first second
_OPTIONS = (
    ("grpc.max_receive_message_length", 16 * 1024 * 1024),  # thousands of containers in a list
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
)

M = TypeVar("M", bound=Message)
T = TypeVar("T")


class EngineError(Exception):
    """What the engine refused: `code` as Go names it, such as NotFound, and `details` in its own words."""

    def __init__(self, code: str, details: str) -> None:
        super().__init__(f"rpc error: code = {code} desc = {details}")
        self.code, self.details = code, details


class Engine:
    """One channel to one engine, which may die and come back. Made inside a running event loop."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint if "://" in endpoint else f"unix://{endpoint}"
        self._channel = grpc.aio.insecure_channel(self.endpoint, options=_OPTIONS)

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
            raise self._meaning(error) from error
        return found

    async def follow(self, path: str, request: bytes) -> AsyncIterator[bytes]:
        """Undecoded answers of a method that goes on. Raises ConnectionError, EngineError."""
        call = self._channel.unary_stream(path)(request)
        try:
            async for answer in call:
                yield answer
        except grpc.aio.AioRpcError as error:
            raise self._meaning(error) from error
        finally:
            call.cancel()

    async def each(self, questions: Sequence[Coroutine[Any, Any, T]]) -> list[T]:
        """The answers to many questions, some at a time."""
        slots = asyncio.Semaphore(AT_ONCE)

        async def one(question: Coroutine[Any, Any, T]) -> T:
            async with slots:
                return await question

        return await asyncio.gather(*map(one, questions))

    async def close(self) -> None:
        await self._channel.close()

    def _meaning(self, error: grpc.aio.AioRpcError) -> Exception:
        code, details = error.code().name, error.details() or ""
        if code in _AWAY or _STARTING in details:
            return ConnectionError(f"the container engine at {self.endpoint} does not answer: {details}")
        return EngineError(code.title().replace("_", ""), details)


@contextmanager
def unless_gone() -> Iterator[None]:
    """What no longer exists needs nothing done to it."""
    try:
        yield
    except EngineError as error:
        if error.code != "NotFound":
            raise
