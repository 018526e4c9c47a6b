"""The node controller: a silent node counts as lost, its pods are ended when their toleration is over, and it may return."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.controllers.batch.jobs import JobController
from app.controllers.nodes.node_lifecycle import NodeLifecycleController
from app.controllers.scheduling.scheduler import Scheduler
from app.kinds.core.lease import KIND as LEASES
from app.kinds.core.node import KIND as NODES
from app.kinds.core.node import Taint
from app.kinds.pod.affinity import Toleration
from app.kinds.pod.pod import Pod, condition
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from app.store import Store
from tests.controllers.machines import LEASE_NAMESPACE, a_node, alter, joins, node, ready, renews, taints
from tests.controllers.running import GRACE, Running, events, every, running, settled, until
from tests.registry.examples import JOBS, PODS, a_job, a_pod, create, get, named, read

SECONDS = GRACE.total_seconds()
UNREACHABLE = Toleration(
    key="node.kubernetes.io/unreachable", operator="Exists", effect="NoExecute", toleration_seconds=300
)
LOST = ["unreachable:NoSchedule", "unreachable:NoExecute"]


async def is_ready(registry: Registry, wanted: str, name: str = "n1") -> None:
    async def so() -> bool:
        return ready(await node(registry, name)) == wanted

    await until(registry, so)


async def still(registry: Registry) -> int:
    return await settled(registry, 0.15)


async def lost(registry: Registry, controllers: Running) -> None:
    controllers.move(seconds=SECONDS)
    await is_ready(registry, "Unknown")


async def has_ended(registry: Registry, name: str = "p") -> Pod:
    """The pod's last version."""

    async def gone() -> bool:
        return await get(registry, PODS, name) is None

    await until(registry, gone)
    sql = "select body from history where kind = 'pods' and name = $1 and change = 'D'"
    return read(PODS, await registry.store.pool.fetchval(sql, name))


async def test_a_node_whose_lease_is_renewed_stays_as_it_is(registry: Registry) -> None:
    await joins(registry, a_node())
    before = await node(registry)
    async with running(registry, NodeLifecycleController) as controllers:
        for _ in range(5):
            controllers.move(seconds=SECONDS - 1)
            await renews(registry)
        await still(registry)

    assert await node(registry) == before


async def test_a_silent_node_is_unknown_and_tainted(registry: Registry) -> None:
    await joins(registry, a_node())
    async with running(registry, NodeLifecycleController) as controllers:
        controllers.move(seconds=SECONDS - 1)
        await still(registry)
        assert ready(await node(registry)) == "True"

        controllers.move(seconds=1)
        await is_ready(registry, "Unknown")

    found = await node(registry)
    assert taints(found) == LOST
    assert {each.status for each in found.status.conditions} == {"Unknown"}
    assert {each.reason for each in found.status.conditions} == {"NodeStatusUnknown"}
    assert {each.last_transition_time for each in found.status.conditions} == {registry.clock()}
    assert {each.time_added for each in found.spec.taints} == {registry.clock()}
    assert [reason for reason, _ in await events(registry)] == ["NodeNotReady"]


async def test_times_are_whole_seconds_whatever_the_clock_says(registry: Registry) -> None:
    await joins(registry, a_node())
    registry.clock.move(microseconds=700_000)
    async with running(registry, NodeLifecycleController) as controllers:
        await still(registry)
        controllers.move(seconds=SECONDS)  # the second in which it is over has not ended
        await still(registry)
        assert ready(await node(registry)) == "True"

        controllers.move(microseconds=300_000)
        await is_ready(registry, "Unknown")

    assert {each.time_added.microsecond for each in (await node(registry)).spec.taints} == {0}


class Monotonic:
    """Seconds that are moved by hand, whatever the clock shows."""

    def __init__(self) -> None:
        self.seconds = 1_000.0

    def __call__(self) -> float:
        return self.seconds


@pytest.mark.parametrize("hours", [-1, 1], ids=["back", "forward"])
async def test_a_clock_that_is_set_neither_loses_a_node_nor_keeps_one(
    registry: Registry, store: Store, hours: int
) -> None:
    monotonic = Monotonic()
    registry = Registry(store, registry.clock, monotonic=monotonic)
    await joins(registry, a_node())
    async with running(registry, NodeLifecycleController) as controllers:
        controllers.move(hours=hours)
        monotonic.seconds += SECONDS - 1
        controllers.look_again()
        await still(registry)
        assert ready(await node(registry)) == "True"

        monotonic.seconds += 2
        controllers.move(seconds=1)
        await is_ready(registry, "Unknown")


