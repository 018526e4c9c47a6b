"""Lists with selectors, for any kind, each at one revision. The API turns what comes out of here into answers.

Pages of one list may be read minutes apart, here or by another process: they show the same revision nevertheless, until
compaction has forgotten it.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field

from app.machinery.base import Kind
from app.registry.registry import Registry
from app.store import Compacted, Key, Page, Query, SelectorIndex, StoredObject
from app.store.lifetimes import NAMESPACES, NODES

ROWS = 250  # of the first page of a list without end
PAGE_BYTES = 2 << 20  # how large the following pages are to be, about
ROWS_AT_LEAST, ROWS_AT_MOST = 10, 1_000
MOST_AHEAD = 32  # pages that all lists of a process together hold before their clients have taken the one before
LOOKED_AT = 500  # in one query for a selective list, however short its pages
MOST_COUNTED = 100_000  # objects that are left after a page
Place = tuple[str, str]
"""Namespace and name of the last object before."""


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which objects: a kind, perhaps one namespace, and selectors.

    `node` and `name` are what selectors demand of spec.nodeName and metadata.name, so that an index may help; `matches`
    is whatever else they demand. `labels` and `fields`: some of what `matches` demands, by which the database finds them, or
    leaves out most others.
    """

    kind: Kind
    namespace: str | None = None
    name: str | None = None
    node: str | None = None
    matches: Callable[[Key, SelectorIndex], bool] | None = None
    labels: Mapping[str, Sequence[str]] = field(default_factory=dict)
    fields: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_selective(self) -> bool:
        return not (self.name is None and self.node is None and self.matches is None)

    def query(
        self, after: Place | None = None, limit: int | None = None, at: int | None = None, size: int | None = None
    ) -> Query:
        return Query(
            kind=self.kind.resource,
            namespace=self.namespace,
            name=self.name,
            node=self.node,
            after=after,
            limit=limit,
            at=at,
            with_selector_index=self.matches is not None,
            labels=self.labels if self.matches is not None else {},
            fields=self.fields if self.matches is not None else {},
            size=size,
        )

    def selects(self, key: Key, selector_index: SelectorIndex) -> bool:
        if self.namespace is not None and key.namespace != self.namespace:
            return False
        if self.name is not None and key.name != self.name:
            return False
        if self.node is not None and selector_index.fields.get("spec.nodeName") != self.node:
            return False
        return self.matches is None or self.matches(key, selector_index)

    def selected(self, heads: Sequence[StoredObject]) -> list[StoredObject]:
        """Those of what its query found that it means."""
        matches = self.matches
        return list(heads) if matches is None else [head for head in heads if matches(head.key, head.selector_index)]


class TooLarge(Exception):
    """A page of as many objects as were asked for has more bytes than are held at once."""


async def check_lifetime(registry: Registry, scope: Scope, revision: int) -> None:
    """Raise Compacted if the namespace or node that `scope` is limited to has been deleted after a revision.

    One that is made anew under the same name may have other owners, who may not read what was there before.
    """
    for kind, name in ((NAMESPACES, scope.namespace), (NODES, scope.node)):
        if name and (end := await registry.store.lifetimes.ended_after(Key(kind, "", name), revision)):
            raise Compacted(revision, end)


def place_of(head: StoredObject) -> Place:
    return head.key.namespace, head.key.name


async def list_page(
    registry: Registry,
    scope: Scope,
    after: Place | None = None,
    limit: int | None = None,
    at: int | None = None,
    size: int | None = None,
) -> Page:
    """A page of what is selected. A selective page is filled by reading on, so it is short only at the end.

    Raises Compacted if `at` is a revision that is no longer known, or from before a deletion of the scope's namespace;
    TooLarge if the page has more bytes than `size`.
    """
    if at is not None:
        await check_lifetime(registry, scope, at)
    if scope.matches is None:
        page = await registry.store.list(scope.query(after, limit, at, size))
        if page.more and len(page.heads) != limit:
            raise TooLarge
        return await _with_remaining(registry, scope, page)
    found: list[StoredObject] = []
    rows = None if limit is None else max(limit, LOOKED_AT)
    while True:
        page = await registry.store.list(scope.query(after, rows, at, size))
        at = page.revision
        found += scope.selected(page.heads)
        if size is not None and _size_of(found) > size:
            raise TooLarge
        if limit is not None and len(found) > limit:
            return Page(found[:limit], at, more=True)
        if not page.more:
            return Page(found, at, more=False)
        after = place_of(page.heads[-1])


async def _with_remaining(registry: Registry, scope: Scope, page: Page) -> Page:
    """With how many are left. Selective lists do not tell that, as in Kubernetes."""
    if not page.more or not page.heads or scope.is_selective:
        return page
    left = await remaining(registry, scope, page.heads[-1], page.revision)
    return Page(page.heads, page.revision, page.more, left)


async def remaining(registry: Registry, scope: Scope, last: StoredObject, at: int) -> int | None:
    """Return how many objects of a scope come after one of them, at a revision. None if they are very many.

    To count a million for each page of 500 takes longer than to read them.
    """
    return await registry.store.remaining(scope.query(place_of(last), at=at), MOST_COUNTED)


async def first_page(registry: Registry, scope: Scope, after: Place | None = None, at: int | None = None) -> Page:
    """The first page of a list without end: what its query found, from which `pages` goes on. Compacted as `list_page`."""
    if at is not None:
        await check_lifetime(registry, scope, at)
    return await registry.store.list(scope.query(after, ROWS, at, PAGE_BYTES))


async def pages(registry: Registry, scope: Scope, first: Page) -> AsyncGenerator[Page, None]:
    """All that is selected, in pages of about two megabytes; a page may be empty, and others come after it.

    While one is being used the next is read, unless many lists do that, and nothing is held in the database between them.
    Whoever is done with a page empties it: none is held here. Raises Compacted if the revision is forgotten meanwhile.
    Close it (`contextlib.aclosing`) rather than leave it.
    """
    page: Page | None = first
    ahead: asyncio.Future[Page] | None = None
    try:
        while page is not None:
            query = _query_after(scope, page) if page.more else None
            if query is not None and _AHEAD.count < MOST_AHEAD:
                _AHEAD.count += 1
                ahead = asyncio.ensure_future(registry.store.list(query))
                ahead.add_done_callback(_ignore_failure)
            raw, page = page.heads, Page(scope.selected(page.heads), page.revision, page.more)
            raw.clear()
            yield page
            if ahead is not None:
                page = await ahead
                ahead = None
                _AHEAD.count -= 1
            else:
                page = await registry.store.list(query) if query is not None else None
    finally:
        if ahead is not None:
            ahead.cancel()
            _AHEAD.count -= 1


class _Ahead:
    count = 0


_AHEAD = _Ahead()


def _query_after(scope: Scope, page: Page) -> Query:
    rows = min(max(PAGE_BYTES * len(page.heads) // max(_size_of(page.heads), 1), ROWS_AT_LEAST), ROWS_AT_MOST)
    return scope.query(place_of(page.heads[-1]), rows, page.revision, PAGE_BYTES)


def _size_of(heads: Sequence[StoredObject]) -> int:
    return sum(len(head.body) for head in heads)


def _ignore_failure(reading: "asyncio.Future[Page]") -> None:
    """Nobody may wait any longer for a page that could not be read: that is no news."""
    if not reading.cancelled():
        reading.exception()
