"""WebSockets (RFC 6455) on a `Wire`: requests for one, subprotocols, and whole messages both ways.

The framing is the client's, too. Browsers can set no header, so they carry their token as a subprotocol.
"""

import asyncio
import base64
import binascii
from collections.abc import AsyncIterator
from contextlib import suppress
from hashlib import sha1

from starlette.requests import Request
from websockets.protocol import Side

from app.api.http.connection import Headers, Wire, wanted_protocol
from app.client.websocket_framing import Framing
from app.machinery.errors import ApiError, bad_request

NORMAL, GOING_AWAY = 1000, 1001
MOST = 32 << 20  # bytes of one message, as in Kubernetes
_BEARER = "base64url.bearer.authorization.k8s.io."
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def is_asked(request: Request) -> bool:
    """Whether `request` wants to become a WebSocket."""
    return wanted_protocol(request) == "websocket"


def authorization(request: Request) -> str | None:
    """The Authorization header, or what stands for it in the subprotocols of a WebSocket. 401 if that is no token."""
    header = request.headers.get("authorization")
    if header or not is_asked(request):
        return header
    tokens = [each for each in _subprotocols(request) if each.startswith(_BEARER)]
    if not tokens:
        return None
    # One other is needed: the token may not be the one that is agreed on, for the answer would repeat it.
    if len(tokens) > 1 or not protocols(request):
        raise ApiError(401, "Unauthorized", "Unauthorized")
    return f"Bearer {_decoded(tokens[0].removeprefix(_BEARER))}"


def _decoded(text: str) -> str:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        raise ApiError(401, "Unauthorized", "Unauthorized") from None


def protocols(request: Request) -> list[str]:
    """The subprotocols that the client offers, without its token."""
    return [each for each in _subprotocols(request) if not each.startswith(_BEARER)]


def _subprotocols(request: Request) -> list[str]:
    offered = (each.strip() for value in request.headers.getlist("sec-websocket-protocol") for each in value.split(","))
    return [each for each in offered if each]


def accepting(request: Request, protocol: str) -> Headers:
    """The headers of a 101 that agrees on `protocol`, if any. 400 if the request is not how a WebSocket is asked for."""
    if request.method != "GET" or request.headers.get("sec-websocket-version") != "13":
        raise bad_request("a WebSocket is opened with GET and Sec-WebSocket-Version: 13")
    key = request.headers.get("sec-websocket-key", "")
    try:
        if len(base64.b64decode(key, validate=True)) != 16:
            raise bad_request("Sec-WebSocket-Key must be 16 bytes in base64")
    except binascii.Error:
        raise bad_request("Sec-WebSocket-Key must be 16 bytes in base64") from None
    accept = base64.b64encode(sha1(key.encode() + _GUID).digest()).decode()  # noqa: S324 - as the RFC has it
    chosen = [("Sec-WebSocket-Protocol", protocol)] if protocol else []
    return [("Upgrade", "websocket"), ("Sec-WebSocket-Accept", accept), *chosen]


class WebSocket:
    """The server's end of one that is open. One task receives; any may send."""

    def __init__(self, wire: Wire, most: int = MOST) -> None:
        self._wire = wire
        self._framing = Framing(Side.SERVER, most)
        self.answered = asyncio.Event()
        """The client has sent a message or the answer to a ping, or is gone. Set only while `messages` are taken."""

    async def messages(self) -> AsyncIterator[bytes]:
        """Every whole message, until either end has closed. Pings are answered; what breaks the protocol closes it."""
        while not self._framing.is_over and (data := await self._wire.read()):
            whole = self._framing.received(data)
            if self._framing.is_answered:
                self.answered.set()
            with suppress(ConnectionError):  # an answer that nobody waits for must not lose what came before
                await self._flush()
            for message in whole:
                yield message
        self.answered.set()

    async def send(self, data: bytes, *, text: bool = False) -> None:
        """Send one message, when there is room for it. ConnectionResetError if the other end is gone."""
        self._framing.send(data, text=text)
        await self._flush()

    async def ping(self) -> None:
        self._framing.ping()
        await self._flush()

    async def close(self, code: int = NORMAL) -> None:
        """Say that no more will come. The client answers that, which ends `messages`."""
        self._framing.close(code)
        await self._flush()

    async def _flush(self) -> None:
        if data := self._framing.pending():
            await self._wire.write(data)
