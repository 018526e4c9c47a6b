"""Watches with selectors, for any kind. The API turns what comes out of here into chunks.

A watch is a cursor in the feed: it replays from history what the feed no longer holds, then follows. It owns no queue, so a
slow client costs no memory; one that falls behind what is remembered is told so with a 410.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from app.kinds.errors import gone
from app.registry.lists import Scope
from app.store import Change, Compacted, Head, Store, topic_of

REPLAYED = 500  # changes that one watcher is given at once
REPLAYED_BYTES = 1 << 20  # their bodies; a larger one comes alone
Seen = Literal["ADDED", "MODIFIED", "DELETED"]


class Event(NamedTuple):
    """What one watcher sees of one change. All that see it as the same type see the same object."""

    type: Seen
    object: Change | Head


@dataclass
class Watch:
    """One watcher. `revision` is what it has seen; `next_events` moves it on."""

    store: Store
    scope: Scope
    revision: int

    async def next_events(self, seconds: float) -> Sequence[Event]:
        """What has happened since; waits for it at most `seconds`, then returns nothing. Raises a 410 if it is too late.

        Of what is long it gives a part, so that a client that has fallen behind cannot have it all put into memory.
        """
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
        part = changes[: _few(changes)]
        if len(part) < len(changes):
            upper = part[-1].revision
        events = await self._with_last_states([event for change in part if (event := self._seen(change))])
        self.revision = max(self.revision, upper)
        return events

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

    async def _with_last_states(self, events: list[Event]) -> list[Event]:
        """Who no longer sees an object is shown it as it was when it was still selected."""
        left = [each.object for each in events if each.type == "DELETED"]
        changed = [each for each in left if isinstance(each, Change) and each.old_marks is not None]
        if not changed:
            return events
        await self.store.look_back(changed)
        return [_as_it_was(each) if each.type == "DELETED" else each for each in events]


def _few(changes: Sequence[Change]) -> int:
    """How many of the changes are handed out at once."""
    size = 0
    for count, change in enumerate(changes[:REPLAYED]):
        size += len(change.body)
        if size > REPLAYED_BYTES and count:
            return count
    return min(len(changes), REPLAYED)


def _as_it_was(event: Event) -> Event:
    """The state before the change, under the revision of the change: there the watcher goes on."""
    change = event.object
    if isinstance(change, Head) or change.body_before is None or change.old_marks is None:
        return event
    return Event(event.type, Head(change.key, change.uid, change.revision, change.body_before, change.old_marks))
