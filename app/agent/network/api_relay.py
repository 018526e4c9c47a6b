"""API relay: connections to kubernetes.default.svc, port 443, go on to the API as the agent reaches it, byte for byte.

So pods reach the API by its name wherever the agent does, behind whatever NAT. TLS is between the pod and the API.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from urllib.parse import urlsplit

CONNECTIONS = 256
PORT = 443
PIECE = 1 << 16
PATIENCE = 10.0  # seconds to connect


class ApiRelay:
    """`server` is the API's URL. is_local: whether an address is of a pod of this node."""

    def __init__(self, server: str, is_local: Callable[[str], bool]) -> None:
        url = urlsplit(server)
        self._target = (url.hostname or "", url.port or (443 if url.scheme == "https" else 80))
        self._is_local = is_local
        self._open = 0

    async def serve(self, address: str, port: int = PORT) -> None:
        """Until cancelled. Raises OSError if the address cannot be had."""
        server = await asyncio.start_server(self._relay, address, port)
        async with server:
            await server.serve_forever()

    async def _relay(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._open >= CONNECTIONS or not self._is_local(writer.get_extra_info("peername")[0]):
            writer.close()
            return
        self._open += 1
        try:
            async with asyncio.timeout(PATIENCE):
                up_reader, up_writer = await asyncio.open_connection(*self._target)
            try:
                async with asyncio.TaskGroup() as group:
                    group.create_task(_copy(reader, up_writer))
                    group.create_task(_copy(up_reader, writer))
            finally:
                up_writer.close()
        except* (OSError, TimeoutError):
            pass  # the client sees that its connection ends
        finally:
            self._open -= 1
            writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(PIECE):
        writer.write(data)
        await writer.drain()
    with suppress(OSError):
        writer.write_eof()
