"""HTTP/1.1 connection of a client: one request at a time, dialled when it is needed. Behind `Api`, in place of httpcore.

httpcore reads and writes by way of two libraries in Python, h11 and anyio, which took most of the half a millisecond that a
request cost an agent. This parses in C (httptools), and is called by the event loop itself.
"""

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, cast

import httptools
import httpx

MOST_BUFFERED = 256 * 1024  # bytes of an answer that nobody has read yet; no more are taken from the connection
HAPPY_EYEBALLS = 0.25  # seconds until the next address of a server is tried beside the one before
HUNG_UP = "Server disconnected without sending a response."
SocketOption = tuple[int, int, int]


class HttpConnection(httpx.AsyncBaseTransport):
    """Raises what httpx's own transport raises. `idle_seconds`: longest pause after which the connection is used again."""

    def __init__(self, tls: ssl.SSLContext, idle_seconds: float, options: Sequence[SocketOption] = ()) -> None:
        self._tls, self._idle_seconds, self._options = tls, idle_seconds, options
        self._wire: _Wire | None = None

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        timeouts: dict[str, float | None] = request.extensions.get("timeout", {})
        body = await request.aread()
        wire = self._wire
        if wire is None or not wire.is_usable(self._idle_seconds):
            await self.aclose()
            wire = self._wire = await self._dial(request.url, timeouts.get("connect"))
        try:
            await wire.send(_head(request) + body, timeouts.get("write"))
            await wire.head(timeouts.get("read"))
        except BaseException:
            wire.abort()
            raise
        return httpx.Response(
            wire.status,
            headers=wire.headers,
            stream=_Body(wire, timeouts.get("read")),
            extensions={"http_version": b"HTTP/1.1"},
        )

    async def _dial(self, url: httpx.URL, seconds: float | None) -> "_Wire":
        is_tls = url.scheme == "https"
        loop = asyncio.get_running_loop()
        more: dict[str, Any] = {"ssl": self._tls, "server_hostname": url.host} if is_tls else {}
        if isinstance(loop, asyncio.BaseEventLoop):  # uvloop tries one address after the other
            more["happy_eyeballs_delay"] = HAPPY_EYEBALLS
        try:
            async with asyncio.timeout(seconds):
                _, wire = await loop.create_connection(
                    _Wire, url.raw_host.decode(), url.port or (443 if is_tls else 80), **more
                )
        except TimeoutError as error:
            raise httpx.ConnectTimeout(str(error)) from error
        except OSError as error:
            raise httpx.ConnectError(str(error)) from error
        wire.set_options(self._options)
        return wire

    async def aclose(self) -> None:
        if self._wire is not None:
            self._wire.close()
            self._wire = None


