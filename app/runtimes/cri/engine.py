"""Calls to a CRI engine (containerd, CRI-O), and its errors. Called by the cri runtime.

An engine that is away is a ConnectionError, whatever is asked of it; it may be asked again. What it refuses is an
EngineError with the words that a kubelet would show.

containerd gives up what it is doing for a client that hangs up: of a container that is being started then, it would be
unknown whether it ever ran. So another process, a shell that does nothing, holds the same connection, and ends a while after us.
"""

import asyncio
import json
import os
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import aclosing, suppress
from typing import Any, TypeVar

from google.protobuf.message import Message

from app.runtimes.cri import grpc_channel
from app.runtimes.cri.grpc_channel import CallEnd, GrpcConnection
from app.runtimes.cri.messages import pb
from app.runtimes.engine.errors import EndpointError, EngineError
from app.runtimes.linux import process_table
from app.structured_logging import Logger

KEEP_SECONDS = 30  # for what had been asked when we were killed
_SCRIPT = f"cd /; read -r _; exec sleep {KEEP_SECONDS}"  # nothing is ever written for it to read: it ends with us
_KEPT_DESCRIPTOR = 3


class KeepAlive:
    def __init__(self) -> None:
        self.peer = 0  # the engine's process
        self._pid = 0
        self._end = -1

    def hold(self, connection: socket.socket) -> None:
        """This one, and none that was held before. Raises OSError."""
        self.close()
        self.peer = process_table.peer(connection)
        reading, self._end = os.pipe()
        try:
            self._pid = os.posix_spawn(
                "/bin/sh",
                ["/bin/sh", "-c", _SCRIPT],
                {"PATH": os.environ.get("PATH", os.defpath)},
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, connection.fileno(), _KEPT_DESCRIPTOR),
                    (os.POSIX_SPAWN_DUP2, reading, 0),
                    (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0),
                    (os.POSIX_SPAWN_DUP2, 1, 2),
                ],
                setsid=True,
            )
        except OSError:
            os.close(self._end)
            raise
        finally:
            os.close(reading)

    def close(self) -> None:
        """Nothing that we have asked for is wanted any more, or it is over."""
        if self._pid:
            with suppress(ProcessLookupError, ChildProcessError):
                os.kill(self._pid, signal.SIGKILL)
                os.waitpid(self._pid, 0)
            os.close(self._end)
            self._pid = 0


TIMEOUT = 120.0  # seconds for what should take less than one; an engine under load takes its time
_SERVICE = "/runtime.v1."
_OF_IMAGES = frozenset({"ListImages", "ImageStatus", "PullImage", "RemoveImage", "ImageFsInfo"})
_CODES = (  # by gRPC's numbers, as Go names them
    "OK",
    "Canceled",
    "Unknown",
    "InvalidArgument",
    "DeadlineExceeded",
    "NotFound",
    "AlreadyExists",
    "PermissionDenied",
    "ResourceExhausted",
    "FailedPrecondition",
    "Aborted",
    "OutOfRange",
    "Unimplemented",
    "Internal",
    "Unavailable",
    "DataLoss",
    "Unauthenticated",
)
_AWAY = frozenset({"Unavailable", "DeadlineExceeded", "Canceled"})
_LATER = (  # as containerd puts it
    "server is not initialized yet",  # in its first second
    "is reserved for",  # an agent that died had asked for the same
    "in starting state",  # likewise
)
M = TypeVar("M", bound=Message)
logger = Logger(__name__)


class CriEngine:
    """One connection to one engine, which may die and come back."""

    def __init__(self, endpoint: str) -> None:
        """Raises EndpointError."""
        self.endpoint = endpoint if "://" in endpoint else f"unix://{endpoint}"
        if not self.endpoint.startswith("unix:///"):
            raise EndpointError(f"{self.endpoint}: only unix:// with an absolute path is supported")
        self._path = self.endpoint.removeprefix("unix://")
        self._wires: list[GrpcConnection] = []  # the last is asked; one before it may still have something to say
        self._keep_alive, self._opening = KeepAlive(), asyncio.Lock()

    async def ask(self, request: Message, answer: type[M], timeout: float | None = TIMEOUT) -> M:  # noqa: ASYNC109 - a deadline that is sent to the engine
        """The method is named by the request. Raises ConnectionError, EngineError."""
        method = type(request).__name__.removesuffix("Request")
        service = "ImageService" if method in _OF_IMAGES else "RuntimeService"
        found = b""
        try:
            async with asyncio.timeout(timeout):
                async for each in self.follow(f"{_SERVICE}{service}/{method}", request.SerializeToString(), timeout):
                    found = each
        except TimeoutError as error:
            raise self._unreachable("it takes too long") from error
        decoded: M = answer.FromString(found)
        return decoded

    async def follow(self, method: str, request: bytes, seconds: float | None = None) -> AsyncIterator[bytes]:
        """Undecoded answers of a method that goes on. Raises ConnectionError, EngineError."""
        end = CallEnd(0, "")
        try:
            wire = await self._connect()
            async with aclosing(wire.answers(method, request, seconds)) as answers:
                async for answer in answers:
                    if isinstance(answer, CallEnd):
                        end = answer
                    else:
                        yield answer
        except OSError as error:
            raise self._unreachable(str(error)) from error
        if end.status:
            raise self._to_exception(_CODES[end.status] if end.status < len(_CODES) else "Unknown", end.details)

    async def config(self) -> Mapping[str, Any]:
        """The engine's configuration, as far as it tells: containerd does. Raises ConnectionError."""
        try:
            answer_text = (await self.ask(pb.StatusRequest(verbose=True), pb.StatusResponse)).info.get("config", "{}")
            found = json.loads(answer_text)
        except (EngineError, ValueError) as error:
            logger.info(
                "container engine does not report its configuration; it keeps containers' output itself",
                error=error,
            )
            return {}
        return found if isinstance(found, dict) else {}

    async def close(self) -> None:
        self._keep_alive.close()
        for wire in self._wires:
            await wire.close()

    @property
    def process(self) -> int:
        """Pid of the engine; 0 if it is not known."""
        return self._keep_alive.peer

    async def _connect(self) -> GrpcConnection:
        async with self._opening:
            self._wires = [wire for wire in self._wires if not wire.is_over]
            if not self._wires or self._wires[-1].is_leaving:
                self._wires.append(await self._open_wire())
            return self._wires[-1]

    async def _open_wire(self) -> GrpcConnection:
        wire = await grpc_channel.open_connection(self._path)
        try:
            self._keep_alive.hold(wire.connection)
        except OSError:
            await wire.close()
            raise
        return wire

    def _unreachable(self, why: str) -> ConnectionError:
        return ConnectionError(f"the container engine at {self.endpoint} does not answer: {why}")

    def _to_exception(self, code: str, details: str) -> Exception:
        if code in _AWAY:
            return self._unreachable(details)
        if any(text in details for text in _LATER):
            return ConnectionError(f"the container engine at {self.endpoint} cannot do it yet: {details}")
        return EngineError(code, details, f"rpc error: code = {code} desc = {details}")
