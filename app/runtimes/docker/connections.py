"""Connections to a Docker Engine on which all that it sent arrives, though it is killed. Opened by `engine`.

aiohttp, and asyncio's streams too, throw away what they have received and not handed over yet when a connection breaks. An
end that Docker reported in its last moment, and has not noted down, would be lost with it. So the socket is read here.
"""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

_BLOCK = 65536
_WITHIN = 10  # seconds for the engine to take the connection, and to send a refusal

Address = str | tuple[str, int]  # a Unix socket's path, or a host and its port


class EngineConnection:
    """A connection, with what was received and not taken yet. Once it breaks: ConnectionError, after all that was received."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket, self._came = connection, bytearray()

    async def ask(self, request: bytes) -> int:
        """Sends it, and takes the head of the answer: its status."""
        try:
            await asyncio.get_running_loop().sock_sendall(self._socket, request)
            return int((await self._until(b"\r\n\r\n")).split(None, 2)[1])
        except (OSError, ValueError, IndexError) as error:
            raise ConnectionError(str(error)) from error

    async def some(self) -> bytes:
        """Return what came; nothing if nothing comes."""
        if not self._came:
            with suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(_WITHIN):
                    await self._receive()
        found = bytes(self._came)
        self._came.clear()
        return found

    async def lines(self) -> AsyncIterator[bytes]:
        """Each, once it is whole."""
        while True:
            yield await self._until(b"\n")

    async def streams(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The connection, in asyncio's hands from now on."""
        loop = asyncio.get_running_loop()
        reader = asyncio.StreamReader(loop=loop)
        reader.feed_data(bytes(self._came))
        protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
        if self._socket.family == socket.AF_UNIX:
            transport, _ = await loop.create_unix_connection(lambda: protocol, sock=self._socket)
        else:
            transport, _ = await loop.create_connection(lambda: protocol, sock=self._socket)
        return reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    def close(self) -> None:
        self._socket.close()

    async def _until(self, mark: bytes) -> bytes:
        while (end := self._came.find(mark)) < 0:
            await self._receive()
        found = bytes(self._came[:end])
        del self._came[: end + len(mark)]
        return found

    async def _receive(self) -> None:
        try:
            data = await asyncio.get_running_loop().sock_recv(self._socket, _BLOCK)
        except OSError as error:
            raise ConnectionError(str(error)) from error
        if not data:
            raise ConnectionError("it hung up")
        self._came += data


async def connect(address: Address) -> EngineConnection:
    """Raises OSError."""
    trouble = OSError("it has no address")
    for family, place in await _places(address):
        try:
            connection = socket.socket(family)
        except OSError as error:  # the kernel knows no such addresses
            trouble = error
            continue
        try:
            connection.setblocking(False)
            async with asyncio.timeout(_WITHIN):
                await asyncio.get_running_loop().sock_connect(connection, place)
        except OSError as error:  # there may be another place
            connection.close()
            trouble = error
        except asyncio.CancelledError:
            connection.close()
            raise
        else:
            return EngineConnection(connection)
    raise trouble


async def _places(address: Address) -> list[tuple[int, Any]]:
    """Families and addresses of sockets, as the kernel takes them."""
    if isinstance(address, str):
        return [(socket.AF_UNIX, address)]
    found = await asyncio.get_running_loop().getaddrinfo(*address, type=socket.SOCK_STREAM)
    return [(family, place) for family, *_, place in found]