class _Wire(asyncio.Protocol):
    """The bytes of a connection. Pieces of an answer wait in it, up to MOST_BUFFERED, until they are read."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._news: asyncio.Future[None] | None = None
        self._error: Exception | None = None
        self._is_lost = self._is_paused = self._is_full = False
        self._idle_since = self._loop.time()
        self._begin()

    def _begin(self) -> None:
        """Forget the last answer."""
        self._parser = httptools.HttpResponseParser(self)
        self.status, self.headers = 0, list[tuple[bytes, bytes]]()
        self._pieces, self._size = list[bytes](), 0
        self._has_head = self._has_ended = self._is_kept_alive = False
        self._is_free = True

    def set_options(self, options: Sequence[SocketOption]) -> None:
        found: socket.socket | None = self._transport.get_extra_info("socket") if self._transport else None
        for option in options if found is not None else ():
            cast("socket.socket", found).setsockopt(*option)

    def is_usable(self, idle_seconds: float) -> bool:
        """Return whether the next request can be sent on it."""
        return self._is_free and not self._is_lost and self._loop.time() - self._idle_since <= idle_seconds

    async def send(self, data: bytes, seconds: float | None) -> None:
        """Return when the kernel has it all. Raises httpx.WriteTimeout, WriteError."""
        self._is_free = False
        if self._transport is not None:
            self._transport.write(data)
        try:
            await self._until(lambda: not self._is_full, seconds)
        except TimeoutError as error:
            raise httpx.WriteTimeout(str(error)) from error

    async def head(self, seconds: float | None) -> None:
        """Return when `status` and `headers` are there. Raises httpx.ReadTimeout, ReadError, RemoteProtocolError."""
        await self._read_until(lambda: self._has_head, seconds)
        if not self._has_head:
            raise self._failure()

    async def piece(self, seconds: float | None) -> bytes:
        """The next bytes of the body; nothing at its end. Raises as `head` does."""
        await self._read_until(lambda: bool(self._pieces) or self._has_ended, seconds)
        if not self._pieces:
            if not self._has_ended:
                raise self._failure()
            return b""
        data = b"".join(self._pieces)
        self._pieces, self._size = [], 0
        self._resume()
        return data

    def release(self) -> None:
        """The answer is not read any further. If there is more of it, the connection is of no use any longer."""
        if not self._has_ended or not self._is_kept_alive:
            self.abort()
            return
        self._idle_since = self._loop.time()
        self._begin()
        self._resume()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()
        self._is_lost = True

    def abort(self) -> None:
        if self._transport is not None:
            self._transport.abort()
        self._is_lost = True

    async def _read_until(self, has_come: Callable[[], bool], seconds: float | None) -> None:
        try:
            await self._until(has_come, seconds)
        except TimeoutError as error:
            raise httpx.ReadTimeout(str(error)) from error

    async def _until(self, is_true: Callable[[], bool], seconds: float | None) -> None:
        """Return when it is true, or can never be. Raises TimeoutError."""
        if is_true() or self._is_lost:
            return
        async with asyncio.timeout(seconds):
            while not is_true() and not self._is_lost:
                self._news = self._loop.create_future()
                await self._news

    def _failure(self) -> Exception:
        if isinstance(self._error, httptools.HttpParserError):
            failure: httpx.TransportError = httpx.RemoteProtocolError(str(self._error))
        elif self._error is not None:
            failure = httpx.ReadError(str(self._error))
        elif self._has_head:
            failure = httpx.RemoteProtocolError("peer closed connection without sending complete message body")
        else:
            failure = httpx.RemoteProtocolError(HUNG_UP)
        failure.__cause__ = self._error
        return failure

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

    def _resume(self) -> None:
        if self._is_paused and self._transport is not None:
            self._is_paused = False
            self._transport.resume_reading()

    # Called by the event loop

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._transport.set_write_buffer_limits(0)

    def data_received(self, data: bytes) -> None:
        if self._is_free:  # nothing was asked for
            self.abort()
            return
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._error = error
            self.abort()
        if self._size > MOST_BUFFERED and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._error = self._error or error
        self._is_lost = True
        names = {name.lower() for name, _ in self.headers}
        if self._has_head and error is None and not names & {b"content-length", b"transfer-encoding"}:
            self._has_ended = True  # its end is the end of the answer
        self._wake()

    def pause_writing(self) -> None:
        self._is_full = True

    def resume_writing(self) -> None:
        self._is_full = False
        self._wake()

    # Called by the parser

    def on_message_begin(self) -> None:
        if self._has_ended:
            raise ValueError("there is more than one answer")

    def on_header(self, name: bytes, value: bytes) -> None:
        self.headers.append((name, value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._has_head = self.status >= 200
        self._is_kept_alive = self._parser.should_keep_alive()

    def on_body(self, data: bytes) -> None:
        self._pieces.append(data)
        self._size += len(data)

    def on_message_complete(self) -> None:
        self._has_ended = self._has_head
        if not self._has_head:  # 100 and the like go before the answer
            self.headers.clear()


class _Body(httpx.AsyncByteStream):
    """The body of an answer, as it comes."""

    def __init__(self, wire: _Wire, seconds: float | None) -> None:
        self._wire, self._seconds = wire, seconds
        self._is_open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            while piece := await self._wire.piece(self._seconds):
                yield piece
        except BaseException:
            await self.aclose()
            raise

    async def aclose(self) -> None:
        if self._is_open:
            self._is_open = False
            self._wire.release()


def _head(request: httpx.Request) -> bytes:
    target = b"%b %b HTTP/1.1\r\n" % (request.method.encode("ascii"), request.url.raw_path)
    return target + b"".join(b"%b: %b\r\n" % header for header in request.headers.raw) + b"\r\n"
