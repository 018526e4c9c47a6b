"""Watches over WebSocket, as dashboards in browsers open them: each event is one text message, the same JSON as over HTTP."""

from collections.abc import Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any, cast

from starlette.requests import Request

from app.api.http import websocket
from app.api.http.connection import Wire
from app.api.http.response_streams import SEND_SECONDS
from app.api.http.websocket import WebSocket
from app.api.streams.channels import Link, Upgrade
from app.api.streams.watch import Stream, error_event
from app.machinery.errors import ApiError

MOST = 64 * 1024  # bytes of a message from a client: it has nothing to say


def over(request: Request, stream: Stream) -> Upgrade:
    """The answer that sends `stream` over the WebSocket that `request` asks for."""
    offered = websocket.protocols(request)
    # No subprotocol changes what is sent. Browsers fail unless one of those that they offer is agreed on.
    headers = websocket.accepting(request, offered[0] if offered else "")
    return Upgrade(headers, partial(_start, stream), patience=SEND_SECONDS, alone=0, refuse=_refuse)


def _start(stream: Stream, wire: Wire) -> tuple[Link, Coroutine[Any, Any, None]]:
    socket = WebSocket(wire, MOST)
    return _Listening(socket), _send(stream, socket)


async def _refuse(link: Link, error: ApiError) -> None:
    await cast("_Listening", link).send(error_event(error))


async def _send(stream: Stream, socket: WebSocket) -> None:
    async with aclosing(stream.events()) as events:
        async for event in events:
            await socket.send(event, text=True)


class _Listening:
    """A `Link` on which nothing that comes matters, but that the client is there."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def send(self, event: bytes) -> None:
        await self._socket.send(event, text=True)

    async def receive(self) -> None:
        async for _ in self._socket.messages():
            pass

    async def ping(self) -> None:
        await self._socket.ping()

    async def goodbye(self, *, stopping: bool) -> None:
        await self._socket.close(websocket.GOING_AWAY if stopping else websocket.NORMAL)
