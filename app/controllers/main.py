"""Runs all controllers of one process while it is the elected one; others stand by and take over when it ends.

Election only saves work: two that act at once would be kept apart by the preconditions of what they commit.
"""

import asyncio
import logging
from datetime import timedelta

from app.controllers.garbage import GarbageController
from app.controllers.jobs import JobController
from app.controllers.namespaces import NamespaceController
from app.controllers.nodes import NodeController
from app.controllers.runner import Controller, Runner
from app.controllers.scheduler import Scheduler
from app.kinds import by_resource
from app.registry.objects import Registry
from app.store import Compacted, Mirror, Unavailable, elected
from app.store.compact import compact

log = logging.getLogger(__name__)
_MIRRORED = (
    ("batch", "v1", "jobs"),
    ("", "v1", "pods"),
    ("", "v1", "nodes"),
    ("", "v1", "namespaces"),
    ("coordination.k8s.io", "v1", "leases"),
)
COMPACT_SECONDS = 300.0


async def run(registry: Registry, *, node_grace: timedelta, keep_history: timedelta) -> None:
    """Stand for election and act, for ever; returns only when cancelled."""
    while True:
        try:
            async with elected(registry.store, "controllers") as lost:
                log.info("elected: acting")
                await _act(registry, node_grace, keep_history, lost)
            log.warning("no longer elected: standing by")
        except (Unavailable, Compacted) as error:  # while it read what there is
            log.warning("no longer elected: %s", error)


async def _act(registry: Registry, node_grace: timedelta, keep_history: timedelta, lost: asyncio.Event) -> None:
    feed, mirror = registry.store.feed, new_mirror()
    feed.lost_touch.clear()
    runners = [Runner(registry, mirror, each) for each in controllers(registry, mirror, node_grace)]
    await registry.store.fill(mirror)
    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(runner.run()) for runner in runners]
            tasks.append(group.create_task(_compact(registry, keep_history)))
            ends = [asyncio.ensure_future(event.wait()) for event in (lost, feed.lost_touch)]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in (*tasks, *ends):
                task.cancel()
    finally:
        feed.leave(mirror.apply)


def new_mirror() -> Mirror:
    """An empty copy of all that controllers look at."""
    kinds = [kind for each in _MIRRORED if (kind := by_resource(*each))]
    return Mirror({kind.resource: kind.type for kind in kinds})


def controllers(registry: Registry, mirror: Mirror, node_grace: timedelta) -> list[Controller]:
    return [
        JobController(mirror),
        Scheduler(mirror),
        NodeController(mirror, registry.clock, node_grace),
        GarbageController(mirror),
        NamespaceController(mirror, registry.store),
    ]


async def _compact(registry: Registry, keep: timedelta) -> None:
    while True:
        await asyncio.sleep(COMPACT_SECONDS)
        try:
            log.info("forgot %s old versions", await compact(registry.store.pool, keep))
        except Exception as error:
            log.warning("could not compact the history: %s", error)
