"""History loss: reports what a database lost when it went back in time. Runs beside the API and the controllers.

Every process that knew of lost revisions says so in its log; of one loss there is one Event, whose name all of them agree on.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.event import Event, EventSource
from app.kinds.core.lease import KIND as LEASES
from app.machinery.base import Object, ObjectMeta, ObjectReference
from app.registry.codec import write_of
from app.registry.leader_election import NAMESPACE
from app.registry.registry import Registry
from app.registry.verbs.versions import new
from app.store import Conflict, Loss, OutcomeUnknown, Unavailable

COMPONENT = "jobplane"
REASON = "HistoryLost"
LEASE = "jobplane-controllers"  # what the Event is about: an Event must be about something in its namespace
RETRY_SECONDS = 1.0


@asynccontextmanager
async def reporting_losses(registry: Registry) -> AsyncIterator[None]:
    """Report losses while the context is open."""
    task = asyncio.create_task(_write_events(registry))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _write_events(registry: Registry) -> None:
    while True:
        await write_event(registry, await registry.store.feed.losses.get())


async def write_event(registry: Registry, loss: Loss) -> None:
    """Write the Event, unless another process has. Waits for a database that is away."""
    write = write_of(EVENTS, _event(registry, loss), "A")
    while True:
        try:
            await registry.store.commit([write])
        except Conflict:
            return
        except (Unavailable, OutcomeUnknown):
            await asyncio.sleep(RETRY_SECONDS)
        else:
            return


def _event(registry: Registry, loss: Loss) -> Object:
    now = registry.now()
    about = ObjectReference(kind=LEASES.name, api_version=LEASES.api_version, namespace=NAMESPACE, name=LEASE)
    event = Event(
        metadata=ObjectMeta(name=f"{LEASE}.{loss.timeline:x}"),
        involved_object=about,
        reason=REASON,
        message=str(loss),
        type="Warning",
        source=EventSource(component=COMPONENT),
        reporting_component=COMPONENT,
        first_timestamp=now,
        last_timestamp=now,
        count=1,
    )
    return new(EVENTS, NAMESPACE, event, now)
