"""Events are for people who look now: one that has not happened again for a while is deleted.

They are not mirrored. The oldest are read in the store, in the order of their last change, so that a look costs what is
deleted and not what is there. Deleted by the elected controllers, so that watchers see it like any deletion.
"""

from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import cast

from msgspec.structs import replace

from app.controllers.planned_write import PlannedWrite
from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.event import Event
from app.plans.plan import Delete, Plan
from app.registry.codec import decode
from app.store import Key, Store
from app.store.oldest import unchanged

TOGETHER = 250  # events deleted in one write set
EVERY = timedelta(seconds=30)
_ALL = Key("expiry", "", EVENTS.resource)


class EventController:
    component = "event-controller"

    def __init__(self, store: Store, ttl: timedelta) -> None:
        self._store = store
        self._ttl = ttl
        self._after = 0  # no event lives at or before this revision

    def on_event(self, *_: object) -> Iterable[Key]:
        """Time wakes it."""
        return []

    def enqueue_all(self) -> Iterable[Key]:
        return [_ALL]

    async def reconcile(self, _: Key, now: datetime) -> Sequence[PlannedWrite]:
        heads = await unchanged(self._store.pool, EVENTS.resource, self._after, self._ttl, TOGETHER)
        if not heads:
            return [PlannedWrite(Plan(again_at=now + EVERY))]
        self._after = heads[0].revision - 1
        deletes = tuple(_deletion(cast("Event", decode(EVENTS, head))) for head in heads)
        return [PlannedWrite(Plan(deletes, again_at=now if len(heads) == TOGETHER else now + EVERY))]


def _deletion(event: Event) -> Delete:
    """At once, whatever it says: time waits for no finalizer."""
    free = replace(event, metadata=replace(event.metadata, finalizers=()))
    return Delete(free, event if event.metadata.finalizers else None)
