"""The database went back in time: watchers list anew, copies are read anew, and people are told once."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from app.controllers import manager
from app.kinds.batch.job import Job
from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.kinds.core.configmap import ConfigMap
from app.kinds.core.event import KIND as EVENTS
from app.machinery.base import ObjectMeta
from app.machinery.errors import ApiError
from app.registry import history_loss
from app.registry.verbs.lists import Scope
from app.registry.verbs.objects import Registry
from app.registry.verbs.watch import Watch
from app.store import Query, Unavailable, open_store
from tests.conftest import Clock
from tests.registry.examples import JOBS, PODS, a_job, create, get
from tests.store.rewinding import back_up, restore

SECONDS = 30
ALL = Scope(kind=CONFIGMAPS)


@pytest.fixture
async def other(dsn: str, clock: Clock) -> AsyncIterator[Registry]:
    """A second process."""
    async with open_store(dsn) as store:
        yield Registry(store, clock)


async def make(registry: Registry, name: str) -> int:
    """The revision; for as long as the database is away, it is tried again."""
    while True:
        try:
            made = await create(registry, CONFIGMAPS, ConfigMap(metadata=ObjectMeta(name=name)))
        except Unavailable:
            await asyncio.sleep(0.01)
        else:
            return int(made.metadata.resource_version)


async def names(watching: Watch) -> list[str]:
    return [event.object.key.name for event in await watching.next_events(SECONDS)]


async def test_an_open_watch_that_has_shown_what_is_lost_is_told_at_once(dsn: str, registry: Registry) -> None:
    await back_up(dsn)
    watching = Watch(registry, ALL, await registry.store.revision())
    await make(registry, "lost")
    assert await names(watching) == ["lost"]
    waiting = asyncio.ensure_future(watching.next_events(10 * SECONDS))
    await asyncio.sleep(0)
    await restore(dsn)

    async with asyncio.timeout(SECONDS):
        with pytest.raises(ApiError) as caught:
            await waiting
    assert caught.value.code == 410


async def test_a_watch_that_has_shown_nothing_of_it_goes_on(dsn: str, registry: Registry) -> None:
    watching = Watch(registry, ALL, await registry.store.revision())
    await back_up(dsn)
    await make(registry, "lost")
    await restore(dsn)
    await make(registry, "after")

    assert await names(watching) == ["after"]


async def test_a_watch_at_a_process_that_knew_nothing_of_it_is_told_too(
    dsn: str, registry: Registry, other: Registry
) -> None:
    """It comes with a revision that another process gave it, while nothing happens for long."""
    await back_up(dsn)
    async with other.store.feed._lock:  # it is behind
        lost = await make(registry, "lost")
        watching = Watch(other, ALL, lost)
        waiting = asyncio.ensure_future(_to_its_end(watching))
        await restore(dsn)
    await registry.store.feed.lost_touch.wait()
    await other.store.feed.reach(registry.store.feed.timeline)

    with pytest.raises(ApiError) as caught:
        await waiting
    assert caught.value.code == 410


async def _to_its_end(watching: Watch) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            await watching.next_events(0.05)


async def test_rights_are_judged_by_what_there_is_now(dsn: str, registry: Registry) -> None:
    await back_up(dsn)
    before = await registry.policy.mirror()
    await make(registry, "lost")
    await restore(dsn)
    await make(registry, "after")

    assert await registry.policy.mirror() is not before


async def test_people_are_told_once_by_however_many_processes(dsn: str, registry: Registry, other: Registry) -> None:
    await back_up(dsn)
    await make(registry, "lost")
    lost = await registry.store.revision()
    await other.store.feed.reach(lost)
    await restore(dsn)
    for each in (registry, other):
        async with asyncio.timeout(SECONDS):
            await history_loss.write_event(each, await each.store.feed.losses.get())

    found = await registry.store.list(Query(kind=EVENTS.resource, namespace="kube-system"))
    (event,) = [await get(registry, EVENTS, head.key.name, "kube-system") for head in found.heads]
    assert (event.type, event.reason) == ("Warning", history_loss.REASON)
    assert f"to {lost} are lost" in event.message


async def test_a_job_that_is_made_afterwards_gets_its_pods(dsn: str, registry: Registry) -> None:
    """Also if the election was in the part that is kept, so that its term is not over."""
    options = {"nodes": manager.NodeSettings(grace=timedelta(seconds=50))}
    async with open_store(dsn, ring_bytes=0) as store:
        acting = asyncio.create_task(manager.run(Registry(store, registry.clock), **options))
        await create(registry, JOBS, a_job("before"))
        await _has_pods(registry, "before")
        await back_up(dsn)
        await store.feed.reach(await make(registry, "lost"))
        await restore(dsn)
        await make(registry, "after")
        job: Job = await create(registry, JOBS, a_job("after"))
        await _has_pods(registry, job.metadata.name)
        acting.cancel()
        await asyncio.gather(acting, return_exceptions=True)


async def _has_pods(registry: Registry, job: str) -> None:
    async with asyncio.timeout(SECONDS):
        while True:
            page = await registry.store.list(Query(kind=PODS.resource))
            if any(head.key.name.startswith(job) for head in page.heads):
                return
            await registry.store.feed.changed_within(0.2)
