"""HTTP/1.1 exchange: one request to a port of a pod and its response, over a call to the agent of the pod's node.

`proxy` sends requests through it. Bytes come and go through a `PodStream`, in plain or with TLS; heads are bounded, and a body is
passed on piece by piece. Every failure is an `ExchangeError`, whose text is for the client.
"""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Protocol

import httptools

from app.api.streams.agent_calls import Line
from app.client.protocol import STDIN, STDOUT

MOST_HEAD = 64 << 10  # bytes of the head of a response
HANDSHAKE_SECONDS = 10.0
_PIECE = 64 << 10
_SWITCHING = 101


class ExchangeError(Exception):
    """The other end cannot be reached, or what it says is no HTTP. The text is the reason."""


class PodStream(Protocol):
    """Bytes to and from a port of a pod."""

    async def read(self) -> bytes:
        """Return bytes, waiting for some; nothing at the end."""
        ...

    async def write(self, data: bytes) -> None: ...


class PlainStream:
    """The connection itself."""

    def __init__(self, line: Line, address: str) -> None:
        self._line, self._address = line, address
        self._has_ended = False

    async def read(self) -> bytes:
        """Return bytes, waiting for some; nothing at the end. ExchangeError if there is no connection."""
        if self._has_ended:
            return b""
        if data := await self._line.read(STDOUT):
            return data
        word = await self._line.word()
        if word is None:
            raise ExchangeError("the connection to the agent was lost")
        if word.failed:
            raise ExchangeError(_dial_text(self._address, word.failed))
        self._has_ended = True
        return b""

    async def write(self, data: bytes) -> None:
        """Write, waiting for room. Once the connection is gone nothing is written: `read` tells why."""
        with suppress(ConnectionError):
            await self._line.write(STDIN, data)


class TlsStream:
    """TLS over such a stream. As in Kubernetes, the certificate is not checked: it is for no name that is known here."""

    def __init__(self, stream: PodStream) -> None:
        self._stream = stream
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = _context().wrap_bio(self._incoming, self._outgoing)
        self._flushing = asyncio.Lock()  # records leave in the order in which they were made

    async def shake_hands(self) -> None:
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                await self._shake_hands()
        except TimeoutError:
            raise ExchangeError("net/http: TLS handshake timeout") from None
        except ssl.SSLError as error:
            raise ExchangeError(f"tls: {error.reason or error}") from error

    async def _shake_hands(self) -> None:
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                await self._receive()
            else:
                await self._flush()
                return

    async def read(self) -> bytes:
        while True:
            try:
                return self._tls.read(_PIECE)
            except ssl.SSLWantReadError:
                await self._receive()
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                return b""
            except ssl.SSLError as error:
                raise ExchangeError(f"tls: {error.reason or error}") from error

    async def write(self, data: bytes) -> None:
        try:
            self._tls.write(data)
        except ssl.SSLError as error:
            raise ExchangeError(f"tls: {error.reason or error}") from error
        await self._flush()

    async def _receive(self) -> None:
        await self._flush()
        data = await self._stream.read()
        if data:
            self._incoming.write(data)
        else:
            self._incoming.write_eof()

    async def _flush(self) -> None:
        async with self._flushing:
            if data := self._outgoing.read():
                await self._stream.write(data)


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


class Exchange:
    """One request and its response. The caller sends the request, then reads head and body; both may go on at once."""

    def __init__(self, stream: PodStream, *, has_body: bool) -> None:
        self._stream = stream
        self._has_body = has_body  # the response to a HEAD has none, whatever its head says
        self._parser = httptools.HttpResponseParser(self)
        self._received = self._size = 0  # bytes before the end of the head, and of its headers
        self._is_head_complete = self._is_complete = False
        self._pieces: list[bytes] = []
        self.status = 0
        self.headers: list[tuple[bytes, bytes]] = []
        self.rest = b""
        """The bytes that followed the head of a 101 answer."""

    async def write(self, data: bytes) -> None:
        await self._stream.write(data)

    async def read_head(self) -> None:
        """Read up to the end of the head: `status` and `headers` are known then."""
        while not self._is_head_complete:
            data = await self._stream.read()
            if not data:
                raise ExchangeError("EOF")
            self._received += len(data)
            self._feed(data)
            size = self._size if self._is_head_complete else self._received
            if size > MOST_HEAD:
                raise ExchangeError(f"net/http: server response headers exceeded {MOST_HEAD} bytes; aborted")

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body in pieces. ExchangeError if it breaks off."""
        while self._has_body:
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                yield piece
            if self._is_complete:
                return
            data = await self._stream.read()
            if not data:
                if self._lasts_until_end():
                    return
                raise ExchangeError("unexpected EOF")
            self._feed(data)

    async def read_raw(self) -> bytes:
        """Return bytes that are not parsed, after a 101; nothing at the end."""
        return await self._stream.read()

    def _lasts_until_end(self) -> bool:
        names = {name for name, _ in self.headers}
        return not names & {b"content-length", b"transfer-encoding"}

    def _feed(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as end:
            self.rest = data[end.args[0] :]
        except httptools.HttpParserError as error:
            raise ExchangeError(f"malformed HTTP response: {error}") from error

    # --- called by the parser

    def on_message_begin(self) -> None:
        if not self._is_head_complete:
            self.headers = []

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._is_head_complete:
            self.headers.append((name.lower(), value))
            self._size += len(name) + len(value)

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200 or status == _SWITCHING:  # what comes before the response tells nothing
            self.status, self._is_head_complete = status, True

    def on_body(self, data: bytes) -> None:
        if not self._is_complete:
            self._pieces.append(data)

    def on_message_complete(self) -> None:
        self._is_complete = self._is_head_complete


def _dial_text(address: str, reason: str) -> str:
    """Return what Go says of a connection that was not made, as far as the agent's reason tells it."""
    if "refused" in reason or "Errno 111" in reason:
        return f"dial tcp {address}: connect: connection refused"
    return f"dial tcp {address}: {reason}"
