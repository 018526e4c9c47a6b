"""Watch over HTTP: encoded events, and the response that sends them, all pending ones in one send.

`kubernetes` calls `open_watch`. `WatchStream.events` yields JSON events one by one, for `watch_websocket`;
`WatchStream.batches` yields those that are ready together. An event for several watchers in the same form is encoded once.
"""

import asyncio
import random
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime
from functools import partial

from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from app.api.http import content, websocket
from app.api.http.query import ListOptions
from app.api.http.response_shape import ResponseShape
from app.api.http.response_streams import Sender, SlowClientError, send_stream
from app.api.priority_and_fairness import release
from app.api.resources.lists import cut_batches, require_kept, wait_for_revision
from app.api.resources.routes import RequestInfo
from app.api.resources.selection import Selection, scope_of
from app.api.streams.pod_levels import AddLevels, make_level_adder
from app.api.streams.revocation import watch_revocation
from app.machinery.errors import ApiError, gone
from app.registry import Compacted, Page, StoredObject, Unavailable
from app.registry.verbs.lists import first_page, pages
from app.registry.verbs.objects import Registry
from app.registry.verbs.watch import Event, Watch
from app.structured_logging import Logger

logger = Logger(__name__)
BOOKMARK_SECONDS = 60.0
CHECK_SECONDS = 1.0  # after which a quiet watch looks whether its custom kind is still there
DEFAULT_SECONDS = (1800, 3600)
MOST_SECONDS = 86_400


async def open_watch(registry: Registry, request: Request, found: RequestInfo, selection: Selection) -> "WatchStream":
    """Open a watch: existing objects first, without resourceVersion or with sendInitialEvents, then every change."""
    options = selection.options
    kind = content.stored_kind(found.kind)
    scope = scope_of(kind, found.namespace, selection)
    shape = content.shape_of(request, found.kind)
    if websocket.is_requested(request):
        shape = shape.as_json()
    revision = options.revision or 0
    await require_kept(registry, revision)
    await wait_for_revision(registry, revision)
    first = None
    if options.begins_with_objects:
        first = await first_page(registry, scope)
        revision = first.revision
    elif not revision:
        revision = await registry.revision()
    stream = WatchStream(Watch(registry, scope, revision), shape, options, first, registry.now)
    stream.on_initialized = partial(release, request.scope)
    stream.add_levels = make_level_adder(registry, request, shape, selection)
    if found.kind.definition:
        stream.is_served = partial((await registry.kinds.table()).serves, found.kind)
    return stream


