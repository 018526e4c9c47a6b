"""API client: one request, or a list that goes on as a watch. Used by the agent and the command line.

What the server refuses raises the `ApiError` that it answered with; no answer at all raises `UnreachableError`.
"""

import asyncio
import errno
import socket
import ssl
import time
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlencode

import httpx
import msgspec

from app.client.connection_errors import describe
from app.client.http_connection import PATIENT, HttpConnection
from app.client.watch import WatchEvent, follow
from app.machinery.base import O
from app.machinery.errors import ApiError


def context(ca_file: Path | None, name: str = "", ca_data: str | None = None) -> ssl.SSLContext:
    """With `ca_file` or `ca_data` only that authority is trusted, else the machine's. Raises OSError, which names the file."""
    try:
        return _context(str(ca_file) if ca_file else None, name, ca_data)
    except OSError as error:  # OpenSSL does not say which file
        reason = (errno.EINVAL, "holds no certificate") if isinstance(error, ssl.SSLError) else error.args
        raise OSError(*reason, str(ca_file)) from error


def _context(cafile: str | None, name: str, cadata: str | None) -> ssl.SSLContext:
    if not name:
        return ssl.create_default_context(cafile=cafile, cadata=cadata)
    made = _Named(ssl.PROTOCOL_TLS_CLIENT)
    made.name = name
    if cafile or cadata:
        made.load_verify_locations(cafile, cadata=cadata)
    else:
        made.load_default_certs()
    return made


class _Named(ssl.SSLContext):
    """Asks for this name, whatever host it is that answers. Event loops make their connections by `wrap_bio`."""

    name = ""

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,  # noqa: ARG002 - this is what is replaced
        session: ssl.SSLSession | None = None,
    ) -> ssl.SSLObject:
        return super().wrap_bio(incoming, outgoing, server_side, self.name, session)


if TYPE_CHECKING:
    from app.client.websocket import Socket

T = TypeVar("T")

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
AT_ONCE = 16  # requests under way
DIALS_AT_ONCE = (
    64  # connections that streams open at one time: leases must not wait for the handshakes of a whole fleet
)
URGENT = 128  # beside those: what their callers keep to; a fleet of 1,000 nodes renews 100 leases a second
IDLE_SECONDS = (
    60.0  # that a connection is kept; longer than a lease's renewals are apart, shorter than the server keeps it
)
START_SECONDS = 10.0  # in which the API may still be starting
_OF_REQUESTS = {"timeout": {"connect": 10.0, "read": 30.0}}
# A watch is silent for as long as nothing happens; TCP's own probes tell whether the other side is still there.
_OF_STREAMS = {"timeout": {"connect": 10.0, "read": None}, PATIENT: True}


class UnreachableError(ConnectionError):
    """No answer: the request may or may not have been carried out."""


class NotUpYetError(UnreachableError):
    """No answer, within START_SECONDS of the client's start and before any answer: `jobplane up` starts the API beside it."""


class _StatusBody(msgspec.Struct):
    """What is read of a meta/v1 Status."""

    message: str = ""
    reason: str = ""
    code: int = 0


