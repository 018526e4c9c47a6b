"""WebSocket framing of either end, without the connection: bytes to messages. Used by `websocket` and `api/http/websocket`.

The framing itself is the `websockets` library's.
"""

import logging

from websockets.exceptions import InvalidState
from websockets.frames import Frame, Opcode
from websockets.protocol import Protocol, Side, State

_OURS = {Opcode.TEXT, Opcode.BINARY, Opcode.CONT}
_ANSWERS = _OURS | {Opcode.PONG}

_log = logging.getLogger(__name__)
_log.setLevel(logging.WARNING)  # the library tells of every connection


class Framing:
    """What is to be sent gathers in it, answers to pings and errors included, until `pending` takes it."""

    def __init__(self, side: Side, most: int) -> None:
        self._protocol = Protocol(side, max_size=most, logger=_log)
        self._message = bytearray()
        self.is_answered = False
        """The other end has sent a message, or the answer to a ping."""

    @property
    def is_open(self) -> bool:
        return self._protocol.state is State.OPEN

    @property
    def is_over(self) -> bool:
        """Nothing can be sent any more, and what is received means nothing."""
        return self._protocol.eof_sent

    def received(self, data: bytes) -> list[bytes]:
        """The messages that are whole with this."""
        self._protocol.receive_data(data)
        whole = []
        for frame in self._protocol.events_received():
            if not isinstance(frame, Frame):
                continue
            self.is_answered |= frame.opcode in _ANSWERS
            if frame.opcode in _OURS:
                self._message += frame.data
                if frame.fin:
                    whole.append(bytes(self._message))
                    self._message.clear()
        return whole

    def send(self, data: bytes, *, text: bool = False) -> None:
        """ConnectionResetError if the WebSocket is closed."""
        try:
            (self._protocol.send_text if text else self._protocol.send_binary)(data)
        except InvalidState:
            raise ConnectionResetError("the WebSocket is closed") from None

    def ping(self) -> None:
        if self.is_open:
            self._protocol.send_ping(b"")

    def close(self, code: int) -> None:
        if self.is_open:
            self._protocol.send_close(code)

    def pending(self) -> bytes:
        return b"".join(self._protocol.data_to_send())
