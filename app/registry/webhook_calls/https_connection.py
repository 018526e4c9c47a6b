"""HTTPS connection: sends one POST after the other on a connection that stays open. HTTP/1.1, and no more of it than calls need.

Used by `webhook_client`. A webhook is called for every pod, so what a general client does for each request would be most of the
cost of a call. Bodies are bounded; redirects are not followed.
"""

import asyncio
import ssl
from typing import NamedTuple

MOST_BYTES = 8 << 20  # of an answer
MOST_HEAD_BYTES = 64 << 10


class Address(NamedTuple):
    """Where to connect to, and the name that the certificate must be for."""

    host: str
    port: int
    server_name: str


class ProtocolError(Exception):
    """The other end does not speak HTTP/1.1, or answers too much."""


class HttpResponse(NamedTuple):
    status: int
    body: bytes


class HttpsConnection:
    """`is_reusable`: False once the other end wants no further request. `has_answered`: it has taken a request before."""

    def __init__(self, address: Address, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.address = address
        self._reader, self._writer = reader, writer
        self.is_reusable = True
        self.has_answered = False

    @classmethod
    async def open(cls, address: Address, context: ssl.SSLContext) -> "HttpsConnection":
        """Connect. Raises OSError, of which ssl.SSLError is one."""
        reader, writer = await asyncio.open_connection(
            address.host, address.port, ssl=context, server_hostname=address.server_name, limit=MOST_HEAD_BYTES
        )
        return cls(address, reader, writer)

    async def post(self, head: bytes, body: bytes) -> HttpResponse:
        """Send a request, of which the head is all but Content-Length, and return the answer.

        Raises OSError or EOFError if the connection breaks, ProtocolError.
        """
        self._writer.write(b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body))
        await self._writer.drain()
        try:
            status, headers = await self._read_head()
            while 100 <= status < 200:
                status, headers = await self._read_head()
            found = HttpResponse(status, await self._read_body(status, headers))
        except (asyncio.LimitOverrunError, ValueError, IndexError) as error:
            raise ProtocolError(f"malformed HTTP response: {error}") from error
        self.has_answered = True
        return found

    async def _read_head(self) -> tuple[int, dict[bytes, bytes]]:
        head = await self._reader.readuntil(b"\r\n\r\n")
        first, *lines = head[:-4].split(b"\r\n")
        version, status, *_ = first.split(b" ", 2)
        if not version.startswith(b"HTTP/1."):
            raise ProtocolError(f"malformed HTTP version {version[:20].decode('latin-1')!r}")
        headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(b":") for line in lines)}
        if version == b"HTTP/1.0" or headers.get(b"connection", b"").lower() == b"close":
            self.is_reusable = False
        return int(status), headers

    async def _read_body(self, status: int, headers: dict[bytes, bytes]) -> bytes:
        if status in (204, 304):
            return b""
        if headers.get(b"transfer-encoding", b"").lower() == b"chunked":
            return await self._read_chunks()
        if b"content-length" in headers:
            return await self._read_exactly(int(headers[b"content-length"]))
        self.is_reusable = False
        body = await self._reader.read(MOST_BYTES + 1)
        while len(body) <= MOST_BYTES and (more := await self._reader.read(MOST_BYTES + 1 - len(body))):
            body += more
        return self._check_size(body, len(body))

    async def _read_chunks(self) -> bytes:
        parts, size = [], 0
        while length := int((await self._reader.readuntil(b"\r\n")).partition(b";")[0], 16):
            size += length
            self._check_size(b"", size)
            parts.append(await self._reader.readexactly(length))
            await self._reader.readexactly(2)
        while await self._reader.readuntil(b"\r\n") != b"\r\n":  # trailers
            pass
        return b"".join(parts)

    async def _read_exactly(self, length: int) -> bytes:
        self._check_size(b"", length)
        return await self._reader.readexactly(length)

    def _check_size(self, body: bytes, size: int) -> bytes:
        if not 0 <= size <= MOST_BYTES:
            raise ProtocolError(f"the response has more than {MOST_BYTES} bytes")
        return body

    def is_open(self) -> bool:
        """Return whether a request may be sent: the other end has not closed the connection, as far as it is known."""
        return self.is_reusable and not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        self._writer.transport.abort()
