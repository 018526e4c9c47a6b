"""Lists over HTTP: revision of a request, pages and their continue tokens, long lists as streams.

`collection` calls `answer`, `listing` and `whole_page`. A list shows all objects as they were at one revision, and so do its
further pages. What fits into one page leaves in one piece; a longer list is sent while it is read, and breaks off rather than
end short.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from functools import partial
from typing import Any

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Send
from starlette.types import Scope as Connection

from app.api.http import compression, content, errors
from app.api.http.compression import Body
from app.api.http.query import ListOptions
from app.api.http.response_shape import ResponseShape
from app.api.http.response_streams import Sender, SlowClientError, send_stream
from app.api.resources import continue_token
from app.api.resources.routes import RequestInfo
from app.api.resources.selection import Selection, scope_of
from app.machinery.errors import ApiError, gone
from app.registry import Compacted, Page, StoredObject, Unavailable
from app.registry.verbs.lists import (
    PAGE_BYTES,
    Place,
    Scope,
    TooLarge,
    first_page,
    list_page,
    pages,
    place_of,
    remaining,
)
from app.registry.verbs.objects import Registry
from app.structured_logging import Logger

logger = Logger(__name__)
ONE_PIECE = 500  # a limit up to this is read as one page, and sent at once
ROWS_AT_ONCE, BYTES_AT_ONCE = 100, 256 << 10  # encoded in one turn of the event loop
LONGEST_PROTOBUF = 64 << 20  # bytes of the objects of a list that is held in memory as a whole
TOO_LONG = "the list is too long for protobuf: accept application/json, or ask for pages by limit"
CATCH_UP_SECONDS = 3.0  # to wait for a revision that this process has not seen yet
EXPIRED = "The resourceVersion for the provided list is too old."
INCONSISTENT = (
    "The provided continue parameter is too old to display a consistent list result. You can start a new list without "
    "the continue parameter, or use the continue token in this response to retrieve the remainder of the results. "
    "Continuing with the provided token results in an inconsistent list - objects that were created, modified, or "
    "deleted between the time the first chunk was returned and now may show up in the list."
)


async def answer(registry: Registry, request: Request, target: RequestInfo, selection: Selection) -> Response:
    """The answer to a list: one page, or a stream of pages."""
    options = selection.options
    shape, now = content.shape_of(request, target.kind), registry.now()
    wanted = await _resolve(registry, target, selection)
    try:
        if 0 < options.limit <= ONE_PIECE:
            with suppress(TooLarge):
                page = await wanted.page(registry, options.limit)
                return await whole_page(registry, shape, page, target.namespace, options, now)
        first = await first_page(registry, wanted.scope, wanted.after, wanted.at)
    except Compacted as error:
        raise _expired_error(options, wanted.after, target.namespace) from error
    if not first.more and (not options.limit or len(first.heads) <= options.limit):
        page = Page(wanted.scope.selected(first.heads), first.revision, more=False)
        return await whole_page(registry, shape, page, target.namespace, options, now)
    listing = Listing(registry, wanted.scope, first, shape, options.limit or None, target.namespace, now)
    if shape.is_protobuf:
        return Body(await listing.whole(), media_type=shape.content_type)
    return LongAnswer(listing.pieces(), shape.content_type, about=target.kind.resource)


async def listing(registry: Registry, request: Request, target: RequestInfo, selection: Selection) -> "Listing":
    """Return the objects of a list for deletecollection. 410 as `answer`."""
    options = selection.options
    shape, now = content.shape_of(request, target.kind), registry.now()
    wanted = await _resolve(registry, target, selection)
    try:
        first = await first_page(registry, wanted.scope, wanted.after, wanted.at)
    except Compacted as error:
        raise _expired_error(options, wanted.after, target.namespace) from error
    return Listing(registry, wanted.scope, first, shape, options.limit or None, target.namespace, now)


async def whole_page(
    registry: Registry, shape: ResponseShape, page: Page, namespace: str | None, options: ListOptions, now: datetime
) -> Body:
    """Return the response with a complete page."""
    meta = _meta(page, namespace, counted=not (options.label_selector or options.field_selector))
    items = [items async for items in _make_items(registry, shape, page.heads, now)]
    return Body(shape.encode_list(meta, items), media_type=shape.content_type)


async def _make_items(
    registry: Registry, shape: ResponseShape, heads: Sequence[StoredObject], now: datetime
) -> AsyncGenerator[bytes, None]:
    """Yield encoded items in batches, with a turn of the event loop between them: tables decode every object."""
    if not heads:
        yield b""
    heads = await registry.converter.load_all(shape.kind, heads)
    for place, batch in enumerate(cut_batches(heads)):
        if place:
            await asyncio.sleep(0)
        yield shape.encode_items([each.wire for each in batch], now)


def cut_batches(heads: Sequence[StoredObject]) -> Iterator[Sequence[StoredObject]]:
    """Cut objects into batches that are encoded in one turn of the event loop."""
    start = size = 0
    for end, head in enumerate(heads, 1):
        size += len(head.body)
        if end == len(heads) or end - start >= ROWS_AT_ONCE or size >= BYTES_AT_ONCE:
            yield heads[start:end]
            start, size = end, 0


async def require_kept(registry: Registry, revision: int) -> None:
    """410 if the database has lost the revision, as when a backup was restored."""
    if await registry.is_lost(revision):
        raise gone(EXPIRED)


async def wait_for_revision(registry: Registry, revision: int) -> None:
    """Wait until this process has seen the revision; 504 if it has not been given out.

    Nothing that began there could ever go on. A copy of the database may be behind.
    """
    if not await registry.reach(revision, CATCH_UP_SECONDS):
        raise errors.too_new(revision, registry.cursor)


@dataclass(frozen=True)
class _ListQuery:
    """Scope, key after which to start, and revision (None: newest) of a list."""

    scope: Scope
    after: Place | None
    at: int | None

    async def page(self, registry: Registry, limit: int | None) -> Page:
        return await list_page(registry, self.scope, self.after, limit, self.at, PAGE_BYTES)


async def _resolve(registry: Registry, target: RequestInfo, selection: Selection) -> _ListQuery:
    kind, options = content.stored_kind(target.kind), selection.options
    scope = scope_of(kind, target.namespace, selection)
    if options.continue_:
        at, after = continue_token.decode(options.continue_, target.namespace)
    else:
        at, after = options.exact_revision, None
    if at is None:  # what is lost cannot be shown either, and a page says how the list goes on nevertheless
        await require_kept(registry, options.revision or 0)
    await wait_for_revision(registry, at or options.revision or 0)
    return _ListQuery(scope, after, at)


# --- metadata


def _meta(page: Page, namespace: str | None, *, counted: bool = True) -> dict[str, Any]:
    """ListMeta of a page."""
    meta: dict[str, Any] = {"resourceVersion": str(page.revision)}
    if page.more:
        meta["continue"] = continue_token.encode(page.revision, place_of(page.heads[-1]), namespace)
        if counted and page.remaining is not None:
            meta["remainingItemCount"] = page.remaining
    return meta


class _Inconsistent(ApiError):
    """410 with a token that continues the list at the newest revision: Kubernetes' inconsistent continue."""

    def __init__(self, token: str) -> None:
        super().__init__(410, "Expired", INCONSISTENT)
        self.token = token

    def status(self) -> dict[str, Any]:
        return {**super().status(), "metadata": {"continue": self.token}}


