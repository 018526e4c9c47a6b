"""A receiver of webhooks: a real HTTP server that answers as a test wants it to, and keeps what it was sent."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field


@dataclass
class Request:
    """As it came over the wire."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Receiver:
    """`answers`: a status for each request in turn, None for silence; the last one is for all that follow."""

    port: int = 0
    answers: list[int | None] = field(default_factory=lambda: [204])
    requests: list[Request] = field(default_factory=list)
    on_request: Callable[[], None] = lambda: None
    arrived: asyncio.Condition = field(default_factory=asyncio.Condition)
    handlers: set[asyncio.Task[None]] = field(default_factory=set)  # asyncio itself forgets those that only wait

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hook"

    def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.create_task(self._handle(reader, writer))
        self.handlers.add(handler)
        handler.add_done_callback(self.handlers.discard)

    async def _handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await self._answer(await _read(reader), writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    async def _answer(self, request: Request, writer: asyncio.StreamWriter) -> None:
        self.requests.append(request)
        self.on_request()
        async with self.arrived:
            self.arrived.notify_all()
        status = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if status is None:
            await asyncio.Event().wait()
        writer.write(f"HTTP/1.1 {status} x\r\nlocation: {self.url}/moved\r\ncontent-length: 0\r\n\r\n".encode())
        await writer.drain()

    async def has(self, count: int) -> None:
        """Return when so many requests have come."""
        async with asyncio.timeout(140), self.arrived:
            await self.arrived.wait_for(lambda: len(self.requests) >= count)


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)}
    body = await reader.readexactly(int(headers["content-length"]))
    return Request(head[0].split()[1], headers, body)


@asynccontextmanager
async def receiving(*answers: int | None, port: int = 0) -> AsyncIterator[Receiver]:
    receiver = Receiver(answers=[*answers] or [204])
    server = await asyncio.start_server(receiver.connected, "127.0.0.1", port)
    receiver.port = server.sockets[0].getsockname()[1]
    try:
        yield receiver
    finally:
        server.close()
        for each in [*receiver.handlers]:
            each.cancel()
        await asyncio.gather(*receiver.handlers, return_exceptions=True)