@dataclass
class WatchStream:
    """One open watch, as an ASGI application."""

    watch: Watch
    shape: ResponseShape
    options: ListOptions
    first: Page | None  # first page of the existing objects; None for changes only
    now: Callable[[], datetime]
    on_initialized: Callable[[], None] = lambda: None
    """Called once the existing objects are sent: until then a watch is a list, and takes seats as one."""
    is_served: Callable[[], bool] | None = None
    """Returns whether the kind is unchanged: a custom kind may change or be deleted. None for a built-in kind."""
    add_levels: AddLevels | None = None
    """Adds the Pod Security levels of namespaces to an agent's watch of its pods."""
    _has_begun: bool = False

    def __post_init__(self) -> None:
        # What is the same for all events of a stream is found out here: a delivery takes 20 us, and there are many watchers.
        self._is_table, self._cache_key = self.shape.is_table, self.shape.cache_key

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        content_type = self.shape.watch_content_type.encode()
        headers = [(b"content-type", content_type), (b"cache-control", b"no-cache, private")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        running: set[asyncio.Task[None]] = scope["app"].state.streams
        try:
            with watch_revocation(scope) as refused:
                await send_stream(self._send, receive, send, running, refused, self.shape.encode_error)
        except SlowClientError as error:
            logger.warning("closing a watch whose client does not read", resource=self.shape.kind.resource, error=error)

    async def _send(self, send: Sender) -> None:
        await send(b"")  # sends the headers at once: clients wait for them
        async with aclosing(self.batches()) as batches:
            async for lines in batches:
                data = b"".join(lines)
                lines.clear()  # a quiet watch would hold them until the next change
                await send(data)
                del data

    async def events(self) -> AsyncGenerator[bytes, None]:
        """Yield events, each a JSON document and a line feed, until the watch ends."""
        async with aclosing(self.batches()) as batches:
            async for lines in batches:
                for line in lines:
                    yield line
                lines.clear()

    async def batches(self) -> AsyncGenerator[list[bytes], None]:
        """Yield non-empty batches of the events that are ready together.

        Ends after `timeout_of` seconds; with an ERROR event if the revision is compacted; and silently if the database is
        unavailable: the client watches again from its last revision.
        """
        ends = _clock() + timeout_of(self.options)
        try:
            async with aclosing(self._initial_batches()) as initial:
                async for lines in initial:
                    yield lines
            self.on_initialized()
            async with aclosing(self._change_batches(ends)) as following:
                async for lines in following:
                    yield lines
        except ApiError as error:
            yield [self.shape.encode_error(error)]
            return
        except Unavailable:
            return
        if self.options.allow_watch_bookmarks:
            yield [self._encode_bookmark()]

    async def _initial_batches(self) -> AsyncGenerator[list[bytes], None]:
        """Yield ADDED events for existing objects, some at a time, then the bookmark of the initial events' end."""
        first, self.first = self.first, None
        if first is None:
            return
        try:
            async with aclosing(pages(self.watch.registry, self.watch.scope, first)) as read:
                async for page in read:
                    loaded = await self.watch.registry.converter.load_all(self.shape.kind, page.heads)
                    for heads in cut_batches(loaded):
                        yield [self._encode_event(Event("ADDED", head)) for head in heads]
                    page.heads.clear()  # frees memory while the next page is read
        except Compacted as error:
            raise gone(str(error)) from error
        if self.options.send_initial_events and self.options.allow_watch_bookmarks:
            yield [self._encode_bookmark({"k8s.io/initial-events-end": "true"})]

    async def _change_batches(self, ends: float) -> AsyncGenerator[list[bytes], None]:
        """Yield changes until the watch ends, with a bookmark after BOOKMARK_SECONDS without any."""
        sent_at = _clock()
        longest = BOOKMARK_SECONDS if self.is_served is None else CHECK_SECONDS
        while (left := ends - _clock()) > 0:
            events = await self.watch.next_events(min(left, longest))
            if events:
                if self.shape.kind.conversion is not None:
                    events = await self._convert(events)
                lines = [self._encode_shared(event) for event in events]
                yield await self.add_levels(events, lines) if self.add_levels else lines
            elif self.options.allow_watch_bookmarks and _clock() - sent_at >= BOOKMARK_SECONDS:
                yield [self._encode_bookmark()]
            elif self.is_served is not None and not self.is_served():
                return
            else:
                continue
            sent_at = _clock()

    async def _convert(self, events: Sequence[Event]) -> Sequence[Event]:
        """The events with objects in the version that the watch asked for. A slow webhook delays no other watch."""
        converter = self.watch.registry.converter
        bodies = await converter.convert_shared(self.shape.kind, [event.object.body for event in events])
        return [_with_body(event, body) for event, body in zip(events, bodies, strict=True)]

    def _encode_event(self, event: Event) -> bytes:
        """One event. The columns of a Table are in the first only."""
        columns, self._has_begun = not self._has_begun, True
        return self.shape.encode_event(
            event.type, self.shape.encode_object(event.object.wire, self.now, columns=columns)
        )

    def _encode_shared(self, event: Event) -> bytes:
        """One event, encoded once for all watchers in the same form."""
        if self._is_table and not self._has_begun:
            return self._encode_event(event)
        key = (event, self._cache_key, self.now() if self._is_table else None)
        line = _EVENT_CACHE.get(key)
        return line if line is not None else _EVENT_CACHE.put(key, self._encode_event(event))

    def _encode_bookmark(self, annotations: dict[str, str] | None = None) -> bytes:
        metadata: dict[str, object] = {"resourceVersion": str(self.watch.revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        return self.shape.encode_event("BOOKMARK", self.shape.encode_bookmark(metadata))


def timeout_of(options: ListOptions) -> float:
    """Return the seconds that a watch lasts: timeoutSeconds, up to a day; by default, as in apiserver, random 30-60 minutes."""
    spread = random.uniform(*DEFAULT_SECONDS)  # noqa: S311 - spreads reconnects
    return min(options.timeout_seconds or spread, MOST_SECONDS)


def _clock() -> float:
    return asyncio.get_running_loop().time()


def _with_body(event: Event, body: bytes) -> Event:
    old = event.object
    return event if body is old.body else Event(event.type, StoredObject(old.key, old.uid, old.revision, body, None))


class _EventCache:
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


_EVENT_CACHE = _EventCache()