class Api:
    """`server` is the base address; with `ca_file` only that authority is trusted, and `tls_name` is whom its certificate
    has to be for. `tls` stands for both where a caller has made it. `transport` is for tests."""

    def __init__(
        self,
        server: str,
        token: str = "",
        ca_file: Path | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
        tls_name: str = "",
        monotonic: Callable[[], float] = time.monotonic,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._tls_options = None if tls else (ca_file, tls_name)
        tls = tls or context(ca_file, tls_name)
        self._connections = transport or Connections(partial(_connection, tls, asyncio.Semaphore(DIALS_AT_ONCE)))
        self._headers = httpx.Headers({"Accept-Encoding": "identity", "User-Agent": "jobplane"})
        if token:
            self.use_token(token)
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._tls = tls
        self._monotonic = monotonic
        self._start_ends_at = monotonic() + START_SECONDS
        self.server, self._base = server, server.rstrip("/")
        self.on_answer: Callable[[str, int], None] | None = None  # gets the method and the status code of each answer

    async def request(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = JSON,
        accept: str = JSON,
        urgent: bool = False,
    ) -> bytes:
        """The body of a 2xx answer. `body` is anything that msgspec can encode.

        At most AT_ONCE requests are under way; the others wait, first come, first served. An `urgent` one does not wait:
        its caller makes at most URGENT of them at a time.
        """
        content = None if body is None else msgspec.json.encode(body)
        headers = [(b"Accept", accept.encode())]
        if content is not None:
            headers.append((b"Content-Type", content_type.encode()))
        try:
            async with (
                nullcontext() if urgent else self._turns,
                self._exchange(method, self._url(path, params), headers, _OF_REQUESTS, content) as response,
            ):
                await response.aread()
        except httpx.TransportError as error:
            self._note_answer(method, 0)
            raise self._unreachable(error) from error
        self._start_ends_at = 0.0
        self._note_answer(method, response.status_code)
        if response.is_error:
            raise refusal(response.status_code, response.content)
        return response.content

    @asynccontextmanager
    async def _exchange(
        self,
        method: str,
        url: httpx.URL,
        headers: list[tuple[bytes, bytes]],
        extensions: Mapping[str, Any],
        content: bytes | None = None,
    ) -> AsyncGenerator[httpx.Response]:
        """Send a request, and close its answer in the end.

        httpx's client, with its cookies, redirects and proxies, took two thirds of the CPU time beside the connection's.
        """
        request = httpx.Request(
            method, url, headers=[*self._headers.raw, *headers], content=content, extensions=extensions
        )
        response = await self._connections.handle_async_request(request)
        try:
            yield response
        finally:
            await response.aclose()

    def _url(self, path: str, params: Mapping[str, str] | None) -> httpx.URL:
        return httpx.URL(f"{self._base}{path}?{urlencode(params)}" if params else f"{self._base}{path}")

    def _note_answer(self, method: str, code: int) -> None:
        """Tell who counts answers; a code of 0: none came."""
        if self.on_answer is not None:
            self.on_answer(method, code)

    def _unreachable(self, error: OSError | httpx.TransportError) -> UnreachableError:
        kind = NotUpYetError if self._monotonic() < self._start_ends_at else UnreachableError
        return kind(describe(self.server, error))

    async def request_json(self, method: str, path: str, body: Any = None, **how: Any) -> Any:
        """Like `request`, decoded to plain objects."""
        return msgspec.json.decode(await self.request(method, path, body, **how))

    async def read(self, path: str, type_: type[T], params: Mapping[str, str] | None = None) -> T:
        """GET one object, or whatever `type_` describes."""
        return msgspec.json.decode(await self.request("GET", path, params=params), type=type_)

    @asynccontextmanager
    async def stream(self, path: str, params: Mapping[str, str] | None = None) -> AsyncGenerator[AsyncIterator[bytes]]:
        """GET as the bytes come: watches, logs that are followed."""
        try:
            url = self._url(path, params)
            async with self._exchange("GET", url, [(b"Accept", JSON.encode())], _OF_STREAMS) as response:
                if response.is_error:
                    raise refusal(response.status_code, await response.aread())
                yield response.aiter_raw()
        except httpx.TransportError as error:
            raise self._unreachable(error) from error

    def list_and_watch(self, path: str, kind: type[O], params: Mapping[str, str]) -> AsyncGenerator[WatchEvent[O]]:
        """Everything there is, and then every change, for ever: see `app.client.watch.follow`."""
        return follow(self, path, kind, params)

    async def open_socket(self, path: str) -> "Socket":
        """A WebSocket."""
        from app.client.websocket import NotOpenedError, Socket  # not every program that calls an API needs the library

        try:
            return await Socket.open(self._base, path, self._headers.get("Authorization", ""), self._tls)
        except NotOpenedError as error:
            raise refusal(error.code, error.body) from error
        except OSError as error:
            raise self._unreachable(error) from error

    def trust(self, pem: str) -> None:
        """These authorities, too, from the next connection on."""
        self._tls.load_verify_locations(cadata=pem)

    def use_token(self, token: str) -> None:
        """Send this token from the next request on. Streams that are open go on with the one before."""
        self._headers["Authorization"] = f"Bearer {token}"

    async def use_certificate(self, path: Path) -> None:
        """Show this client certificate, PEM with its key, from the next request on. Streams that are open go on."""
        self._tls.load_cert_chain(path)
        if isinstance(self._connections, Connections):
            await self._connections.renew()

    def without_certificate(self) -> "Api":
        """Return a client of the same server, with the token of now, over connections of its own that show no certificate."""
        token = self._headers.get("Authorization", "").removeprefix("Bearer ")
        ca_file, tls_name = self._tls_options or (None, "")
        return Api(self.server, token, ca_file, tls_name=tls_name, tls=None if self._tls_options else self._tls)

    async def close(self) -> None:
        await self._connections.aclose()


class Connections(httpx.AsyncBaseTransport):
    """Connection pool: each connection carries one request at a time, and the one used last is taken first.

    The pool of httpx looks at all connections before and after every request, and hands one that becomes free to every
    request that waits: with a thousand nodes in one agent that took all of a core. Here no request waits: callers bound
    their number. `connect` makes a transport that holds one connection.
    """

    def __init__(self, connect: Callable[[], httpx.AsyncBaseTransport]) -> None:
        self._connect = connect
        self._all: list[httpx.AsyncBaseTransport] = []
        self._idle: list[httpx.AsyncBaseTransport] = []
        self._ending: set[httpx.AsyncBaseTransport] = set()  # are closed when their request is over

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        connection = self._idle.pop() if self._idle else self._add()
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            self._ending.discard(connection)
            self._idle.append(connection)  # it has hung up, and dials again for the next request
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - for the type
        response.stream = _Body(response.stream, partial(self._release, connection))
        return response

    async def renew(self) -> None:
        """Let no request use a connection that there is now: idle ones are closed, others when their request is over."""
        idle, self._idle = self._idle, []
        self._all = [each for each in self._all if each not in idle]
        self._ending.update(self._all)
        for each in idle:
            await each.aclose()

    async def _release(self, connection: httpx.AsyncBaseTransport) -> None:
        if connection not in self._ending:
            self._idle.append(connection)
            return
        self._ending.discard(connection)
        self._all.remove(connection)
        await connection.aclose()

    def _add(self) -> httpx.AsyncBaseTransport:
        self._all.append(self._connect())
        return self._all[-1]

    async def aclose(self) -> None:
        for each in self._all:
            await each.aclose()


class _Body(httpx.AsyncByteStream):
    """The body of an answer. `closed` is called once it has been read, or given up."""

    def __init__(self, body: httpx.AsyncByteStream, closed: Callable[[], Awaitable[None]]) -> None:
        self._body, self._closed = body, closed
        self._is_open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._body:
            yield piece

    async def aclose(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        try:
            await self._body.aclose()
        finally:
            await self._closed()


def refusal(code: int, body: bytes) -> ApiError:
    """The error that the server answered with, however badly it is worded."""
    try:
        status = msgspec.json.decode(body, type=_StatusBody)
    except msgspec.MsgspecError:
        status = _StatusBody(message=body[:200].decode(errors="replace"))
    return ApiError(code, status.reason or "Unknown", status.message or f"the server answered {code}")


def _connection(tls: ssl.SSLContext, turns: asyncio.Semaphore) -> httpx.AsyncBaseTransport:
    return HttpConnection(tls, _keepalive(), IDLE_SECONDS, turns)


def _keepalive() -> list[tuple[int, int, int]]:
    """A peer that vanished is noticed within half a minute. What the platform lacks is left out."""
    wanted = (("TCP_NODELAY", 1), ("TCP_KEEPIDLE", 10), ("TCP_KEEPINTVL", 5), ("TCP_KEEPCNT", 4))
    options = [(socket.IPPROTO_TCP, getattr(socket, name), value) for name, value in wanted if hasattr(socket, name)]
    return [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1), *options]