def _expired_error(options: ListOptions, after: Place | None, namespace: str | None) -> ApiError:
    if not options.continue_ or after is None:
        return gone(EXPIRED)
    return _Inconsistent(continue_token.encode(continue_token.NEWEST, after, namespace))


# --- long lists


@dataclass
class Listing:
    """A list of several pages, encoded while it is read from the store."""

    registry: Registry
    scope: Scope
    first: Page
    shape: ResponseShape
    limit: int | None
    namespace: str | None
    now: datetime
    _is_cut: bool = field(default=False, init=False)  # whether the limit was reached

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the encoded list. With a limit the metadata come last, because the continue token is only known then."""
        meta = None if self.limit else _meta(Page([], self.first.revision, more=False), self.namespace)
        before, last = self.shape.encode_list_start(meta), None
        async with aclosing(self.parts()) as parts:
            async for heads in parts:
                if not heads:
                    continue
                piece = before + b",".join(
                    [items async for items in _make_items(self.registry, self.shape, heads, self.now)]
                )
                before, last = b",", StoredObject(heads[-1].key, heads[-1].uid, heads[-1].revision, b"", None)
                heads.clear()  # frees memory while the client reads
                yield piece
                del piece
        if last is None:
            yield before
        yield self.shape.encode_list_end(_meta(await self.end(last), self.namespace) if self.limit else None)

    async def whole(self) -> bytes:
        """Return the encoded list in one piece, as protobuf needs it, whose length comes first; 406 if it would be too long."""
        found, last, size = [], None, 0
        async with aclosing(self.parts()) as parts:
            async for heads in parts:
                last = heads[-1] if heads else last
                found += [items async for items in _make_items(self.registry, self.shape, heads, self.now)]
                size += sum(len(each.body) for each in heads)
                if size > LONGEST_PROTOBUF:
                    raise ApiError(406, "NotAcceptable", TOO_LONG)
        page = await self.end(last) if self.limit else Page([], self.first.revision, more=False)
        return self.shape.encode_list(_meta(page, self.namespace), found)

    async def parts(self) -> AsyncGenerator[list[StoredObject], None]:
        """Yield the objects page by page, up to the limit."""
        left = self.limit
        async with aclosing(pages(self.registry, self.scope, self.first)) as read:
            async for page in read:
                if left is not None and len(page.heads) > left:
                    self._is_cut = True
                    del page.heads[left:]
                left = None if left is None else left - len(page.heads)
                yield page.heads
                if self._is_cut:
                    return

    async def end(self, last: StoredObject | None) -> Page:
        """The last page of a list with a limit: whether more follows, and how many."""
        if last is None or not self._is_cut:
            return Page([], self.first.revision, more=False)
        left = None
        if not self.scope.is_selective:
            left = await remaining(self.registry, self.scope, last, self.first.revision)
        return Page([last], self.first.revision, True, left)


class LongAnswer(StreamingResponse):
    """An answer that is sent while it is made. If that fails, it stays without its end: no client may take it for whole."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], content_type: str, about: str) -> None:
        super().__init__(pieces, media_type=content_type)
        self._pieces = pieces
        self._about = about

    async def __call__(self, scope: Connection, receive: Receive, send: Send) -> None:
        gzip = compression.Gzip() if compression.is_accepted(scope["headers"]) else None
        headers = [*self.raw_headers, *(compression.HEADERS if gzip else ())]
        await send({"type": "http.response.start", "status": self.status_code, "headers": headers})
        try:
            await send_stream(partial(self._send, gzip), receive, send)
        except (SlowClientError, Unavailable, Compacted) as error:
            logger.warning("list ended early; its client has to list again", resource=self._about, error=error)

    async def _send(self, gzip: compression.Gzip | None, send: Sender) -> None:
        async with aclosing(self._pieces) as pieces:
            async for piece in pieces:
                data = piece if gzip is None else await gzip.piece(piece)
                if data:
                    await send(data)
                    del piece, data
                    await send.drain()
        if gzip is not None:
            await send(await gzip.end())
