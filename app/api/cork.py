"""A transport that sends what one turn of the loop writes as one piece: the head of an answer and its body, above all.

uvicorn writes these one after the other, which costs as many system calls, and as many wake-ups of the client.
"""

import asyncio
from typing import Any

AT_ONCE = 1 << 16  # bytes of one piece that is large enough to be sent as it is


class Corked:
    """All that uvicorn does with a transport. Nothing is held longer than the turn of the loop in which it was written."""

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held: list[bytes] = []
        self._call_soon = asyncio.get_running_loop().call_soon

    def write(self, data: bytes) -> None:
        if not data:
            return
        if not self._held:
            self._call_soon(self._flush)
        self._held.append(data)
        if len(data) >= AT_ONCE:
            self._flush()

    def _flush(self) -> None:
        held, self._held = self._held, []
        if held:
            self._transport.write(b"".join(held) if len(held) > 1 else held[0])

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def open(self) -> asyncio.Transport:
        """The transport itself, for who goes on with it alone."""
        self._flush()
        return self._transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
