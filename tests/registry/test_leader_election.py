"""Elections and epochs: one acts, a successor is there at once, and what a predecessor decided does not happen any more."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.kinds.core.configmap import ConfigMap
from app.kinds.core.lease import KIND as LEASES
from app.machinery.base import ObjectMeta
from app.registry import leader_election
from app.registry.codec import write_of
from app.registry.verbs.objects import Registry
from app.registry.verbs.versions import new
from app.store import Conflict, Write, hold_leader_lock, open_store
from tests.conftest import Clock
from tests.registry.examples import get
from tests.store.rewinding import read_only

NAME = "test"


@pytest.fixture
async def other(dsn: str, clock: Clock) -> AsyncIterator[Registry]:
    """A second process."""
    async with open_store(dsn) as store:
        yield Registry(store, clock)


def a_map(registry: Registry, name: str) -> Write:
    obj = ConfigMap(metadata=ObjectMeta(name=name))
    return write_of(CONFIGMAPS, new(CONFIGMAPS, "default", obj, registry.now()), "A")


async def test_what_was_decided_in_an_earlier_epoch_is_refused_whole(registry: Registry, other: Registry) -> None:
    first = await leader_election.begin(registry, NAME)
    await registry.store.commit([a_map(registry, "in-time"), first.precondition])

    second = await leader_election.begin(other, NAME)
    with pytest.raises(Conflict) as refused:
        await registry.store.commit([a_map(registry, "late"), first.precondition])
    await other.store.commit([a_map(other, "new"), second.precondition])

    assert refused.value.keys == [first.precondition.key]
    assert await get(registry, CONFIGMAPS, "in-time")
    assert not await get(registry, CONFIGMAPS, "late")


async def test_epochs_that_begin_at_the_same_time_follow_each_other(registry: Registry, other: Registry) -> None:
    begun = await asyncio.gather(*(leader_election.begin(each, NAME) for each in (registry, other) * 5))

    last = max(begun, key=lambda epoch: epoch.precondition.expected)
    for epoch in begun:
        if epoch is not last:
            with pytest.raises(Conflict):
                await registry.store.commit([epoch.precondition])
    await registry.store.commit([last.precondition])
    lease = await get(registry, LEASES, NAME, leader_election.NAMESPACE)
    assert lease.spec.lease_transitions == len(begun) - 1


async def test_a_successor_takes_over_when_the_holder_lets_go(registry: Registry, other: Registry) -> None:
    won = asyncio.Event()

    async def stand() -> None:
        async with hold_leader_lock(other.store, NAME):
            won.set()

    async with hold_leader_lock(registry.store, NAME):
        task = asyncio.create_task(stand())
        await _waits(registry)
        assert not won.is_set()
    async with asyncio.timeout(20):
        await task


async def test_who_lost_its_connection_is_told(registry: Registry, other: Registry) -> None:
    async with AsyncExitStack() as stack:
        lost = await stack.enter_async_context(hold_leader_lock(registry.store, NAME))
        await registry.store.pool.execute(
            "select pg_terminate_backend(pid) from pg_stat_activity where application_name = 'jobplane election'"
            " and datname = current_database()"
        )
        async with asyncio.timeout(20):
            await lost.wait()
        await stack.enter_async_context(hold_leader_lock(other.store, NAME))


async def test_a_standby_elects_nobody_until_it_is_promoted(
    dsn: str, registry: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    async def stand() -> None:
        async with hold_leader_lock(registry.store, NAME):
            pass

    async with asyncio.timeout(20):
        async with read_only(dsn):
            task = asyncio.create_task(stand())
            while "cannot stand for election" not in caplog.text:  # noqa: ASYNC110 - a log tells nobody
                await asyncio.sleep(0.01)
            assert not task.done()
        await task


async def _waits(registry: Registry) -> None:
    """Until somebody waits for the lock."""
    waiting = "select exists (select from pg_locks where locktype = 'advisory' and not granted)"
    async with asyncio.timeout(20):
        while not await registry.store.pool.fetchval(waiting):
            await registry.store.feed.changed_within(0.02)
