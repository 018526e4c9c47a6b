"""Watches: events as ready bytes, and the HTTP answer that sends them, everything pending joined into one send.

`stream` opens one. `Stream.events` yields one JSON event after another, for whoever sends them in another way (WebSocket
messages); `Stream.batches` yields those that are ready together. An event for two watchers in the same form is encoded
once.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from app.api.http import content, errors
from app.api.http.content import Shape
from app.api.http.query import ListOptions
from app.api.http.response_streams import Sender, Stuck, send_stream
from app.api.resources.lists import require_kept, wait_for_revision
from app.api.resources.routes import Target
from app.api.resources.selection import Selection, scope_of
from app.api.streams.revocation import refusal
from app.machinery.errors import ApiError, gone
from app.registry import Compacted, Page, Unavailable
from app.registry.lists import first_page, pages
from app.registry.objects import Registry
from app.registry.watch import Event, Watch
from app.structured_logging import Logger

logger = Logger(__name__)
BOOKMARK_SECONDS = 60.0
DEFAULT_SECONDS = (1800, 3600)
MOST_SECONDS = 86_400
HEADERS = [(b"content-type", b"application/json"), (b"cache-control", b"no-cache, private")]


async def stream(registry: Registry, request: Request, found: Target, selection: Selection) -> "Stream":
    """Open a watch: what exists first if no revision was named or that was asked for, then every change."""
    options = selection.options
    kind = content.stored_kind(found.kind)
    scope = scope_of(kind, found.namespace, selection)
    shape = content.shape_of(request, found.kind)
    revision = options.revision or 0
    await require_kept(registry, revision)
    await wait_for_revision(registry, revision)
    first = None
    if options.send_initial_events or (not revision and options.send_initial_events is None):
        first = await first_page(registry, scope)
        revision = first.revision
    elif not revision:
        revision = await registry.revision()
    return Stream(Watch(registry, scope, revision), shape, options, first, registry.now)


@dataclass
class Stream:
    """One open watch, as an ASGI application."""

    watch: Watch
    shape: Shape
    options: ListOptions
    first: Page | None  # of what existed when the watch began
    now: Callable[[], datetime]
    _has_begun: bool = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
        running: set[asyncio.Task[None]] = scope["app"].state.streams
        try:
            with refusal(scope) as refused:
                await send_stream(self._send, receive, send, running, refused, error_event)
        except Stuck as error:
            logger.warning("closing a watch whose client does not read", resource=self.shape.kind.resource, error=error)

    async def _send(self, send: Sender) -> None:
        await send(b"")  # the headers must leave now
        async with aclosing(self.batches()) as batches:
            async for lines in batches:
                await send(b"".join(lines))

    async def events(self) -> AsyncGenerator[bytes, None]:
        """One event after another, each a JSON document and a line feed; ends when the watch does."""
        async with aclosing(self.batches()) as batches:
            async for lines in batches:
                for line in lines:
                    yield line

    async def batches(self) -> AsyncGenerator[list[bytes], None]:
        """The events that are ready at the same time, as `events` has them; never none.

        Ends after the time of `seconds_of`; with an ERROR event if the watch came too late; and without a word
        if the database is away: the client comes back with its last revision.
        """
        ends = _clock() + seconds_of(self.options)
        try:
            async with aclosing(self._initial()) as initial:
                async for lines in initial:
                    yield lines
            async with aclosing(self._following(ends)) as following:
                async for lines in following:
                    yield lines
        except ApiError as error:
            yield [error_event(error)]
            return
        except Unavailable:
            return
        if self.options.allow_watch_bookmarks:
            yield [self._bookmark()]

    async def _initial(self) -> AsyncGenerator[list[bytes], None]:
        """What existed, a page at a time, and the bookmark that says that this was all."""
        first, self.first = self.first, None
        if first is None:
            return
        try:
            async with aclosing(pages(self.watch.registry, self.watch.scope, first)) as read:
                async for page in read:
                    if page.heads:
                        yield [self._event(Event("ADDED", head)) for head in page.heads]
        except Compacted as error:
            raise gone(str(error)) from error
        if self.options.send_initial_events and self.options.allow_watch_bookmarks:
            yield [self._bookmark({"k8s.io/initial-events-end": "true"})]

    async def _following(self, ends: float) -> AsyncGenerator[list[bytes], None]:
        """What happens until the watch has to end, with a bookmark where there is nothing for long."""
        sent_at = _clock()
        while (left := ends - _clock()) > 0:
            events = await self.watch.next_events(min(left, BOOKMARK_SECONDS))
            if events:
                yield [self._shared(event) for event in events]
            elif self.options.allow_watch_bookmarks and _clock() - sent_at >= BOOKMARK_SECONDS:
                yield [self._bookmark()]
            else:
                continue
            sent_at = _clock()

    def _event(self, event: Event) -> bytes:
        """One event. The columns of a Table are in the first only."""
        columns, self._has_begun = not self._has_begun, True
        return _line(event.type, self.shape.one(event.object.wire, self.now(), columns=columns))

    def _shared(self, event: Event) -> bytes:
        """One event, encoded once for all watchers in the same form."""
        if self.shape.is_table and not self._has_begun:
            return self._event(event)
        key = (event, self.shape.sharing, self.now() if self.shape.is_table else None)
        line = _LINES.get(key)
        return line if line is not None else _LINES.put(key, self._event(event))

    def _bookmark(self, annotations: dict[str, str] | None = None) -> bytes:
        metadata: dict[str, object] = {"resourceVersion": str(self.watch.revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        return _line("BOOKMARK", self.shape.bookmark(metadata))


def seconds_of(options: ListOptions) -> float:
    """Seconds that a watch lasts: those that the client asks for, up to a day; else, as in Kubernetes, half an hour to one."""
    spread = random.uniform(*DEFAULT_SECONDS)  # noqa: S311 - spreads reconnects
    return min(options.timeout_seconds or spread, MOST_SECONDS)


def error_event(error: ApiError) -> bytes:
    """The event by which a watch ends that cannot go on."""
    return _line("ERROR", errors.body(error))


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _line(type_: str, obj: bytes) -> bytes:
    return b'{"type":"%b","object":%b}\n' % (type_.encode(), obj)


class _Lines:
    """Cache of the newest events as bytes: all watchers get a change at about the same time."""

    MOST, LARGEST = 256, 64 << 10

    def __init__(self) -> None:
        self._lines: OrderedDict[object, bytes] = OrderedDict()

    def get(self, key: object) -> bytes | None:
        return self._lines.get(key)

    def put(self, key: object, line: bytes) -> bytes:
        if len(line) <= self.LARGEST:
            self._lines[key] = line
            if len(self._lines) > self.MOST:
                self._lines.popitem(last=False)
        return line


_LINES = _Lines()
