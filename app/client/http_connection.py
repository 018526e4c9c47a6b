"""HTTP connection: one request at a time over one connection that stays open, for the pool of `api`.

httpx's own connection parses in Python, and takes a dozen coroutines for each piece that arrives: an agent's watches are pieces
without end, and that was most of what they cost. Here the event loop decrypts, httptools parses, and a piece is one callback.
Errors are httpx's, each made of the system's.
"""

import asyncio
import select
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, cast

import httptools
import httpx

MOST_HEAD_BYTES = 64 << 10  # of an answer
MOST_UNREAD = 256 << 10  # bytes of a body that wait to be read: beyond it, the server has to wait
CLOSE_SECONDS = 1.0  # for the end of TLS
_EYEBALLS_SECONDS = 0.25  # until a second address of a name is tried beside the first
_HUNG_UP = "Server disconnected without sending a response."
_CUT_OFF = "The server closed the connection before the end of its answer."

PATIENT = "patient"  # extension of a request that may wait before it opens a connection

SocketOptions = Sequence[tuple[int, int, int]]


class _Head(NamedTuple):
    status: int
    headers: list[tuple[bytes, bytes]]


class _Wire(asyncio.Protocol):
    """An open connection, with the answer that is being received. The event loop and the parser call it."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport = cast("asyncio.Transport", None)  # until `connection_made`
        self._lost: asyncio.Future[None] = self._loop.create_future()
        self._waiter: asyncio.Future[None] | None = None
        self._is_paused = False
        self.used_at = 0.0
        self._begin()
        self._is_over = True  # nothing is asked yet

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._headers: list[tuple[bytes, bytes]] = []
        self._head: _Head | None = None
        self._head_size = 0
        self._pieces: list[bytes] = []
        self._unread = 0
        self._error: httpx.TransportError | None = None
        self._is_over = self._keeps_open = False

    @property
    def is_idle(self) -> bool:
        """True if it may carry another request."""
        return self._is_over and self._keeps_open and not self._is_paused and not self._lost.done()

    def has_news(self) -> bool:
        """Return whether the kernel has something for it: of an idle one, its end, which the event loop has yet to tell."""
        connected = self._transport.get_extra_info("socket")
        if connected is None:  # TLS has lost it; connection_lost is called in the next step of the event loop
            return True
        poll = select.poll()
        poll.register(connected.fileno(), select.POLLIN)
        return bool(poll.poll(0))

    def ask(self, request: bytes) -> None:
        self._begin()
        self._transport.write(request)

    async def read_head(self, seconds: float | None) -> _Head:
        while self._head is None:
            await self._wait(seconds)
        return self._head

    async def read(self, seconds: float | None) -> bytes:
        """All of the body that has come since; empty at its end."""
        while not self._pieces and not self._is_over:
            await self._wait(seconds)
        piece = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces, self._unread = [], 0
        if self._is_paused:
            self._is_paused = False
            self._transport.resume_reading()
        return piece

    async def _wait(self, seconds: float | None) -> None:
        """Return when something has come. Raises what went wrong."""
        if self._error is not None:
            raise self._error
        self._waiter = self._loop.create_future()
        try:
            async with nullcontext() if seconds is None else asyncio.timeout(seconds):
                await self._waiter
        except TimeoutError as error:
            raise httpx.ReadTimeout("") from error
        finally:
            self._waiter = None

    def _wake(self) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)

    def _fail(self, error: httpx.TransportError, cause: BaseException | None = None) -> None:
        if self._is_over or self._error is not None:
            return
        error.__cause__ = cause
        self._error = error
        self._wake()

    def abort(self) -> None:
        self._transport.abort()

    async def close(self) -> None:
        # asyncio's TLS before Python 3.11.4 fails in abort() after a second close().
        if not self._transport.is_closing():
            self._transport.close()
        await asyncio.wait([self._lost], timeout=CLOSE_SECONDS)
        self._transport.abort()

    # The event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's are not its subclasses

    def data_received(self, data: bytes) -> None:
        if self._is_over:
            self._transport.abort()  # nothing was asked
            return
        if self._head is None:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._refuse("the server switches protocols")
        except httptools.HttpParserError as error:
            self._refuse(str(error))
        if self._head is None and self._head_size > MOST_HEAD_BYTES:
            self._refuse("the head of the answer is too long")
        if self._unread > MOST_UNREAD and not self._is_paused and not self._is_over:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def _refuse(self, why: str) -> None:
        self._keeps_open = False
        self._fail(httpx.RemoteProtocolError(why))
        self._transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._lost.done():
            self._lost.set_result(None)
        if exc is not None:
            self._fail(httpx.ReadError(str(exc)), exc)
        elif self._head is None:
            self._fail(httpx.RemoteProtocolError(_HUNG_UP))
        elif _has_length(self._headers):
            self._fail(httpx.RemoteProtocolError(_CUT_OFF))
        else:
            self._is_over = True
            self._wake()

    # The parser

    def on_message_begin(self) -> None:
        if self._is_over:
            raise ValueError("the server sent an answer without a request")

    def on_header(self, name: bytes, value: bytes) -> None:
        self._headers.append((name, value))

    def on_headers_complete(self) -> None:
        status = self._parser.get_status_code()
        if status >= 200:
            self._head = _Head(status, self._headers)

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)
        self._unread += len(body)

    def on_message_complete(self) -> None:
        if self._head is None:  # 100 Continue and the like
            self._headers = []
            return
        self._is_over, self._keeps_open = True, self._parser.should_keep_alive()


def _has_length(headers: Sequence[tuple[bytes, bytes]]) -> bool:
    """Return whether the head of an answer tells where its body ends."""
    return any(name.lower() in (b"content-length", b"transfer-encoding") for name, _ in headers)


class HttpConnection(httpx.AsyncBaseTransport):
    """A connection that is dialled for the first request, and anew after it was lost.

    idle_seconds: it is not used again when it has been idle for longer.
    turns: a request with the extension PATIENT opens a connection only in its turn.
    """

    def __init__(
        self, tls: ssl.SSLContext, options: SocketOptions, idle_seconds: float, turns: asyncio.Semaphore
    ) -> None:
        self._tls, self._options, self._idle_seconds, self._turns = tls, options, idle_seconds, turns
        self._wire: _Wire | None = None

    @property
    def is_open(self) -> bool:
        """True while it waits for the next request."""
        return self._wire is not None and self._wire.is_idle

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request; the answer's body is still to be read. Raises httpx.TransportError."""
        timeouts: dict[str, float | None] = request.extensions.get("timeout", {})
        content = _encode(request, await request.aread())
        wire = self._take_open()
        if wire is None:
            async with self._turns if PATIENT in request.extensions else nullcontext():
                wire = await self._open(request.url, timeouts.get("connect"))
        try:
            wire.ask(content)
            head = await wire.read_head(timeouts.get("read"))
        except BaseException:
            wire.abort()
            raise
        return httpx.Response(head.status, headers=head.headers, stream=_Body(self, wire, timeouts.get("read")))

    def _take_open(self) -> _Wire | None:
        """Take the wire, if it can carry another request."""
        is_open, wire, self._wire = self.is_open, self._wire, None
        if wire is None:
            return None
        if is_open and _clock() - wire.used_at <= self._idle_seconds and not wire.has_news():
            return wire
        wire.abort()
        return None

    async def _open(self, url: httpx.URL, seconds: float | None) -> _Wire:
        try:
            async with nullcontext() if seconds is None else asyncio.timeout(seconds):
                return await self._dial(url)
        except TimeoutError as error:
            raise httpx.ConnectTimeout("") from error
        except OSError as error:  # ssl.SSLError is one
            raise httpx.ConnectError(str(error)) from error

    async def _dial(self, url: httpx.URL) -> _Wire:
        loop, is_tls = asyncio.get_running_loop(), url.scheme == "https"
        more: dict[str, Any] = {"ssl": self._tls, "server_hostname": url.host} if is_tls else {}
        if isinstance(loop, asyncio.BaseEventLoop):  # uvloop tries one address after the other
            more["happy_eyeballs_delay"] = _EYEBALLS_SECONDS
        transport, wire = await loop.create_connection(_Wire, url.host, url.port or (443 if is_tls else 80), **more)
        connected = transport.get_extra_info("socket")
        if connected is None:
            raise ConnectionResetError("The server closed the connection at once.")
        for option in self._options:
            connected.setsockopt(*option)
        return wire

    def release(self, wire: _Wire) -> None:
        """The answer was read, or is given up."""
        if wire.is_idle:
            wire.used_at, self._wire = _clock(), wire
        else:
            wire.abort()

    async def aclose(self) -> None:
        wire, self._wire = self._wire, None
        if wire is not None:
            await wire.close()


class _Body(httpx.AsyncByteStream):
    """The body of an answer."""

    def __init__(self, connection: HttpConnection, wire: _Wire, seconds: float | None) -> None:
        self._connection, self._wire, self._seconds = connection, wire, seconds
        self._is_open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        while piece := await self._wire.read(self._seconds):
            yield piece

    async def aclose(self) -> None:
        if self._is_open:
            self._is_open = False
            self._connection.release(self._wire)


def _encode(request: httpx.Request, body: bytes) -> bytes:
    """The request as it is sent. LocalProtocolError for a header that would begin another line."""
    lines = [b"%b %b HTTP/1.1" % (request.method.encode("ascii"), request.url.raw_path)]
    lines += [b"%b: %b" % header for header in request.headers.raw]
    if any(b"\r" in line or b"\n" in line for line in lines):
        raise httpx.LocalProtocolError("a header has a line break")
    return b"%b\r\n\r\n%b" % (b"\r\n".join(lines), body)


def _clock() -> float:
    return asyncio.get_running_loop().time()
