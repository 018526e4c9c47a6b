"""Port-forward as clients open it: any number of connections to ports of a pod, over SPDY, SPDY in a WebSocket, or channels.

A route authorizes, finds its pod, and returns `forwarding(request, application)`. The application is called with a
`Forward` for every connection, and returns when it is over; what it raises goes to the client as text.
"""

import asyncio
import struct
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from starlette.requests import Request

from app.api.http import errors, websocket
from app.api.http.connection import Wire
from app.api.http.websocket import WebSocket
from app.api.streams import spdy_connection, websocket_channels
from app.api.streams.channels import Channel, Link, Upgrade
from app.api.streams.spdy_connection import Pipe, Refused, SpdyConnection, Stream, Tunnel
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
    """One connection to a port. `data` is what flows; text on `error` tells the client why it ends."""

    port: int
    data: Channel
    error: Channel


Application = Callable[[Forward], Awaitable[None]]
Started = tuple[Link, Coroutine[Any, Any, None]]


def forwarding(request: Request, application: Application) -> Upgrade:
    """The answer that runs `application` for every connection; 400 or 403 if the request is for nothing of the kind."""
    if websocket.is_asked(request):
        protocol = websocket_channels.chosen(request, (_TUNNEL, *_CHANNELS))
        headers = websocket.accepting(request, protocol)
        if protocol == _TUNNEL:
            return Upgrade(headers, lambda wire: _over_spdy(application, Tunnel(WebSocket(wire))))
        return Upgrade(headers, partial(_over_channels, application, CODECS[protocol], _ports(request)))
    if spdy_connection.is_asked(request):
        protocol = spdy_connection.chosen(request, [_PROTOCOL])
        return Upgrade(spdy_connection.accepting(protocol), partial(_over_spdy, application))
    raise bad_request("Upgrade request required")


def _ports(request: Request) -> list[int]:
    """The ports in the query: channels have no other place for them."""
    values = request.query_params.getlist("ports")
    if not values:
        raise bad_request('query parameter "ports" is required')
    if "" in values:
        raise bad_request('query parameter "ports" cannot be empty')
    ports = [_port(each) for value in values for each in value.split(",")]
    if None in ports or len(ports) > 100:
        raise bad_request(f'unable to parse "{values[0]}" as a port')
    return [port for port in ports if port]


def _port(text: str) -> int | None:
    port = int(text) if text.isascii() and text.isdigit() and len(text) < 6 else 0
    return port if 0 < port < 1 << 16 else None


def _over_channels(application: Application, codec: Codec, ports: list[int], wire: Wire) -> Started:
    """Two channels for each port, in the order of the query; each starts with the port's number, for the client to check."""
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


def _over_spdy(application: Application, pipe: Pipe) -> Started:
    pairs = _Pairs(application)
    pairs.link = SpdyConnection(pipe, pairs.opened)
    return pairs.link, pairs.work()


@dataclass
class _Pairs:
    """Two streams for each connection, data and error, which name the same request. Lasts as long as the client."""

    application: Application
    link: SpdyConnection = field(init=False)
    waiting: dict[str, tuple[Stream, asyncio.TimerHandle]] = field(default_factory=dict)
    complete: asyncio.Queue[tuple[Forward, Stream, Stream]] = field(default_factory=asyncio.Queue)

    def opened(self, stream: Stream) -> None:
        port = _port(stream.headers.get("port", ""))
        if port is None or stream.kind not in {"data", "error"}:
            raise Refused
        request = _request_of(stream)
        if request not in self.waiting:
            timer = asyncio.get_running_loop().call_later(PAIR_SECONDS, self._expire, request)
            self.waiting[request] = stream, timer
            return
        other, timer = self.waiting[request]
        if other.kind == stream.kind:
            raise Refused
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

    async def _forward(self, forward: Forward, *streams: Stream) -> None:
        try:
            await _run(self.application, forward)
        finally:
            for stream in streams:
                await stream.ignore()
                self.link.forget(stream)


def _request_of(stream: Stream) -> str:
    """What both streams of a connection have in common: old clients only open them one after the other, error first."""
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
