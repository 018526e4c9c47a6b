"""Connection pool of one client, as a transport of httpx: each carries one request at a time, the last used goes first.

`Api` makes them. They replace the pool of httpx, which looks at all connections before and after every request, and hands
one that becomes free to every request that waits: with a thousand nodes in one agent that took all of a core. No request
waits here; who makes them bounds them.
"""

from collections.abc import AsyncIterator, Callable

import httpx


class Connections(httpx.AsyncBaseTransport):
    """`connect` makes a transport that holds one connection. There are as many as requests were ever under way at once."""

    def __init__(self, connect: Callable[[], httpx.AsyncBaseTransport]) -> None:
        self._connect = connect
        self._all: list[httpx.AsyncBaseTransport] = []
        self._idle: list[httpx.AsyncBaseTransport] = []

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        connection = self._idle.pop() if self._idle else self._another()
        try:
            response = await connection.handle_async_request(request)
        except BaseException:
            self._idle.append(connection)  # it has hung up, and dials again for the next request
            raise
        assert isinstance(response.stream, httpx.AsyncByteStream)  # noqa: S101 - for the type
        response.stream = _Body(response.stream, lambda: self._idle.append(connection))
        return response

    def _another(self) -> httpx.AsyncBaseTransport:
        self._all.append(self._connect())
        return self._all[-1]

    async def aclose(self) -> None:
        for each in self._all:
            await each.aclose()


class _Body(httpx.AsyncByteStream):
    """The body of an answer. `closed` is called once it has been read, or given up."""

    def __init__(self, body: httpx.AsyncByteStream, closed: Callable[[], None]) -> None:
        self._body, self._closed = body, closed
        self._is_open = True

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for piece in self._body:
            yield piece

    async def aclose(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        try:
            await self._body.aclose()
        finally:
            self._closed()
