"""Streams of bytes inside one upgraded connection, however it carries them, and how such a connection lives and ends.

`Channel` is all that applications (exec, attach, port-forward) see of WebSocket and SPDY. A `Link` is one of those two:
it fills channels with what comes and sends what is written to them. `Upgrade` is the answer that starts it all.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Protocol

from starlette.types import Scope

from app.api.http.connection import CLOSE_SECONDS, Headers, Wire, take_over
from app.api.streams.revocation import Refused, refusal
from app.machinery.errors import ApiError
from app.structured_logging import Logger

HELD = 64 * 1024  # bytes that a channel takes before its reader does; then the whole connection waits
PIECE = 32 * 1024  # bytes sent at a time, so that channels take turns
PING_SECONDS = 10.0  # writing to it is the only way to learn that the other end of a silent connection has died
GOODBYE_SECONDS = 2.0  # for a client to answer the end of the conversation
STOPPING_SECONDS = 0.5  # the same, when the whole server waits for it
ALONE_SECONDS = 10.0  # for an application to read what is left, and return, once its client is gone

logger = Logger(__name__)


class Gone(ConnectionError):
    """The other end reads no more."""


class Channel:
    """Bytes both ways. What an application does not read holds up the client, and the other way round."""

    def __init__(self, send: Callable[[bytes], Awaitable[None]], end: Callable[[], Awaitable[None]]) -> None:
        self._send = send
        self._end = end
        self._inbox = bytearray()
        self._ended = False
        self._ignored = False
        self._closed = False
        self._changed = asyncio.Condition()

    async def read(self) -> bytes:
        """All that has come, once something has; nothing if the client has ended the channel, or is gone."""
        async with self._changed:
            await self._changed.wait_for(lambda: self._inbox or self._ended)
            data = bytes(self._inbox)
            self._inbox.clear()
            self._changed.notify_all()
        return data

    @property
    def is_gone(self) -> bool:
        """Whether the channel is closed both ways."""
        return self._ended and self._closed

    async def write(self, data: bytes) -> None:
        """Returns when there is room for more. Gone if the client is, or has no use for this channel any more."""
        for start in range(0, len(data), PIECE):
            if self._closed:
                raise Gone("the channel is closed")
            try:
                await self._send(data[start : start + PIECE])
            except ConnectionError as error:
                raise Gone(str(error)) from error

    async def close(self) -> None:
        """Nothing more will be written. What still comes can be read. Gone if the client is."""
        if not self._closed:
            self._closed = True
            try:
                await self._end()
            except ConnectionError as error:
                raise Gone(str(error)) from error

    async def ignore(self) -> None:
        """Nothing more will be read: what comes is discarded, and blocks no other channel."""
        async with self._changed:
            self._ignored = True
            self._inbox.clear()
            self._changed.notify_all()

    async def deliver(self, data: bytes) -> None:
        """For links: bytes from the client. Waits while the reader is behind."""
        async with self._changed:
            if self._ignored or self._ended:
                return
            self._inbox += data
            self._changed.notify_all()
            await self._changed.wait_for(lambda: len(self._inbox) <= HELD or self._ignored)

    async def end(self, *, both_ways: bool = False) -> None:
        """For links: the client will send no more; with `both_ways`, it will not read any more either."""
        async with self._changed:
            self._ended = True
            self._closed = self._closed or both_ways
            self._changed.notify_all()


class Link(Protocol):
    """A connection that carries channels."""

    async def receive(self) -> None:
        """Fill the channels until the client is gone, then end them."""
        ...

    async def ping(self) -> None:
        """Write something that a live client answers."""
        ...

    async def goodbye(self, *, stopping: bool) -> None:
        """Say that the conversation is over (or the server `stopping`), and hold up `receive` no longer."""
        ...


@dataclass(frozen=True)
class Upgrade:
    """An ASGI application that answers 101, and then talks until either side has had enough.

    `start` makes the link and the work on it of the bare wire. The work is cancelled when the server stops.
    """

    headers: Headers
    start: Callable[[Wire], tuple[Link, Coroutine[Any, Any, None]]]
    patience: float | None = None  # seconds after which a client that does not read is cut off; None: never
    alone: float = ALONE_SECONDS  # until work that goes on without its client is cancelled
    closing: float = CLOSE_SECONDS  # for what is written to leave, once it is over
    refuse: Callable[[Link, ApiError], Awaitable[None]] | None = None  # tells the client that its right was revoked

    async def __call__(self, scope: Scope, *_: object) -> None:
        try:
            wire = take_over(scope, self.headers)
        except ConnectionResetError:
            return
        wire.patience = self.patience
        link, work = self.start(wire)
        try:
            with refusal(scope) as refused:
                await self._converse(link, asyncio.create_task(work), refused, scope["app"].state.streams)
        finally:
            wire.close(self.closing)

    async def _converse(
        self, link: Link, work: asyncio.Task[None], refused: Refused, streams: set[asyncio.Task[None]]
    ) -> None:
        """Until the work is done, its client is gone, or may go on no longer."""
        receiving, pinging = asyncio.create_task(link.receive()), asyncio.create_task(_ping(link))
        streams.add(work)
        try:
            await asyncio.wait((receiving, work, pinging, refused), return_when=asyncio.FIRST_COMPLETED)
            if refused.done():
                await _ended(work)
            if (
                pinging.done()
            ):  # the client is dead, but `receiving` cannot see it while what was read waits for a reader
                receiving.cancel()
                await asyncio.wait((receiving,))
            if receiving.done():
                await asyncio.wait((work,), timeout=self.alone)
                return
            stopping = work.cancelled() and not refused.done()
            with suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(STOPPING_SECONDS if stopping else GOODBYE_SECONDS):
                    if refused.done() and self.refuse is not None:
                        await self.refuse(link, refused.result())
                    await link.goodbye(stopping=stopping)
                    await receiving
        finally:
            streams.discard(work)
            await _ended(work, receiving, pinging)


async def _ping(link: Link) -> None:
    while True:
        await asyncio.sleep(PING_SECONDS)
        await link.ping()


async def _ended(*tasks: asyncio.Task[None]) -> None:
    """Cancel what still runs, and log unexpected errors."""
    for task in tasks:
        task.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if isinstance(outcome, Exception) and not isinstance(outcome, ConnectionError):
            logger.error("unexpected error on an upgraded connection", traceback_of=outcome)
