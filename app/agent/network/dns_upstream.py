"""Upstream DNS: hands questions about the rest of the world, byte for byte, to the name servers of the node.

Nothing is cached or read, so nothing that they answer can stand for a name of the cluster. Each question goes out from a port of
its own under a random number, and only an answer from that server with that number counts.
"""

import asyncio
import secrets
import struct
from collections.abc import Callable, Sequence

PORT = 53
PATIENCE = 2.0  # seconds for each server
LARGEST = 65535


class DnsUpstream:
    """`servers` tells the name servers of the node, as they are now."""

    def __init__(self, servers: Callable[[], Sequence[str]], port: int = PORT) -> None:
        self._servers, self._port = servers, port

    async def ask(self, question: bytes, *, tcp: bool) -> bytes | None:
        """Return the answer of the first server that gives one."""
        for server in self._servers():
            number = secrets.token_bytes(2)
            try:
                async with asyncio.timeout(PATIENCE):
                    answer = await (self._ask_tcp if tcp else self._ask_udp)(server, number + question[2:])
            except (OSError, TimeoutError, EOFError):
                continue
            return question[:2] + answer[2:]
        return None

    async def _ask_udp(self, server: str, question: bytes) -> bytes:
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[bytes] = loop.create_future()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: _Exchange(question[:2], answered), remote_addr=(server, self._port)
        )
        try:
            transport.sendto(question)
            return await answered
        finally:
            transport.close()

    async def _ask_tcp(self, server: str, question: bytes) -> bytes:
        reader, writer = await asyncio.open_connection(server, self._port)
        try:
            writer.write(struct.pack("!H", len(question)) + question)
            (size,) = struct.unpack("!H", await reader.readexactly(2))
            answer = await reader.readexactly(size)
        finally:
            writer.close()
        if answer[:2] != question[:2]:
            raise ConnectionError("the name server answers something else")
        return answer


class _Exchange(asyncio.DatagramProtocol):
    """The socket is connected, so what others send does not get here."""

    def __init__(self, number: bytes, answered: "asyncio.Future[bytes]") -> None:
        self._number, self._answered = number, answered

    def datagram_received(self, data: bytes, _: object) -> None:
        if data[:2] == self._number and not self._answered.done():
            self._answered.set_result(data)

    def error_received(self, error: Exception) -> None:
        if not self._answered.done():
            self._answered.set_exception(error)