async def test_a_renewed_lease_brings_the_node_back(registry: Registry) -> None:
    await joins(registry, a_node())
    async with running(registry, NodeLifecycleController) as controllers:
        await lost(registry, controllers)

        await renews(registry)
        await is_ready(registry, "True")

    found = await node(registry)
    assert taints(found) == []
    assert {each.type: each.status for each in found.status.conditions} == {"Ready": "True", "MemoryPressure": "False"}


@pytest.mark.parametrize("how", [pytest.param("labelled", id="labelled"), pytest.param("deleted", id="deleted")])
async def test_a_lease_that_is_only_touched_is_no_sign_of_life(registry: Registry, how: str) -> None:
    await joins(registry, a_node())
    async with running(registry, NodeLifecycleController) as controllers:
        controllers.move(seconds=SECONDS - 1)
        if how == "labelled":
            await objects.edit(registry, LEASES, LEASE_NAMESPACE, "n1", lambda old: named(old, labels={"a": "b"}))
        else:
            await objects.delete(registry, LEASES, LEASE_NAMESPACE, "n1", Demand())

        controllers.move(seconds=1)
        await is_ready(registry, "Unknown")


async def test_a_node_that_never_had_a_lease_is_lost_too(registry: Registry) -> None:
    await create(registry, NODES, a_node())
    async with running(registry, NodeLifecycleController) as controllers:
        await lost(registry, controllers)


async def test_pods_of_a_lost_node_are_ended_when_their_toleration_is_over(registry: Registry) -> None:
    await joins(registry, a_node())
    await create(registry, PODS, a_pod(node_name="n1", tolerations=(UNREACHABLE,)))
    async with running(registry, NodeLifecycleController) as controllers:
        await lost(registry, controllers)
        controllers.move(seconds=299)
        await still(registry)
        assert await get(registry, PODS, "p")

        controllers.move(seconds=1)
        pod = await has_ended(registry)

    assert (pod.status.phase, pod.status.reason) == ("Failed", "NodeLost")
    target = condition(pod.status.conditions, "DisruptionTarget")
    assert (target.status, target.reason) == ("True", "DeletionByTaintManager")


async def test_a_node_that_returns_in_time_keeps_its_pods(registry: Registry) -> None:
    await joins(registry, a_node())
    await create(registry, PODS, a_pod(node_name="n1", tolerations=(UNREACHABLE,)))
    async with running(registry, NodeLifecycleController) as controllers:
        await lost(registry, controllers)
        controllers.move(seconds=200)
        await renews(registry)
        await is_ready(registry, "True")
        for _ in range(10):
            controllers.move(seconds=SECONDS - 1)
            await renews(registry)
        await still(registry)

    assert (await get(registry, PODS, "p")).status.phase == "Pending"


async def test_a_renewal_that_the_controller_has_not_seen_yet_keeps_the_pods(registry: Registry) -> None:
    await joins(registry, a_node())
    await create(registry, PODS, a_pod(node_name="n1", tolerations=(UNREACHABLE,)))
    async with running(registry, NodeLifecycleController) as controllers:
        await lost(registry, controllers)
        await still(registry)
        controllers.mirror.is_paused = True
        await renews(registry)
        controllers.move(seconds=300)
        await still(registry)
        assert (await get(registry, PODS, "p")).metadata.deletion_timestamp is None

        controllers.mirror.is_paused = False
        await is_ready(registry, "True")
        await still(registry)

    assert (await get(registry, PODS, "p")).metadata.deletion_timestamp is None


async def test_another_process_that_comes_to_act_brings_no_lost_node_back(registry: Registry) -> None:
    await joins(registry, a_node())
    await create(registry, PODS, a_pod(node_name="n1", tolerations=(UNREACHABLE,)))
    async with running(registry, NodeLifecycleController) as controllers:
        await lost(registry, controllers)
    before = await node(registry)
    async with running(registry, NodeLifecycleController) as controllers:
        controllers.move(seconds=299)
        await still(registry)
        assert await node(registry) == before

        controllers.move(seconds=1)
        await has_ended(registry)
        await renews(registry)
        await is_ready(registry, "True")


async def test_a_lease_that_lasts_longer_is_waited_for(registry: Registry) -> None:
    await joins(registry, a_node())
    await renews(registry, lasts=100)
    async with running(registry, NodeLifecycleController) as controllers:
        controllers.move(seconds=109)
        await still(registry)
        assert ready(await node(registry)) == "True"

        controllers.move(seconds=1)
        await is_ready(registry, "Unknown")


