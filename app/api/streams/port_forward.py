"""Port-forward, the client's side: any number of connections to ports of a pod, over SPDY, SPDY in a WebSocket, or channels.

`pod_streams` authorizes, finds the pod, and returns `upgrade_to_port_forward(request, application)`. The application is called
with a `Forward` for every connection and returns at its end; its errors reach the client as text.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from starlette.requests import Request

from app.api.http import errors, websocket
from app.api.http.connection import UpgradedConnection
from app.api.http.websocket import WebSocket
from app.api.streams import spdy_connection, websocket_channels
from app.api.streams.channels import Channel, Link, Upgrade
from app.api.streams.spdy_connection import (
    SpdyConnection,
    SpdyStream,
    SpdyTransport,
    StreamRejectedError,
    WebSocketTransport,
)
from app.api.streams.websocket_channels import CODECS, ChannelSocket, Codec
from app.machinery.errors import bad_request
from app.structured_logging import Logger

PAIR_SECONDS = 30.0  # between the two streams of one connection
_PROTOCOL = "portforward.k8s.io"
_TUNNEL = f"SPDY/3.1+{_PROTOCOL}"
_CHANNELS = ("", "v4.channel.k8s.io", "v4.base64.channel.k8s.io")

logger = Logger(__name__)


@dataclass(frozen=True)
class Forward:
    """One connection to a port. `data` carries its bytes; text on `error` is the reason of a failure."""

    port: int
    data: Channel
    error: Channel


Application = Callable[[Forward], Awaitable[None]]
Started = tuple[Link, Coroutine[Any, Any, None]]


def upgrade_to_port_forward(request: Request, application: Application) -> Upgrade:
    """Return the answer that runs `application` for every connection; 400 or 403 if no protocol fits."""
    if websocket.is_requested(request):
        protocol = websocket_channels.negotiate_protocol(request, (_TUNNEL, *_CHANNELS))
        headers = websocket.handshake_headers(request, protocol)
        if protocol == _TUNNEL:
            return Upgrade(headers, lambda wire: _start_spdy(application, WebSocketTransport(WebSocket(wire))))
        return Upgrade(headers, partial(_start_channels, application, CODECS[protocol], _parse_ports(request)))
    if spdy_connection.is_requested(request):
        protocol = spdy_connection.negotiate_protocol(request, [_PROTOCOL])
        return Upgrade(spdy_connection.handshake_headers(protocol), partial(_start_spdy, application))
    raise bad_request("Upgrade request required")


def _parse_ports(request: Request) -> list[int]:
    """Parse the ports in the query, which WebSocket channels require; 400 for invalid ones."""
    values = request.query_params.getlist("ports")
    if not values:
        raise bad_request('query parameter "ports" is required')
    if "" in values:
        raise bad_request('query parameter "ports" cannot be empty')
    ports = [_parse_port(each) for value in values for each in value.split(",")]
    if None in ports or len(ports) > 100:
        raise bad_request(f'unable to parse "{values[0]}" as a port')
    return [port for port in ports if port]


def _parse_port(text: str) -> int | None:
    port = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    return port if 0 < port < 1 << 16 else None


def _start_channels(application: Application, codec: Codec, ports: list[int], wire: UpgradedConnection) -> Started:
    """Open two channels for each port, in the query's order; each starts with the port's number, which the client checks."""
    link = ChannelSocket(WebSocket(wire), codec, 2 * len(ports), range(0, 2 * len(ports), 2))

    async def work() -> None:
        forwards = [Forward(port, *link.channels[2 * at : 2 * at + 2]) for at, port in enumerate(ports)]
        for forward in forwards:
            await forward.data.write(struct.pack("<H", forward.port))
            await forward.error.write(struct.pack("<H", forward.port))
        async with asyncio.TaskGroup() as group:
            for forward in forwards:
                group.create_task(_run(application, forward))

    return link, work()


def _start_spdy(application: Application, pipe: SpdyTransport) -> Started:
    pairs = _StreamPairs(application)
    pairs.link = SpdyConnection(pipe, pairs.on_stream)
    return pairs.link, pairs.work()


@dataclass
class _StreamPairs:
    """Pairs the data and error streams of each connection, by request id, for the life of the link."""

    application: Application
    link: SpdyConnection = field(init=False)
    waiting: dict[str, tuple[SpdyStream, asyncio.TimerHandle]] = field(default_factory=dict)
    complete: asyncio.Queue[tuple[Forward, SpdyStream, SpdyStream]] = field(default_factory=asyncio.Queue)

    def on_stream(self, stream: SpdyStream) -> None:
        port = _parse_port(stream.headers.get("port", ""))
        if port is None or stream.kind not in {"data", "error"}:
            raise StreamRejectedError
        request = _request_id(stream)
        if request not in self.waiting:
            timer = asyncio.get_running_loop().call_later(PAIR_SECONDS, self._expire, request)
            self.waiting[request] = stream, timer
            return
        other, timer = self.waiting[request]
        if other.kind == stream.kind:
            raise StreamRejectedError
        del self.waiting[request]
        timer.cancel()
        data, error = (stream, other) if stream.kind == "data" else (other, stream)
        self.complete.put_nowait((Forward(port, data, error), data, error))

    def _expire(self, request: str) -> None:
        self.link.forget(self.waiting.pop(request)[0])

    async def work(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                while True:
                    group.create_task(self._forward(*await self.complete.get()))
        finally:
            for _, timer in self.waiting.values():
                timer.cancel()

    async def _forward(self, forward: Forward, *streams: SpdyStream) -> None:
        try:
            await _run(self.application, forward)
        finally:
            for stream in streams:
                await stream.ignore()
                self.link.forget(stream)


def _request_id(stream: SpdyStream) -> str:
    """Return the request id of a stream. Old clients send none, but open error and data in this order."""
    number = stream.number - 2 if stream.kind == "data" else stream.number
    return stream.headers.get("requestid") or f"#{number}"


async def _run(application: Application, forward: Forward) -> None:
    try:
        try:
            await application(forward)
        except ConnectionError as failure:
            await forward.error.write(str(failure).encode())
        except Exception as failure:
            await forward.error.write(errors.as_api_error(failure).message.encode())
        await forward.error.close()
        await forward.data.close()
    except ConnectionError:
        logger.debug("client closed a forwarded connection before its end", address=f":{forward.port}")
