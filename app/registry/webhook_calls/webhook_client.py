"""Webhook client: one call of a webhook, by URL or by Service, and its answer. Connections are kept for the next call.

Called by `app.registry.admission.webhook_review` and `app.registry.conversion`, which share the connections. Each place that a
configuration names has a pool of its own, with a bound on connections and on calls that wait for one. A call fails with the
reason that Kubernetes gives, in its words.
"""

import asyncio
import socket
import ssl
from collections import OrderedDict, deque
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from itertools import count
from typing import NamedTuple
from urllib.parse import urlsplit

from app.kinds.admission.webhook_client_config import DEFAULT_PORT, ClientConfig
from app.plans.admission.webhooks.admission_review import CallError
from app.registry.webhook_calls.https_connection import Address, HttpResponse, HttpsConnection, ProtocolError
from app.registry.webhook_calls.service_resolver import ServiceResolver

CALL_FAILED = "failed to call webhook: "  # what is said of admission webhooks, and of no others
MOST_CONNECTIONS = 32  # to one webhook
MOST_WAITING = 2_000  # calls of one webhook
MOST_POOLS = 256
IDLE_SECONDS = 30.0
_THREAD = ThreadPoolExecutor(2, "webhook-certificates")  # it reads every authority of this machine
_ERRORS = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    403: "forbidden",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}


