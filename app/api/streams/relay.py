"""Relay of agents' calls between API replicas: an agent dialled this replica for a call that another one waits for.

`agent_calls` returns a `Relay`, which copies bytes both ways unchanged. The other replica authenticates the agent's own
request, with its token. Replicas identify each other by certificate, announced through the database, so they need no common
authority.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from hashlib import sha256
from urllib.parse import quote, urlsplit

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from app.api.http import errors
from app.api.http.connection import UpgradedConnection, take_over
from app.machinery.errors import ApiError
from app.structured_logging import Logger

RELAYED = "x-jobplane-relayed"
DIAL_SECONDS = 5.0
PIECE = 64 * 1024
_PASSED_ON = ("authorization", "upgrade", "sec-websocket-key", "sec-websocket-version")

logger = Logger(__name__)


@dataclass(frozen=True)
class Relay:
    """ASGI application that copies bytes to the replica at `url` and back until either side ends. 502 if it is unreachable."""

    request: Request
    url: str
    certificate: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with self._connect() as (reader, writer):
                headers = await self._read_handshake(reader, writer)
                wire = take_over(scope, headers)
                await _pump(wire, reader, writer, scope["app"].state.streams)
        except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
            logger.warning("cannot reach another API replica; check its --advertise-url", address=self.url, error=error)
            await errors.response(_unreachable())(scope, receive, send)
        except ApiError as error:
            await errors.response(error)(scope, receive, send)

    @asynccontextmanager
    async def _connect(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        at = urlsplit(self.url)
        secure = _unverified_context() if at.scheme == "https" else None
        async with asyncio.timeout(DIAL_SECONDS):
            reader, writer = await asyncio.open_connection(at.hostname or "", at.port, ssl=secure)
        try:
            if secure:
                _check_certificate(writer, self.certificate)
            yield reader, writer
        finally:
            writer.close()

    async def _read_handshake(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> list[tuple[str, str]]:
        """Send the request and return the headers of the 101; 404 for any other answer."""
        headers = self.request.headers
        path = quote(self.request.scope["path"])  # not `url.path`, which depends on the Host header
        lines = [f"GET {path} HTTP/1.1", f"Host: {urlsplit(self.url).netloc}", "Connection: Upgrade"]
        lines += [f"{name}: {headers[name]}" for name in _PASSED_ON if name in headers]
        writer.write("\r\n".join([*lines, f"{RELAYED}: 1", "", ""]).encode("latin-1"))
        async with asyncio.timeout(DIAL_SECONDS):
            status, *fields = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        if status.split()[1:2] != ["101"]:
            raise ApiError(404, "NotFound", "this node is not called, or no longer")
        named = [(name.strip(), value.strip()) for name, _, value in (each.partition(":") for each in fields) if value]
        return [(name, value) for name, value in named if name.lower() in {"upgrade", "sec-websocket-accept"}]


def _unverified_context() -> ssl.SSLContext:
    """Return a context that accepts any certificate; `_check_certificate` compares it with the announced one."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _check_certificate(writer: asyncio.StreamWriter, digest: str) -> None:
    shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True) or b""
    if sha256(shown).hexdigest() != digest:
        raise ConnectionError("what answers there is not that process: it shows another certificate")


def _unreachable() -> ApiError:
    return ApiError(502, "BadGateway", "the process of the API that waits for this call cannot be reached from here")


async def _pump(
    wire: UpgradedConnection,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    streams: "set[asyncio.Task[None]]",
) -> None:
    """Copy both ways until either side ends, or the server stops."""
    tasks = {asyncio.create_task(_copy_to_replica(wire, writer)), asyncio.create_task(_copy_from_replica(wire, reader))}
    streams |= tasks
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        streams -= tasks
        await asyncio.gather(*tasks, return_exceptions=True)
        wire.close()


async def _copy_to_replica(wire: UpgradedConnection, writer: asyncio.StreamWriter) -> None:
    with suppress(ConnectionError):
        while data := await wire.read():
            writer.write(data)
            await writer.drain()


async def _copy_from_replica(wire: UpgradedConnection, reader: asyncio.StreamReader) -> None:
    with suppress(ConnectionError):
        while data := await reader.read(PIECE):
            await wire.write(data)
