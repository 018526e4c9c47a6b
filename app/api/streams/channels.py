"""Channels: byte streams multiplexed on one upgraded connection, and the life of such a connection.

Exec, attach and port-forward read and write a `Channel`, whatever carries it. A `Link` is the connection, WebSocket or SPDY:
it delivers received bytes to channels and sends what is written to them. `Upgrade` is the ASGI answer that starts it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.types import Scope

from app.api.http.connection import CLOSE_SECONDS, Headers, UpgradedConnection, take_over
from app.api.streams.revocation import Revoked, watch_revocation
from app.machinery.errors import ApiError
from app.structured_logging import Logger

MOST_BUFFERED = 64 * 1024  # unread bytes of a channel; above, the whole connection waits
CHUNK = 32 * 1024  # bytes sent at a time, so that channels take turns
PING_SECONDS = 10.0  # only a write shows that the client of a silent connection has died
GOODBYE_SECONDS = 2.0  # for a client to answer the closing handshake
STOPPING_SECONDS = 0.5  # the same while the server stops
ALONE_SECONDS = 10.0  # for an application to read what is left, and return, once its client is gone

logger = Logger(__name__)


class ClientGoneError(ConnectionError):
    """The client is gone, or has closed the channel."""


class Channel:
    """A bidirectional byte stream with backpressure both ways."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], end: Callable[[], Awaitable[None]]) -> None:
        self._send = send
        self._end = end
        self._inbox = bytearray()
        self._ended = False
        self._ignored = False
        self._closed = False
        self._changed = asyncio.Condition()

    async def read(self) -> bytes:
        """Return received bytes, waiting for some; empty if the client has ended the channel, or is gone."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._inbox or self._ended)
            data = bytes(self._inbox)
            self._inbox.clear()
            self._changed.notify_all()
        return data

    @property
    def is_gone(self) -> bool:
        """Return whether the channel is closed both ways."""
        return self._ended and self._closed

    async def write(self, data: bytes) -> None:
        """Write, waiting for room. ClientGoneError if the client is gone, or has closed the channel."""
        for start in range(0, len(data), CHUNK):
            if self._closed:
                raise ClientGoneError("the channel is closed")
            try:
                await self._send(data[start : start + CHUNK])
            except ConnectionError as error:
                raise ClientGoneError(str(error)) from error

    async def close(self) -> None:
        """Close the writing side; reading goes on. ClientGoneError if the client is gone."""
        if not self._closed:
            self._closed = True
            try:
                await self._end()
            except ConnectionError as error:
                raise ClientGoneError(str(error)) from error

    async def ignore(self) -> None:
        """Close the reading side: received bytes are discarded, and block no other channel."""
        async with self._changed:
            self._ignored = True
            self._inbox.clear()
            self._changed.notify_all()

    async def deliver(self, data: bytes) -> None:
        """Deliver bytes from the client (for links). Waits while more than MOST_BUFFERED are unread."""
        async with self._changed:
            if self._ignored or self._ended:
                return
            self._inbox += data
            self._changed.notify_all()
            await self._changed.wait_for(lambda: len(self._inbox) <= MOST_BUFFERED or self._ignored)

    async def end(self, *, both_ways: bool = False) -> None:
        """End the client's side (for links): it sends no more; with `both_ways`, it reads no more either."""
        async with self._changed:
            self._ended = True
            self._closed = self._closed or both_ways
            self._changed.notify_all()


class Link(Protocol):
    """A connection that carries channels."""

    async def receive(self) -> None:
        """Deliver received bytes to the channels until the client is gone, then end them."""
        ...

    async def ping(self) -> None:
        """Write a ping, so that a dead connection fails."""
        ...

    async def shut_down(self, *, stopping: bool) -> None:
        """Send the closing handshake (`stopping`: because the server stops), and unblock `receive`."""
        ...


@dataclass(frozen=True)
class Upgrade:
    """ASGI application that answers 101 and serves the upgraded connection until either side ends it.

    `start` makes the link and its work from the connection. The work is cancelled when the server stops.
    """

    headers: Headers
    start: Callable[[UpgradedConnection], tuple[Link, Coroutine[Any, Any, None]]]
    write_timeout: float | None = None  # seconds until a client that does not read is disconnected; None: never
    drain_seconds: float = ALONE_SECONDS  # until work that goes on without its client is cancelled
    close_seconds: float = CLOSE_SECONDS  # for what is written to leave, once it is over
    refuse: Callable[[Link, ApiError], Awaitable[None]] | None = None  # tells the client that its right was revoked

    async def __call__(self, scope: Scope, *_: object) -> None:
        try:
            wire = take_over(scope, self.headers)
        except ConnectionResetError:
            return
        wire.write_timeout = self.write_timeout
        link, work = self.start(wire)
        try:
            with watch_revocation(scope) as refused:
                await self._converse(link, asyncio.create_task(work), refused, scope["app"].state.streams)
        finally:
            wire.close(self.close_seconds)

    async def _converse(
        self, link: Link, work: asyncio.Task[None], refused: Revoked, streams: set[asyncio.Task[None]]
    ) -> None:
        """Serve until the work is done, the client is gone, or its access is revoked."""
        receiving, pinging = asyncio.create_task(link.receive()), asyncio.create_task(_ping(link))
        streams.add(work)
        try:
            await asyncio.wait((receiving, work, pinging, refused), return_when=asyncio.FIRST_COMPLETED)
            if refused.done():
                await _cancel_and_wait(work)
            if (
                pinging.done()
            ):  # the client is dead, but `receiving` cannot see it while what was read waits for a reader
                receiving.cancel()
                await asyncio.wait((receiving,))
            if receiving.done():
                await asyncio.wait((work,), timeout=self.drain_seconds)
                return
            stopping = work.cancelled() and not refused.done()
            with suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(STOPPING_SECONDS if stopping else GOODBYE_SECONDS):
                    if refused.done() and self.refuse is not None:
                        await self.refuse(link, refused.result())
                    await link.shut_down(stopping=stopping)
                    await receiving
        finally:
            streams.discard(work)
            await _cancel_and_wait(work, receiving, pinging)


async def _ping(link: Link) -> None:
    while True:
        await asyncio.sleep(PING_SECONDS)
        await link.ping()


async def _cancel_and_wait(*tasks: asyncio.Task[None]) -> None:
    """Cancel what still runs, and log unexpected errors."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception) and not isinstance(outcome, ConnectionError):
            logger.error("unexpected error on an upgraded connection", traceback_of=outcome)