async def test_a_pod_that_tolerates_for_ever_stays(registry: Registry) -> None:
    await joins(registry, a_node())
    for_ever = replace(UNREACHABLE, toleration_seconds=None)
    await create(registry, PODS, a_pod(node_name="n1", tolerations=(for_ever,)))
    async with running(registry, NodeLifecycleController) as controllers:
        await lost(registry, controllers)
        controllers.move(days=3)
        await still(registry)

    assert (await get(registry, PODS, "p")).metadata.deletion_timestamp is None


async def test_a_pod_that_was_deleted_on_a_lost_node_goes_when_its_toleration_is_over(registry: Registry) -> None:
    await joins(registry, a_node())
    await create(registry, PODS, a_pod(node_name="n1", tolerations=(UNREACHABLE,)))
    async with running(registry, NodeLifecycleController) as controllers:
        await lost(registry, controllers)
        await objects.delete(registry, PODS, "default", "p", Demand())
        controllers.move(seconds=299)
        await still(registry)
        assert await get(registry, PODS, "p")

        controllers.move(seconds=1)
        await has_ended(registry)


async def test_a_no_execute_taint_ends_who_does_not_tolerate_it(registry: Registry) -> None:
    await joins(registry, a_node())
    await create(registry, PODS, a_pod("p", node_name="n1"))
    bears = Toleration(key="maintenance", operator="Exists")
    await create(registry, PODS, a_pod("stays", node_name="n1", tolerations=(bears,)))
    async with running(registry, NodeLifecycleController) as controllers:
        await alter(registry, "n1", taints=(Taint(key="maintenance", effect="NoExecute"),))

        async def is_going() -> bool:
            return (await get(registry, PODS, "p")).metadata.deletion_timestamp is not None

        await until(registry, is_going)
        controllers.move(seconds=GRACE.total_seconds() - 1)
        await still(registry)

    assert (await get(registry, PODS, "p")).status.phase == "Pending"  # its node has yet to say that it has ended
    assert (await get(registry, PODS, "stays")).metadata.deletion_timestamp is None
    assert taints(await node(registry)) == ["maintenance:NoExecute"]


async def test_other_peoples_taints_stay(registry: Registry) -> None:
    mine = Taint(key="example.com/mine", value="x", effect="NoSchedule")
    await joins(registry, a_node(taints=(mine,)))
    async with running(registry, NodeLifecycleController) as controllers:
        await lost(registry, controllers)
        assert taints(await node(registry)) == ["example.com/mine:NoSchedule", *LOST]
        await renews(registry)
        await is_ready(registry, "True")

    assert (await node(registry)).spec.taints == (mine,)


async def test_pods_of_a_node_that_is_gone_are_ended_after_a_while(registry: Registry) -> None:
    await joins(registry, a_node())
    await create(registry, PODS, a_pod(node_name="n1"))
    async with running(registry, NodeLifecycleController) as controllers:
        await objects.delete(registry, NODES, "", "n1", Demand())
        controllers.move(seconds=49)
        await still(registry)
        assert await get(registry, PODS, "p")

        controllers.move(seconds=1)
        pod = await has_ended(registry)

    assert condition(pod.status.conditions, "DisruptionTarget").reason == "DeletionByPodGC"


async def test_a_job_on_a_node_that_is_lost_goes_on_elsewhere(registry: Registry) -> None:
    """All three controllers: lost, counted, replaced, and placed on the node that is left."""
    await joins(registry, a_node("n1"))
    tolerations = (replace(UNREACHABLE, toleration_seconds=60),)
    job = a_job()
    template = replace(job.spec.template, spec=replace(job.spec.template.spec, tolerations=tolerations))
    await create(registry, JOBS, replace(job, spec=replace(job.spec, template=template)))
    async with running(registry, NodeLifecycleController, JobController, Scheduler) as controllers:

        async def placed(name: str) -> bool:
            return [pod.spec.node_name for pod in await every(registry, PODS)] == [name]

        await until(registry, lambda: placed("n1"))
        await joins(registry, a_node("n2"))
        await lost(registry, controllers)
        for _ in range(4):
            await renews(registry, "n2")
            controllers.move(seconds=30)
        await until(registry, lambda: placed("n2"))
        await still(registry)

    status: Any = (await get(registry, JOBS, "pi")).status
    assert (status.active, status.failed) == (1, 1)