class _Place(NamedTuple):
    """Where a configuration leads. `service`: namespace, name and port, instead of a host to connect to."""

    host: str
    port: int
    ca_bundle: bytes
    service: tuple[str, str, int] | None

    @property
    def netloc(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@lru_cache(MOST_POOLS)
def place_of(config: ClientConfig) -> tuple[_Place, str]:
    """Return where a valid configuration leads, and the path there."""
    if config.service is not None:
        service = config.service
        port = DEFAULT_PORT if service.port is None else service.port
        host = f"{service.name}.{service.namespace}.svc"
        found = (service.namespace, service.name, port)
        return _Place(host, port, config.ca_bundle, found), service.path or "/"
    url = urlsplit(config.url or "")
    return _Place(url.hostname or "", url.port or DEFAULT_PORT, config.ca_bundle, None), url.path or "/"


class WebhookClient:
    """All calls of one process."""

    def __init__(self, resolver: ServiceResolver) -> None:
        self._resolver = resolver
        self._pools: OrderedDict[_Place, _Pool] = OrderedDict()

    async def post(self, config: ClientConfig, body: bytes, seconds: int) -> bytes:
        """Return the body of a webhook's answer. Raises CallError."""
        place, path = place_of(config)
        pool, path = self._pool(place), f"{path}?timeout={seconds}s"
        try:
            async with asyncio.timeout(seconds):
                response = await pool.post(path, body)
        except (OSError, EOFError, ProtocolError) as error:  # of which TimeoutError is one
            why = _describe(place, error)
            raise CallError(f'{CALL_FAILED}Post "https://{place.netloc}{path}": {why}') from error
        if not 200 <= response.status < 300:
            raise CallError(f"{CALL_FAILED}{_describe_status(response)}")
        return response.body

    def _pool(self, place: _Place) -> "_Pool":
        pool = self._pools.get(place)
        if pool is None:
            pool = self._pools[place] = _Pool(place, self._resolver)
            if len(self._pools) > MOST_POOLS:
                self._pools.popitem(last=False)[1].close()
        else:
            self._pools.move_to_end(place)
        return pool

    def close(self) -> None:
        """Close all connections that wait for the next call."""
        for pool in self._pools.values():
            pool.close()
        self._pools.clear()


class _Pool:
    """Connections to one place."""

    def __init__(self, place: _Place, resolver: ServiceResolver) -> None:
        self._place = place
        self._resolver = resolver
        self._context: asyncio.Future[ssl.SSLContext] | None = None
        self._free = asyncio.Semaphore(MOST_CONNECTIONS)
        self._idle: deque[tuple[float, HttpsConnection]] = deque()  # with the time by which each is closed
        self._reaper: asyncio.TimerHandle | None = None
        self._waiting = 0
        self._turn = count()
        self._is_closed = False

    async def post(self, path: str, body: bytes) -> HttpResponse:
        if self._waiting >= MOST_WAITING:
            raise CallError(f"{CALL_FAILED}more than {MOST_WAITING} calls wait for it")
        self._waiting += 1
        try:
            async with self._free:
                return await self._post(self._head(path), body)
        finally:
            self._waiting -= 1

    def _head(self, path: str) -> bytes:
        head = f"POST {path} HTTP/1.1\r\nHost: {self._place.netloc}\r\nUser-Agent: jobplane\r\n"
        return f"{head}Content-Type: application/json\r\nAccept: application/json\r\n".encode()

    async def _post(self, head: bytes, body: bytes) -> HttpResponse:
        """A kept connection may just have been closed by the other end: then the request is sent once more on a new one."""
        addresses = await self._addresses()
        connection = self._take_idle(addresses)
        if connection is not None:
            try:
                return await self._exchange(connection, head, body)
            except (ConnectionError, asyncio.IncompleteReadError, ssl.SSLError):
                pass
        return await self._exchange(await self._open(addresses), head, body)

    async def _exchange(self, connection: HttpsConnection, head: bytes, body: bytes) -> HttpResponse:
        try:
            response = await connection.post(head, body)
        except BaseException:
            connection.close()
            raise
        self._give_back(connection)
        return response

    # --- connections

    async def _addresses(self) -> tuple[Address, ...]:
        place = self._place
        if place.service is None:
            return (Address(place.host, place.port, place.host),)
        found = await self._resolver.resolve(*place.service)
        return tuple(Address(host, port, place.host) for host, port in found)

    async def _open(self, addresses: tuple[Address, ...]) -> HttpsConnection:
        """Connect to one endpoint after the other, each call beginning with another one."""
        context = await self._certificates()
        start = next(self._turn)
        for index in range(len(addresses)):
            try:
                return await HttpsConnection.open(addresses[(start + index) % len(addresses)], context)
            except (ConnectionError, ssl.SSLError):
                if index == len(addresses) - 1:
                    raise
        raise AssertionError("unreachable: there is an address")

    async def _certificates(self) -> ssl.SSLContext:
        if self._context is None:
            loop = asyncio.get_running_loop()
            self._context = loop.run_in_executor(_THREAD, _make_context, self._place.ca_bundle)
        return await asyncio.shield(self._context)

    def _take_idle(self, addresses: tuple[Address, ...]) -> HttpsConnection | None:
        while self._idle:
            _, connection = self._idle.pop()
            if connection.is_open() and connection.address in addresses:
                return connection
            connection.close()
        return None

    def _give_back(self, connection: HttpsConnection) -> None:
        if self._is_closed or not connection.is_open():
            connection.close()
            return
        loop = asyncio.get_running_loop()
        self._idle.append((loop.time() + IDLE_SECONDS, connection))
        if self._reaper is None:
            self._reaper = loop.call_later(IDLE_SECONDS, self._close_idle)

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        while self._idle and self._idle[0][0] <= loop.time():
            self._idle.popleft()[1].close()
        left = self._idle[0][0] - loop.time() if self._idle else None
        self._reaper = None if left is None else loop.call_later(left, self._close_idle)

    def close(self) -> None:
        self._is_closed = True
        if self._reaper is not None:
            self._reaper.cancel()
        while self._idle:
            self._idle.popleft()[1].close()


def _make_context(ca_bundle: bytes) -> ssl.SSLContext:
    if not ca_bundle:
        return ssl.create_default_context()
    try:
        return ssl.create_default_context(cadata=ca_bundle.decode("ascii"))
    except (ssl.SSLError, ValueError) as error:
        raise CallError(
            "could not get REST client: unable to load root certificates: unable to parse bytes as PEM block"
        ) from error


# --- words


def _describe(place: _Place, error: BaseException) -> str:
    match error:
        case TimeoutError():
            return "context deadline exceeded"
        case ssl.SSLCertVerificationError():
            return f"tls: failed to verify certificate: x509: {error.verify_message or error}"
        case ssl.SSLError():
            return f"tls: {error.reason or error}"
        case socket.gaierror():
            return f"dial tcp: lookup {place.host}: no such host"
        case ConnectionRefusedError():
            return f"dial tcp {place.netloc}: connect: connection refused"
        case ConnectionResetError():
            return "read: connection reset by peer"
        case EOFError():
            return "EOF"
        case _:
            return str(error) or type(error).__name__


def _describe_status(response: HttpResponse) -> str:
    if response.status in _ERRORS:
        return _ERRORS[response.status]
    text = response.body[:200].decode(errors="replace").strip() or "unknown"
    return f'an error on the server ("{text}") has prevented the request from succeeding'
