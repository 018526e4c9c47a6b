"""Watches with selectors, for any kind. The API turns what comes out of here into chunks.

A watch is a cursor in the feed: it replays from history what the feed no longer holds, then follows. It owns no queue, so a
slow client costs no memory; one that falls behind what is remembered gets a 410.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from app.machinery.errors import gone
from app.registry.registry import Registry
from app.registry.verbs.lists import Scope, check_lifetime
from app.store import SHORT_HISTORY, Change, Compacted, StoredObject, topic_of

REPLAYED = 500  # changes that one watcher is given at once
REPLAYED_BYTES = 1 << 20  # their bodies; a larger one comes alone
EventType = Literal["ADDED", "MODIFIED", "DELETED"]


class Event(NamedTuple):
    """What one watcher sees of one change. All that see it as the same type see the same object."""

    type: EventType
    object: Change | StoredObject


@dataclass
class Watch:
    """One watcher. `revision` is what it has seen; `next_events` moves it on."""

    registry: Registry
    scope: Scope
    revision: int
    _lived_at: int = field(init=False)  # up to here the namespace or node of the scope was not deleted
    _is_replayed: bool = field(init=False)  # only the floor in the store tells which old versions are still to be shown

    def __post_init__(self) -> None:
        self._lived_at = self.revision
        self._is_replayed = self.scope.kind.resource not in SHORT_HISTORY

    async def next_events(self, seconds: float) -> Sequence[Event]:
        """Return the changes since; waits for them at most `seconds`, then returns nothing. Raises a 410 if it is too late.

        Of what is long it gives a part, so that a client that has fallen behind cannot have it all put into memory.
        """
        feed = self.registry.store.feed
        topic = topic_of(self.scope.kind.resource, self.scope.node)
        changes: Sequence[Change] | None
        changes, upper = feed.after(topic, self.revision), feed.cursor
        if changes == []:
            self.revision = await feed.quiet_until(topic, self.revision, seconds)
            changes, upper = feed.after(topic, self.revision), feed.cursor
        await self._check_lifetime()
        cursor = upper
        if changes is None or (changes and not self._is_replayed):
            changes = await self._from_history(upper)
            if len(changes) == REPLAYED:
                upper = changes[-1].revision  # the rest next time: a day of history would not fit into memory
        part = changes[: _count_part(changes)]
        if len(part) < len(changes):
            upper = part[-1].revision
        events = await self._with_last_states([event for change in part if (event := self._event_of(change))])
        self.revision = max(self.revision, upper)
        self._is_replayed = self._is_replayed or upper == cursor
        return events

    async def _check_lifetime(self) -> None:
        """A 410 once the namespace or node has been deleted, so that nobody goes on with another one of that name."""
        if self.registry.store.lifetimes.all_live_since(self._lived_at):
            return
        cursor = self.registry.store.feed.cursor
        try:
            await check_lifetime(self.registry, self.scope, self._lived_at)
        except Compacted as error:
            raise gone(str(error)) from error
        self._lived_at = max(self._lived_at, cursor)

    async def _from_history(self, upper: int) -> Sequence[Change]:
        try:
            kind, node = self.scope.kind.resource, self.scope.node
            return await self.registry.store.history_of(kind, self.revision, upper, REPLAYED, node)
        except Compacted as error:
            raise gone(str(error)) from error

    def _event_of(self, change: Change) -> Event | None:
        """Return how the change looks through the selectors: an object may enter, stay or leave."""
        now = change.change != "D" and self.scope.selects(change.key, change.selector_index)
        before = change.change != "A" and self.scope.selects(
            change.key, change.old_selector_index or change.selector_index
        )
        if now:
            return Event("MODIFIED" if before else "ADDED", change)
        return Event("DELETED", change) if before else None

    async def _with_last_states(self, events: list[Event]) -> list[Event]:
        """An object that left the selection is shown as it was in it; one that was deleted in it, in its last state."""
        gone = [each.object for each in events if each.type == "DELETED"]
        if not gone:
            return events
        left = dict.fromkeys(each for each in gone if isinstance(each, Change) and self._has_left(each))
        if not left:
            return events
        await self.registry.store.look_back(list(left))
        return [_with_last_state(each) if each.object in left else each for each in events]

    def _has_left(self, change: Change) -> bool:
        """Return whether the change, which ends the object for this watcher, is what took it out of the selection."""
        if change.old_selector_index is None:
            return False
        return change.change != "D" or not self.scope.selects(change.key, change.selector_index)


def _count_part(changes: Sequence[Change]) -> int:
    """Return how many of the changes are handed out at once."""
    size = 0
    for count, change in enumerate(changes[:REPLAYED]):
        size += len(change.body)
        if size > REPLAYED_BYTES and count:
            return count
    return min(len(changes), REPLAYED)


def _with_last_state(event: Event) -> Event:
    """The state before the change, under the revision of the change: there the watcher goes on."""
    change = event.object
    if isinstance(change, StoredObject) or change.body_before is None or change.old_selector_index is None:
        return event
    return Event(
        event.type, StoredObject(change.key, change.uid, change.revision, change.body_before, change.old_selector_index)
    )
