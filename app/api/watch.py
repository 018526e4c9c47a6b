"""Watches over HTTP: chunked JSON events as raw ASGI, everything pending joined into one send.

A raw ASGI answer, because it must also wait for the client to go away: an idle stream never notices that by itself.
"""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from app.api import content, errors
from app.api.query import ListOptions, list_options
from app.api.routes import Target
from app.api.selection import scope_of
from app.kinds.base import Kind
from app.kinds.errors import ApiError
from app.registry.objects import Registry
from app.registry.watch import Event, Watch, list_page
from app.store import Unavailable

BOOKMARK_SECONDS = 60.0
DEFAULT_SECONDS = (1800, 3600)  # like Kubernetes, somewhere between half an hour and one


async def stream(registry: Registry, request: Request, found: Target) -> "Stream":
    """Open a watch: what exists first if no revision was named, then every change."""
    options = list_options(request.query_params.multi_items())
    kind = content.stored_kind(found.kind)
    scope = scope_of(kind, found.namespace, options.label_selector, options.field_selector)
    first: Sequence[Event] = ()
    revision = options.revision or 0
    await _check_given_out(registry, revision)
    if not revision or options.send_initial_events:
        page = await list_page(registry.store, scope, None, None)
        first = [Event("ADDED", head) for head in page.heads]
        revision = page.revision
        if options.send_initial_events is False:
            first = ()
    shape = _shape(request, found.kind, registry.now)
    return Stream(Watch(registry.store, scope, revision), shape, options, found.kind, first)


async def _check_given_out(registry: Registry, revision: int) -> None:
    """Nothing would ever come to a watch from the future. This process may be behind: the database knows."""
    if revision > registry.store.feed.cursor and revision > (current := await registry.store.revision()):
        raise errors.too_new(revision, current)


Shape = Callable[[Event], bytes]


def _shape(request: Request, kind: Kind, now: Callable[[], datetime]) -> Shape:
    """How the object of an event looks in the form that the client asked for."""
    form = content.form_of(request)
    if form.form == "table":
        return lambda event: content.as_table(request, kind, [event.object.wire], now(), {})
    if form.form in {"partial", "partial-list"}:
        return lambda event: content.as_partial(kind, event.object.wire, form.version)
    return lambda event: content.outward(kind, event.object.wire)


@dataclass
class Stream:
    """One open watch, as an ASGI application."""

    watch: Watch
    shape: Shape
    options: ListOptions
    kind: Kind
    first: Sequence[Event]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = [(b"content-type", b"application/json"), (b"cache-control", b"no-cache, private")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        body = asyncio.create_task(self._send_events(send))
        gone = asyncio.create_task(_disconnected(receive))
        streams: set[asyncio.Task[None]] = scope["app"].state.streams
        streams.add(body)
        try:
            await asyncio.wait((body, gone), return_when=asyncio.FIRST_COMPLETED)
            if not gone.done():
                if not body.cancelled():  # as it is when the server stops: the client shall come back
                    body.result()
                await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            streams.discard(body)
            body.cancel()
            gone.cancel()
            await asyncio.gather(body, gone, return_exceptions=True)

    async def _send_events(self, send: Send) -> None:
        loop = asyncio.get_running_loop()
        ends = loop.time() + (self.options.timeout_seconds or random.uniform(*DEFAULT_SECONDS))  # noqa: S311 - spreads reconnects
        await self._send_first(send)
        sent_at = loop.time()
        while (left := ends - loop.time()) > 0:
            try:
                events = await self.watch.next_events(min(left, BOOKMARK_SECONDS))
            except ApiError as error:
                await _send(send, b'{"type":"ERROR","object":%b}\n' % errors.body(error))
                return
            except Unavailable:
                return  # the stream ends cleanly: the client comes back with its last revision
            if events:
                await _send(send, b"".join(map(self._line, events)))
            elif self.options.allow_watch_bookmarks and loop.time() - sent_at >= BOOKMARK_SECONDS:
                await _send(send, self._bookmark())
            else:
                continue
            sent_at = loop.time()
        if self.options.allow_watch_bookmarks:
            await _send(send, self._bookmark())

    async def _send_first(self, send: Send) -> None:
        lines = [self._line(event) for event in self.first]
        self.first = ()
        if self.options.send_initial_events:
            lines.append(self._bookmark({"k8s.io/initial-events-end": "true"}))
        await _send(send, b"".join(lines))  # even if empty: the headers must leave now

    def _line(self, event: Event) -> bytes:
        return b'{"type":"%b","object":%b}\n' % (event.type.encode(), self.shape(event))

    def _bookmark(self, annotations: dict[str, str] | None = None) -> bytes:
        metadata: dict[str, object] = {"resourceVersion": str(self.watch.revision), "creationTimestamp": None}
        if annotations:
            metadata["annotations"] = annotations
        obj = {"kind": self.kind.name, "apiVersion": self.kind.api_version, "metadata": metadata}
        return b'{"type":"BOOKMARK","object":%b}\n' % msgspec.json.encode(obj)


async def _send(send: Send, data: bytes) -> None:
    await send({"type": "http.response.body", "body": data, "more_body": True})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
