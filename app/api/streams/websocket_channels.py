"""WebSocket channels (channel.k8s.io): each message starts with the number of its channel.

`exec_attach`, `port_forward` and `agent_calls` use a `ChannelSocket`. Binary subprotocols start a message with a byte, then raw
data; `base64.` ones with a digit, then base64. Version 5 adds a message that ends one channel: 255 and the channel's number.
"""

import asyncio
import base64
import binascii
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass
from functools import partial

from starlette.requests import Request

from app.api.http import websocket
from app.api.http.websocket import WebSocket
from app.api.streams.channels import Channel
from app.machinery.errors import bad_request

_END = 255


@dataclass(frozen=True)
class Codec:
    """Properties of a subprotocol."""

    base64: bool = False
    ends: bool = False
    status: bool = False  # whether a command ends with a Status; older versions send its message only


CODECS = {
    "": Codec(),
    "channel.k8s.io": Codec(),
    "base64.channel.k8s.io": Codec(base64=True),
    "v4.channel.k8s.io": Codec(status=True),
    "v4.base64.channel.k8s.io": Codec(base64=True, status=True),
    "v5.channel.k8s.io": Codec(ends=True, status=True),
}


def negotiate_protocol(request: Request, known: Collection[str]) -> str:
    """Return the client's first subprotocol that is in `known`; 400 if there is none."""
    offered = websocket.protocols(request) or [""]
    for each in offered:
        if each in known:
            return each
    raise bad_request(f"requested protocol(s) are not supported: [{' '.join(offered)}]; supports [{' '.join(known)}]")


class ChannelSocket:
    """A fixed number of channels in one WebSocket, as a `Link`. Messages on channels not in `reads` are discarded."""

    def __init__(self, socket: WebSocket, codec: Codec, count: int, reads: Collection[int]) -> None:
        self._socket = socket
        self._codec = codec
        self._reads = reads
        self.channels = [Channel(partial(self.send, number), _ignore_end) for number in range(count)]

    async def receive(self) -> None:
        try:
            async for message in self._socket.messages():
                await self._handle_message(message)
        finally:
            for channel in self.channels:
                await channel.end(both_ways=True)

    async def ping(self) -> None:
        await self._socket.ping()

    async def wait_for_pong(self, seconds: float) -> None:
        """Ping, and wait at most `seconds` for any message: some clients answer no pings."""
        with suppress(ConnectionError, TimeoutError):
            async with asyncio.timeout(seconds):
                await self.ping()
                await self._socket.answered.wait()

    async def shut_down(self, *, stopping: bool) -> None:
        for channel in self.channels:
            await channel.ignore()
        await self._socket.close(websocket.GOING_AWAY if stopping else websocket.NORMAL)

    async def send(self, number: int, data: bytes) -> None:
        """Send one message on one channel, even an empty one."""
        if self._codec.base64:
            await self._socket.send(b"%d%b" % (number, base64.b64encode(data)), text=True)
        else:
            await self._socket.send(bytes((number,)) + data)

    async def end(self, number: int) -> None:
        """End one channel towards the client; version 5 only."""
        await self._socket.send(bytes((_END, number)))

    async def _handle_message(self, message: bytes) -> None:
        """Deliver a message to its channel. Malformed ones are ignored, as in Kubernetes."""
        if not message:
            return
        number, data = message[0], message[1:]
        if number == _END and self._codec.ends:
            if len(data) == 1 and data[0] in self._reads:
                await self.channels[data[0]].end()
            return
        if self._codec.base64:
            number -= ord("0")
        if number in self._reads and (plain := self._decode_payload(data)):
            await self.channels[number].deliver(plain)

    def _decode_payload(self, data: bytes) -> bytes:
        if not self._codec.base64:
            return data
        try:
            return base64.b64decode(data, validate=True)
        except binascii.Error:
            return b""


async def _ignore_end() -> None:
    """Do nothing: versions before 5 cannot end one channel towards the client."""
