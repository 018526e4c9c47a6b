"""Watch over WebSocket, as browsers' dashboards open it: each event is one text message, the same JSON as over HTTP.

`kubernetes` wraps the `WatchStream` of a request that asks for a WebSocket.
"""

from collections.abc import Coroutine
from contextlib import aclosing
from functools import partial
from typing import Any, cast

from starlette.requests import Request

from app.api.http import errors, websocket
from app.api.http.connection import UpgradedConnection
from app.api.http.response_shape import encode_json_event
from app.api.http.response_streams import SEND_SECONDS
from app.api.http.websocket import WebSocket
from app.api.streams.channels import Link, Upgrade
from app.api.streams.watch import WatchStream
from app.machinery.errors import ApiError

MOST = 64 * 1024  # bytes of a message from a client, which is ignored


def upgrade_to_websocket(request: Request, stream: WatchStream) -> Upgrade:
    """Return the answer that sends `stream` over the WebSocket that the request asks for."""
    offered = websocket.protocols(request)
    # The subprotocol changes nothing, but browsers fail unless one of theirs is accepted.
    headers = websocket.handshake_headers(request, offered[0] if offered else "")
    return Upgrade(headers, partial(_start, stream), write_timeout=SEND_SECONDS, drain_seconds=0, refuse=_refuse)


def _start(stream: WatchStream, wire: UpgradedConnection) -> tuple[Link, Coroutine[Any, Any, None]]:
    socket = WebSocket(wire, MOST)
    return _WatchLink(socket), _send(stream, socket)


async def _refuse(link: Link, error: ApiError) -> None:
    await cast("_WatchLink", link).send(encode_json_event("ERROR", errors.body(error)))


async def _send(stream: WatchStream, socket: WebSocket) -> None:
    async with aclosing(stream.events()) as events:
        async for event in events:
            await socket.send(event, text=True)


class _WatchLink:
    """WebSocket of a watch as a `Link`: received messages are ignored, and only show that the client is connected."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket

    async def send(self, event: bytes) -> None:
        await self._socket.send(event, text=True)

    async def receive(self) -> None:
        async for _ in self._socket.messages():
            pass

    async def ping(self) -> None:
        await self._socket.ping()

    async def shut_down(self, *, stopping: bool) -> None:
        await self._socket.close(websocket.GOING_AWAY if stopping else websocket.NORMAL)
