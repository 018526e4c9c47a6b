"""Write coalescing: a transport that sends an answer in one system call, after the other requests of the same turn of the loop.

`app.api.http.connection` puts it below uvicorn, which writes head and body separately: two system calls, two wake-ups of the
client. Answers to writes that one commit has made ready leave together: a client that is woken for each one costs the server
more than the answers do. The answer to a read leaves with its first body: to hold it takes a tenth more CPU for each GET.
"""

import asyncio
from typing import Any

_HEAD = b"HTTP/1."
_MOST_HELD = 64 << 10


class CoalescingTransport:
    """Wraps a transport for uvicorn. It holds an answer until the next turn of the loop, or until that has 64 KiB.

    is_read: the request at hand is a GET.
    """

    is_read = False

    def __init__(self, transport: asyncio.Transport) -> None:
        self._transport = transport
        self._held = b""
        self._call_soon = asyncio.get_running_loop().call_soon
        self.is_closing = transport.is_closing  # what each answer asks

    def write(self, data: bytes) -> None:
        held = self._held
        if held:
            self._held = held = held + data
            if self.is_read or len(held) > _MOST_HELD:
                self._flush()
        elif data.startswith(_HEAD):
            self._held = data
            self._call_soon(self._flush)
        elif data:
            self._transport.write(data)

    def _flush(self) -> None:
        held, self._held = self._held, b""
        if held:
            self._transport.write(held)

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def write_eof(self) -> None:
        self._flush()
        self._transport.write_eof()

    def abort(self) -> None:
        self._held = b""
        self._transport.abort()

    def open(self) -> asyncio.Transport:
        """The transport itself, for a caller that writes to it directly."""
        self._flush()
        return self._transport

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)
