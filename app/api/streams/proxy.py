"""Proxy: pods/NAME/proxy and services/NAME/proxy, by any HTTP method, to a pod's port. WebSockets and other upgrades, too.

`kubernetes` dispatches to `SPECIAL`. The agent of the pod's node makes the connection, as for port-forward: so it works behind
NAT, and the API need not reach the pods' network. Bodies are passed on while they come, both ways. Credentials are not.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from starlette.requests import Request
from starlette.responses import RedirectResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from app.api.http import errors, websocket
from app.api.http.connection import UpgradedConnection, requested_protocol, take_over
from app.api.http.response_streams import Sender, SlowClientError, send_stream
from app.api.resources.routes import RequestInfo
from app.api.streams.agent_calls import Calls, DialError, Line, RefusedError
from app.api.streams.http_exchange import Exchange, ExchangeError, PlainStream, PodStream, TlsStream
from app.api.streams.pod_streams import make_request
from app.api.streams.proxy_target import Target, find_target, unreachable
from app.api.streams.revocation import watch_revocation
from app.machinery.errors import ApiError, bad_request
from app.registry.verbs.objects import Registry
from app.structured_logging import Logger

METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS")
STALLED_SECONDS = 300.0  # in which a pod must have taken a part of a body
_SEGMENTS = 7  # of api/v1/namespaces/NS/pods/NAME/proxy
_SWITCHING = 101
# They are about one connection (RFC 9110), or tell who the client is.
_HOP_BY_HOP = frozenset(
    {"connection", "keep-alive", "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade"}
)
_CREDENTIALS = ("authorization", "impersonate-", "x-remote-", "proxy-authorization", "sec-websocket-protocol")
_REPLACED = frozenset({"expect", "x-forwarded-for", "x-forwarded-uri"})

logger = Logger(__name__)


async def answer(registry: Registry, request: Request, found: RequestInfo) -> ASGIApp:
    """Proxy a request. 400, 404 or 503 if there is nothing to proxy it to, 301 if the path lacks its slash."""
    if "dryRun" in request.query_params:
        raise bad_request("dryRun is not supported")
    target = await find_target(registry, found)
    prefix, path = _split_path(request)
    protocol = requested_protocol(request)
    if not path and request.method in ("GET", "HEAD") and not protocol:
        query = f"?{request.url.query}" if request.url.query else ""
        return RedirectResponse(f"{prefix}/{query}", 301)
    calls: Calls = request.scope["app"].state.calls
    whole = make_request(target.pod, "forward", port=target.port)
    try:
        line = await calls.dial(target.pod.spec.node_name, whole)
    except (DialError, RefusedError) as error:
        raise unreachable(str(error)) from error
    return _Proxy(request, target, line, prefix, path or "/", protocol)


SPECIAL: dict[tuple[str, str, str], Callable[[Registry, Request, RequestInfo], Awaitable[ASGIApp]]] = {
    (resource, "proxy", method): answer for resource in ("pods", "services") for method in METHODS
}


def _split_path(request: Request) -> tuple[str, str]:
    """Split the path, as it was sent, behind `proxy`: prefix, and what the pod is asked for; empty without a slash."""
    raw: bytes = request.scope.get("raw_path") or request.scope["path"].encode()
    parts = raw.decode("latin-1").partition("?")[0].split("/")
    seen = 0
    for index, part in enumerate(parts):
        seen += bool(part)
        if seen == _SEGMENTS:
            rest = parts[index + 1 :]
            return "/".join(parts[: index + 1]), "/" + "/".join(rest) if rest else ""
    return "/".join(parts), ""


@dataclass
class _Proxy:
    """One proxied request, as an ASGI application. Hangs up the call at its end."""

    request: Request
    target: Target
    line: Line
    prefix: str
    path: str
    protocol: str  # that the client wants to upgrade to; empty for none
    _has_begun: bool = field(default=False, init=False)
    _is_whole: bool = field(default=False, init=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            exchange = Exchange(await self._open(), has_body=self.request.method != "HEAD")
            await exchange.write(self._head())
            if self.protocol:
                await self._upgrade(exchange, scope, receive, send)
            else:
                await self._pass_on(exchange, scope, receive, send)
        except ExchangeError as error:
            if self._has_begun:  # it stays without its end: no client may take it for whole
                logger.info("a proxied answer broke off", address=self.target.address, error=error)
                return
            await errors.response(unreachable(str(error)))(scope, receive, send)
        except SlowClientError as error:
            logger.warning("closing a proxied request whose client does not read", error=error)
        finally:
            self.line.hang_up()

    async def _open(self) -> PodStream:
        plain = PlainStream(self.line, self.target.address)
        if not self.target.is_tls:
            return plain
        secure = TlsStream(plain)
        await secure.shake_hands()
        return secure

    # --- the request

    def _head(self) -> bytes:
        query: bytes = self.request.scope["query_string"]
        path = f"{self.path}?{query.decode('latin-1')}" if query else self.path
        headers = [*self._passed_headers(), *self._made_headers()]
        lines = [f"{self.request.method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")

    def _passed_headers(self) -> Iterable[tuple[str, str]]:
        dropped = _HOP_BY_HOP | _REPLACED | _named_in_connection(self.request.headers.getlist("connection"))
        for name, value in self.request.headers.items():
            if name not in dropped and not name.startswith(_CREDENTIALS):
                yield name, value

    def _made_headers(self) -> Iterable[tuple[str, str]]:
        client = self.request.client
        before = self.request.headers.getlist("x-forwarded-for")
        if client is not None:
            yield "X-Forwarded-For", ", ".join([*before, client.host])
        yield "X-Forwarded-Uri", self.prefix + self.path
        if self._is_chunked:
            yield "Transfer-Encoding", "chunked"
        if not self.protocol:
            yield "Connection", "close"
            return
        yield "Connection", "Upgrade"
        yield "Upgrade", self.request.headers["upgrade"]
        if offered := websocket.protocols(self.request):
            yield "Sec-WebSocket-Protocol", ", ".join(offered)

    @property
    def _is_chunked(self) -> bool:
        return "transfer-encoding" in self.request.headers

    async def _send_body(self, exchange: Exchange, message: Message) -> None:
        """Send a part of the body. A pod that does not want it all may have answered: what it does not take is lost."""
        data: bytes = message.get("body", b"")
        is_last = not message.get("more_body", False)
        if self._is_chunked:
            data = (b"%x\r\n%b\r\n" % (len(data), data) if data else b"") + (b"0\r\n\r\n" if is_last else b"")
        try:
            async with asyncio.timeout(STALLED_SECONDS):
                await exchange.write(data)
        except TimeoutError:
            self.line.hang_up()  # while it waited for the pod, it could not notice that the client has gone

    # --- the response

    async def _pass_on(self, exchange: Exchange, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer as the pod does. What is cut short gets an error, or stays without its end if it has begun."""

        async def take() -> Message:
            message = await receive()
            if message["type"] == "http.request":
                await self._send_body(exchange, message)
            return message

        async def work(sender: Sender) -> None:
            await exchange.read_head()
            self._has_begun = True
            headers = self._answered_headers(exchange)
            await send({"type": "http.response.start", "status": exchange.status, "headers": headers})
            async for piece in exchange.body():
                await sender(piece)
                await sender.drain()
            self._is_whole = True

        async def pass_body(message: Message) -> None:
            if self._has_begun and (message["more_body"] or self._is_whole):
                await send(message)

        with watch_revocation(scope) as refused:
            await send_stream(work, take, pass_body, scope["app"].state.streams, refused)
            if not self._has_begun:
                error = refused.result() if refused.done() else errors.cut_short(self.request.method)
                await errors.response(error)(scope, receive, send)

    def _answered_headers(self, exchange: Exchange) -> list[tuple[bytes, bytes]]:
        """The headers of the answer, without those about the connection, and with a `Location` that leads through here."""
        values = [value.decode("latin-1") for name, value in exchange.headers if name == b"connection"]
        dropped = {each.encode("latin-1") for each in (_HOP_BY_HOP | _named_in_connection(values) | {"date"})}
        return [
            (name, self._relocate(value) if name == b"location" else value)
            for name, value in exchange.headers
            if name not in dropped
        ]

    def _relocate(self, value: bytes) -> bytes:
        """A redirect to another path of the pod leads through the proxy; one to elsewhere, or a relative one, stays."""
        text, host = value.decode("latin-1"), self.request.headers.get("host", "")
        try:
            url = urlsplit(text)
        except ValueError:
            return value
        if (url.netloc and url.netloc not in (self.target.address, host)) or not url.path.startswith("/"):
            return value
        path = url.path if url.path.startswith(self.prefix) else self.prefix + url.path
        scheme, netloc = (url.scheme, url.netloc) if url.netloc == host else ("", "")
        return urlunsplit((scheme, netloc, path, url.query, url.fragment)).encode("latin-1")

    # --- upgrades

    async def _upgrade(self, exchange: Exchange, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the connection over if the pod does; pass its refusal on."""
        await exchange.read_head()
        if _SWITCHING < exchange.status < 400:
            why = f"invalid upgrade response: status code {exchange.status}"
            await errors.response(ApiError(500, "", why))(scope, receive, send)
            return
        if exchange.status != _SWITCHING:
            await self._pass_on(exchange, scope, receive, send)
            return
        kept = [each for each in exchange.headers if each[0] not in (b"connection", b"content-length")]
        with suppress(ConnectionError):
            wire = take_over(scope, [(name.decode("latin-1"), value.decode("latin-1")) for name, value in kept])
            try:
                with watch_revocation(scope) as refused:
                    await _pump(wire, exchange, refused, scope["app"].state.streams)
            finally:
                wire.close()


async def _pump(
    wire: UpgradedConnection,
    exchange: Exchange,
    refused: "asyncio.Future[ApiError]",
    streams: "set[asyncio.Task[None]]",
) -> None:
    """Copy bytes both ways until either side ends, the client has lost its right, or the server stops."""
    tasks = {asyncio.create_task(_copy_in(wire, exchange)), asyncio.create_task(_copy_out(wire, exchange))}
    ends: list[asyncio.Future[Any]] = [*tasks, refused]
    streams |= tasks
    try:
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        streams -= tasks
        await asyncio.gather(*tasks, return_exceptions=True)


async def _copy_in(wire: UpgradedConnection, exchange: Exchange) -> None:
    while data := await wire.read():
        await exchange.write(data)


async def _copy_out(wire: UpgradedConnection, exchange: Exchange) -> None:
    data = exchange.rest
    while data or (data := await exchange.read_raw()):
        await wire.write(data)
        data = b""


def _named_in_connection(values: Iterable[str]) -> set[str]:
    return {token.strip().lower() for value in values for token in value.split(",")}
