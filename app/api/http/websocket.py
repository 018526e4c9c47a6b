"""WebSockets (RFC 6455) on an `UpgradedConnection`: requests for one, subprotocols, and whole messages both ways.

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

from app.api.http.connection import Headers, UpgradedConnection, requested_protocol
from app.api.http.headers import header_of
from app.client.websocket_framing import Framing
from app.machinery.errors import ApiError, bad_request

NORMAL, GOING_AWAY = 1000, 1001
MOST = 32 << 20  # bytes of one message, as in Kubernetes
_BEARER = "base64url.bearer.authorization.k8s.io."
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"


def is_requested(request: Request) -> bool:
    """Return whether the request asks for a WebSocket."""
    return requested_protocol(request) == "websocket"


def authorization(request: Request) -> str | None:
    """Return the Authorization header, or the token among the subprotocols of a WebSocket as one. 401 if it is malformed."""
    header = header_of(request.scope, b"authorization")
    if header or not is_requested(request):
        return header
    tokens = [each for each in _subprotocols(request) if each.startswith(_BEARER)]
    if not tokens:
        return None
    # One other is needed: the token may not be the one that is agreed on, for the answer would repeat it.
    if len(tokens) > 1 or not protocols(request):
        raise ApiError(401, "Unauthorized", "Unauthorized")
    return f"Bearer {_decode_token(tokens[0].removeprefix(_BEARER))}"


def _decode_token(text: str) -> str:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True).decode()
    except (binascii.Error, UnicodeError):
        raise ApiError(401, "Unauthorized", "Unauthorized") from None


def protocols(request: Request) -> list[str]:
    """Return the subprotocols that the client offers, without its token."""
    return [each for each in _subprotocols(request) if not each.startswith(_BEARER)]


def _subprotocols(request: Request) -> list[str]:
    offered = (each.strip() for value in request.headers.getlist("sec-websocket-protocol") for each in value.split(","))
    return [each for each in offered if each]


def handshake_headers(request: Request, protocol: str) -> Headers:
    """Return the headers of a 101 with this subprotocol, empty for none. 400 for a malformed handshake."""
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
    """Server side of an open WebSocket. One task receives; any may send."""

    def __init__(self, wire: UpgradedConnection, most: int = MOST) -> None:
        self._wire = wire
        self._framing = Framing(Side.SERVER, most)
        self.answered = asyncio.Event()
        """The client has sent a message or the answer to a ping, or is gone. Set only while `messages` are taken."""

    async def messages(self) -> AsyncIterator[bytes]:
        """Yield whole messages until either side closes. Answers pings; a protocol error closes the connection."""
        while not self._framing.is_over and (data := await self._wire.read()):
            whole = self._framing.received(data)
            if self._framing.is_answered:
                self.answered.set()
            with suppress(ConnectionError):  # a failed answer must not lose messages that came before
                await self._flush()
            for message in whole:
                yield message
        self.answered.set()

    async def send(self, data: bytes, *, text: bool = False) -> None:
        """Send one message, waiting for room. ConnectionResetError if the client is gone."""
        self._framing.send(data, text=text)
        await self._flush()

    async def ping(self) -> None:
        self._framing.ping()
        await self._flush()

    async def close(self, code: int = NORMAL) -> None:
        """Send a close frame. The client's answer ends `messages`."""
        self._framing.close(code)
        await self._flush()

    async def _flush(self) -> None:
        if data := self._framing.pending():
            await self._wire.write(data)
