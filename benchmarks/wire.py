"""HTTP/1.1, mostly over TLS, for measuring: one request at a time on a connection that stays open, or a stream of pieces.

Not httpx, whose half a millisecond a request is as much as the server's: on a small machine the client would be what is
measured. Here a request costs some 0.05 ms, and a watcher is one callback a piece.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from typing import Any, cast

import httptools
import msgspec

Hear = Callable[[bytes], None]
_MEDIA = {"PATCH": "application/merge-patch+json"}


class RefusedError(Exception):
    """The server answered, but not with success."""


@dataclass(frozen=True)
class Client:
    """Where the API is, and how to be let in."""

    port: int
    token: str
    trust: ssl.SSLContext | None  # None: without TLS

    async def connect(self) -> "Connection":
        loop = asyncio.get_running_loop()
        made = await loop.create_connection(
            lambda: Connection(self.port, self.token),
            "127.0.0.1",
            self.port,
            ssl=self.trust,
            server_hostname="localhost" if self.trust else None,
        )
        return made[1]

    @asynccontextmanager
    async def connection(self) -> AsyncIterator["Connection"]:
        connection = await self.connect()
        try:
            yield connection
        finally:
            connection.close()

    @asynccontextmanager
    async def connections(self, count: int) -> AsyncIterator[list["Connection"]]:
        async with AsyncExitStack() as stack:
            yield [await stack.enter_async_context(self.connection()) for _ in range(count)]


class Connection(asyncio.Protocol):
    """One connection. Any failure raises, as a benchmark that loses requests has measured nothing."""

    def __init__(self, port: int, token: str) -> None:
        self._headers = f"Host: localhost:{port}\r\nAuthorization: Bearer {token}\r\n"
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._transport: asyncio.Transport | None = None
        self._answer: asyncio.Future[bytes] | None = None
        self._hear: Hear | None = None

    async def get(self, path: str) -> bytes:
        return await self.request("GET", path)

    async def read(self, path: str) -> Any:
        """GET, decoded."""
        return msgspec.json.decode(await self.get(path))

    async def post(self, path: str, body: object) -> bytes:
        return await self.request("POST", path, msgspec.json.encode(body))

    async def request(self, method: str, path: str, body: bytes = b"") -> bytes:
        told = f"Content-Type: {_MEDIA.get(method, 'application/json')}\r\nContent-Length: {len(body)}\r\n"
        head = f"{method} {path} HTTP/1.1\r\n{self._headers}{told}\r\n"
        return await self._ask(head.encode() + body)

    async def stream(self, path: str, hear: Hear) -> None:
        """GET for ever: returns once the server has begun to answer.

        `hear` gets each piece of the body as it comes, and b"" if it ends.
        """
        self._hear = hear
        await self._ask(f"GET {path} HTTP/1.1\r\n{self._headers}\r\n".encode())

    async def _ask(self, message: bytes) -> bytes:
        if self._transport is None or self._transport.is_closing():
            raise ConnectionError("the server has closed the connection")
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(message)
        return await self._answer

    def close(self) -> None:
        self._hear = None
        if self._transport is not None:
            self._transport.abort()

    # What asyncio calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not its subclasses

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end_stream()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(exc or ConnectionError("the server has closed the connection"))

    # What the parser calls

    def on_headers_complete(self) -> None:
        if self._hear is not None and self._parser.get_status_code() == 200:
            self._answered(b"")

    def on_body(self, body: bytes) -> None:
        if self._hear is not None and self._parser.get_status_code() == 200:
            self._hear(body)
        else:
            self._pieces.append(body)

    def on_message_complete(self) -> None:
        body, self._pieces = b"".join(self._pieces), []
        self._answered(body)
        self._end_stream()

    def _end_stream(self) -> None:
        hear, self._hear = self._hear, None
        if hear is not None:
            hear(b"")

    def _answered(self, body: bytes) -> None:
        if self._answer is None or self._answer.done():
            return
        code = self._parser.get_status_code()
        if code < 400:
            self._answer.set_result(body)
        else:
            self._answer.set_exception(RefusedError(f"{code}: {body[:500].decode(errors='replace')}"))
