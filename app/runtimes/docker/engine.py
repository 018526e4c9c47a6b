"""Calls to a Docker Engine (or Podman, as far as it speaks the same) over its socket. Called by the docker runtime.

An engine that is away is a ConnectionError, whatever is asked of it; it may be asked again. What it refuses is an
EngineError with the words that `docker` would show.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import datetime
from typing import Any
from urllib.parse import urlencode, urlsplit

import aiohttp
from aiodocker import Docker, DockerError

from app.runtimes.docker import connections
from app.runtimes.docker.connections import Address, EngineConnection
from app.runtimes.engine.errors import GONE, EndpointError, EngineError
from app.runtimes.linux import process_table

TIMEOUT = 120.0  # seconds for what should take less than one; an engine under load takes its time
_CODES = {400: "InvalidArgument", 401: "Unauthenticated", 403: "PermissionDenied", 404: GONE, 409: "FailedPrecondition"}
_JSON = {"Content-Type": "application/json"}
_FOR_EVER = aiohttp.ClientTimeout(total=None, sock_connect=10)
_UNREACHABLE = 900  # aiodocker's status where there was no answer


class DockerEngine(Docker):
    """As many connections as there are questions to one engine, which may die and come back. Made inside an event loop."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint if "://" in endpoint else f"unix://{endpoint}"
        where = urlsplit(self.endpoint)
        self._address: Address = where.path if where.scheme == "unix" else (where.hostname or "", where.port or 2375)
        if where.scheme == "unix":
            connector: aiohttp.BaseConnector = aiohttp.UnixConnector(where.path, limit=0)
        elif where.scheme in ("tcp", "http"):
            connector = aiohttp.TCPConnector(limit=0)
        else:
            raise EndpointError(f"{self.endpoint}: only unix:// and plain tcp:// are supported")
        host = "docker" if where.scheme == "unix" else where.netloc
        self._connector_made = connector
        self._podman: bool | None = None
        super().__init__(f"http://{host}", connector, timeout=aiohttp.ClientTimeout(total=TIMEOUT))

    async def ask(self, path: str, method: str = "GET", body: object = None, **params: str | int) -> Any:
        """The answer's JSON, whether the engine calls it so or not. Raises ConnectionError, EngineError."""
        content = None if body is None else json.dumps(body)
        try:
            async with self._query(path, method, params=params, data=content, headers=_JSON) as answer, answer:
                return json.loads(await answer.read() or b"null")
        except (DockerError, aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:  # it died as it spoke
            raise self._to_exception(error) from error

    async def follow(
        self, path: str, method: str = "GET", headers: Mapping[str, str] | None = None, **params: str | int
    ) -> AsyncGenerator[Any, None]:
        """Each JSON line of an answer that goes on. Raises ConnectionError, EngineError."""
        try:
            async with self._query(path, method, params=params, headers=headers, timeout=_FOR_EVER) as answer, answer:
                async for line in answer.content:
                    if line.strip():
                        yield json.loads(line)
        except (DockerError, aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._to_exception(error) from error

    async def bytes_of(self, path: str, **params: str | int) -> AsyncIterator[bytes]:
        """An answer that goes on, as it comes. Raises ConnectionError, EngineError."""
        try:
            async with self._query(path, params=params, timeout=_FOR_EVER) as answer, answer:
                async for data in answer.content.iter_any():
                    yield data
        except (DockerError, aiohttp.ClientError, TimeoutError, OSError) as error:
            raise self._to_exception(error) from error

    def started_at(self) -> datetime | None:
        """Start of its process, if that can be seen from here."""
        return process_table.listener_started_at(self._address) if isinstance(self._address, str) else None

    async def is_podman(self) -> bool:
        if self._podman is None:
            parts = (await self.ask("version")).get("Components") or ()
            self._podman = any("podman" in part["Name"].lower() for part in parts)
        return self._podman

    async def hear_events(self, **params: str) -> AsyncIterator[Any]:
        """Each event of the engine, all of them though it is killed. Raises ConnectionError, EngineError."""
        # By HTTP/1.0, so that nothing comes in chunks.
        wire = await self._open_wire("GET", f"events?{urlencode(params)}", "HTTP/1.0\r\nHost: docker")
        try:
            async for line in wire.lines():
                if line.strip():
                    yield _object(line)
        except (OSError, ValueError) as error:
            raise self._to_exception(error) from error
        finally:
            wire.close()

    async def upgrade(self, path: str, body: object = None) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The connection itself, after a question that makes the engine give it away. Raises ConnectionError, EngineError.

        aiodocker has such streams, too, but none that can end its input and go on reading.
        """
        content = json.dumps(body).encode() if body is not None else b""
        how = "HTTP/1.1\r\nHost: docker\r\nConnection: Upgrade\r\nUpgrade: tcp\r\n"
        how += f"Content-Type: application/json\r\nContent-Length: {len(content)}"
        return await (await self._open_wire("POST", path, how, content)).streams()

    async def close(self) -> None:
        await super().close()
        await self._connector_made.close()

    async def _open_wire(self, method: str, path: str, how: str, content: bytes = b"") -> EngineConnection:
        """A connection of its own, on which the engine has begun to answer. `how`: HTTP's version, and headers."""
        try:
            await self._check_version()
            wire = await connections.connect(self._address)
            with ExitStack() as refused:
                refused.callback(wire.close)
                status = await wire.ask(f"{method} /{self.api_version}/{path} {how}\r\n\r\n".encode() + content)
                if status not in (101, 200):
                    raise _refusal(status, await wire.some())
                refused.pop_all()
        except (DockerError, aiohttp.ClientError, OSError) as error:
            raise self._to_exception(error) from error
        return wire

    def _to_exception(self, error: Exception) -> Exception:
        if isinstance(error, DockerError) and error.status != _UNREACHABLE:
            return _error(error.status, error.message)
        return ConnectionError(f"the container engine at {self.endpoint} does not answer: {error or 'too late'}")


def filters(**wanted: Sequence[str]) -> str:
    """As the engine's lists take them."""
    return json.dumps({name: [*values] for name, values in wanted.items()})


def _object(line: bytes) -> Mapping[str, Any]:
    """Raises ValueError."""
    found = json.loads(line)
    if not isinstance(found, dict):
        raise ValueError(f"{found!r} is no event")
    return found


def _refusal(status: int, answer: bytes) -> EngineError:
    text = answer.decode(errors="replace").strip()
    start, end = text.find("{"), text.rfind("}")
    with suppress(ValueError, KeyError, TypeError):
        text = str(json.loads(text[start : end + 1])["message"])
    return _error(status, text)


def _error(status: int, text: str) -> EngineError:
    return EngineError(_CODES.get(status, "Unknown"), text, f"Error response from daemon: {text}")
