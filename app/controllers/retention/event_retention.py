"""Event retention: Events are for people who look now; one that has not happened again for a while is deleted.

They are not mirrored. The oldest are read in the store, in the order of their last change, so that a run costs what is
deleted and not what is there. The leader deletes them, by write sets, so that watchers see it like any deletion.
"""

from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from typing import cast

from msgspec.structs import replace

from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.event import Event
from app.plans.plan import Delete, Plan
from app.registry.codec import decode
from app.registry.plan_writer import write_set
from app.store import Conflict, Store, Write

BATCH = 250  # events deleted in one write set
MOST_CONFLICTS = 10  # in one run


class EventRetention:
    """`commit` writes for the leader only. `ttl`: since the last change."""

    name = "event retention"
    interval = timedelta(seconds=30)

    def __init__(
        self,
        store: Store,
        commit: Callable[[Sequence[Write]], Awaitable[list[int]]],
        ttl: timedelta,
        batch: int = BATCH,
    ) -> None:
        self._store = store
        self._commit = commit
        self._ttl = ttl
        self._batch = batch
        self._after = 0  # no event lives at or before this revision

    async def run_once(self, now: datetime) -> dict[str, int]:
        deleted = conflicts = 0
        while heads := await self._store.unchanged(EVENTS.resource, self._after, self._ttl, self._batch):
            self._after = heads[0].revision - 1
            plan = Plan(tuple(_deletion(cast("Event", decode(EVENTS, head))) for head in heads))
            try:
                await self._commit(write_set(plan, (), self.name, now))
            except (
                Conflict
            ):  # one has happened again, and is young now; or the leader is another, and this is cancelled
                conflicts += 1
                if conflicts == MOST_CONFLICTS:  # the rest follows in the next run
                    break
                continue
            deleted += len(heads)
            if len(heads) < self._batch:
                break
        return {"deleted events": deleted}


def _deletion(event: Event) -> Delete:
    """At once, whatever it says: time waits for no finalizer."""
    free = replace(event, metadata=replace(event.metadata, finalizers=()))
    return Delete(free, event if event.metadata.finalizers else None)
