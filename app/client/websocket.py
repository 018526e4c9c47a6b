"""WebSocket client: how an agent answers a call. Opened by `Api.open_socket`."""

import asyncio
import base64
import secrets
import ssl
from collections.abc import AsyncIterator
from typing import Self
from urllib.parse import urlsplit

from websockets.protocol import Side

from app.client.websocket_framing import Framing

DIAL_SECONDS = 10.0
MOST = 1 << 20  # bytes of one message
_PIECE = 64 * 1024
_LONGEST_REFUSAL = 64 * 1024


class NotOpenedError(Exception):
    """The server's answer was no WebSocket: its code and body."""

    def __init__(self, code: int, body: bytes) -> None:
        super().__init__(f"the server answered {code}")
        self.code, self.body = code, body


class Socket:
    """One that is open. One task receives; any may send."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._framing = Framing(Side.CLIENT, MOST)

    @classmethod
    async def open(cls, server: str, path: str, authorization: str, tls: ssl.SSLContext) -> Self:
        """Raises OSError, TimeoutError, NotOpenedError."""
        at = urlsplit(server)
        secure = at.scheme == "https"
        async with asyncio.timeout(DIAL_SECONDS):
            reader, writer = await asyncio.open_connection(
                at.hostname, at.port or (443 if secure else 80), ssl=tls if secure else None
            )
            try:
                await _upgrade(reader, writer, f"{at.path.rstrip('/')}{path}", at.netloc, authorization)
            except BaseException:
                writer.close()
                raise
        return cls(reader, writer)

    async def messages(self) -> AsyncIterator[bytes]:
        """Every whole message, until either end has closed, or the connection is lost."""
        while data := await self._read():
            whole = self._framing.received(data)
            await self._flush()
            for message in whole:
                yield message

    async def send(self, data: bytes) -> None:
        """One message, when there is room for it. ConnectionResetError if the other end is gone."""
        self._framing.send(data)
        await self._flush()

    async def ping(self) -> None:
        self._framing.ping()
        await self._flush()

    async def finish(self) -> None:
        """Say that no more will come, and wait until the other end has taken all of it."""
        self._framing.close(1000)
        await self._flush()
        while await self._read():
            pass

    def close(self) -> None:
        """End the connection. What was not taken may be lost."""
        self._writer.close()

    async def _read(self) -> bytes:
        try:
            return await self._reader.read(_PIECE)
        except OSError:
            return b""

    async def _flush(self) -> None:
        if data := self._framing.pending():
            self._writer.write(data)
            await self._writer.drain()


async def _upgrade(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, path: str, host: str, authorization: str
) -> None:
    """Ask for the WebSocket. That the server agrees on it is enough: it is known by its certificate, not by a digest."""
    key = base64.b64encode(secrets.token_bytes(16)).decode()
    lines = [f"GET {path} HTTP/1.1", f"Host: {host}", "Connection: Upgrade", "Upgrade: websocket"]
    lines += ["Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", f"Authorization: {authorization}", "", ""]
    writer.write("\r\n".join(lines).encode("latin-1"))
    try:
        head = await reader.readuntil(b"\r\n\r\n")
        status, *fields = head.decode("latin-1").split("\r\n")
        code = int(status.split()[1])
        if code != 101:
            length = next((int(each[15:]) for each in fields if each.lower().startswith("content-length:")), 0)
            raise NotOpenedError(code, await reader.readexactly(min(length, _LONGEST_REFUSAL)))
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError, IndexError) as error:
        raise ConnectionResetError("the server does not answer as a web server would") from error
