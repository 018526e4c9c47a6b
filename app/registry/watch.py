"""Lists and watches with selectors, for any kind. The API turns what comes out of here into chunks.

A watch is a cursor in the feed: it replays from history what the feed no longer holds, then follows. It owns no queue, so a
slow client costs no memory; one that falls behind what is remembered is told so with a 410.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from app.kinds.base import Kind
from app.kinds.errors import gone
from app.store import Change, Compacted, Head, Key, Marks, Page, Query, Store, topic_of

REPLAYED = 500  # changes that one watcher reads from history at once
ROWS_AT_LEAST = 500  # looked at in one query for a selective list, however short its pages
Seen = Literal["ADDED", "MODIFIED", "DELETED"]


class Event(NamedTuple):
    """What one watcher sees of one change."""

    type: Seen
    object: Change | Head


@dataclass(frozen=True, kw_only=True)
class Scope:
    """Which objects: a kind, perhaps one namespace, and selectors.

    `node` and `name` are what selectors demand of spec.nodeName and metadata.name, so that an index may help; `matches`
    is whatever else they demand.
    """

    kind: Kind
    namespace: str | None = None
    name: str | None = None
    node: str | None = None
    matches: Callable[[Key, Marks], bool] | None = None

    def query(self, after: tuple[str, str] | None = None, limit: int | None = None) -> Query:
        return Query(
            kind=self.kind.resource, namespace=self.namespace, name=self.name, node=self.node, after=after, limit=limit
        )

    def selects(self, key: Key, marks: Marks) -> bool:
        if self.namespace is not None and key.namespace != self.namespace:
            return False
        if self.name is not None and key.name != self.name:
            return False
        if self.node is not None and marks.fields.get("spec.nodeName") != self.node:
            return False
        return self.matches is None or self.matches(key, marks)


async def list_page(store: Store, scope: Scope, after: tuple[str, str] | None, limit: int | None) -> Page:
    """A page of what is selected. A selective page is filled by reading on, so it is short only at the end."""
    if scope.matches is None:
        return await store.list(scope.query(after, limit))
    found: list[Head] = []
    first: int | None = None
    rows = None if limit is None else max(limit, ROWS_AT_LEAST)
    while True:
        page = await store.list(scope.query(after, rows))
        first = first or page.revision
        found += [head for head in page.heads if scope.selects(head.key, head.marks)]
        if not page.more:
            return Page(found[:limit], first, more=limit is not None and len(found) > limit)
        if limit is not None and len(found) >= limit:
            return Page(found[:limit], first, more=True)
        after = (page.heads[-1].key.namespace, page.heads[-1].key.name)


@dataclass
class Watch:
    """One watcher. `revision` is what it has seen; `next_events` moves it on."""

    store: Store
    scope: Scope
    revision: int

    async def next_events(self, seconds: float) -> Sequence[Event]:
        """What has happened since; waits for it at most `seconds`, then returns nothing. Raises a 410 if it is too late."""
        feed = self.store.feed
        topic = topic_of(self.scope.kind.resource, self.scope.node)
        changes: Sequence[Change] | None
        changes, upper = feed.after(topic, self.revision), feed.cursor
        if changes == []:
            self.revision = await feed.quiet_until(topic, self.revision, seconds)
            changes, upper = feed.after(topic, self.revision), feed.cursor
        if changes is None:
            changes = await self._from_history(upper)
            if len(changes) == REPLAYED:
                upper = changes[-1].revision  # the rest next time: a day of history would not fit into memory
        self.revision = max(self.revision, upper)
        return [event for change in changes if (event := self._seen(change))]

    async def _from_history(self, upper: int) -> Sequence[Change]:
        try:
            return await self.store.history_of(self.scope.kind.resource, self.revision, upper, REPLAYED)
        except Compacted as error:
            raise gone(str(error)) from error

    def _seen(self, change: Change) -> Event | None:
        """How the change looks through the selectors: an object may enter, stay or leave."""
        now = change.change != "D" and self.scope.selects(change.key, change.marks)
        before = change.change != "A" and self.scope.selects(change.key, change.old_marks or change.marks)
        if now:
            return Event("MODIFIED" if before else "ADDED", change)
        return Event("DELETED", change) if before else None
