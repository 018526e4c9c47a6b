"""The Job controller on a real database: exact pods and exact counts, from whatever state it plans and however many plan."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import pytest
from msgspec.structs import replace

from app.client.protocol import StatusReport
from app.controllers.batch.jobs import JobController
from app.controllers.garbage_collection.garbage_collector import GarbageCollector
from app.controllers.manager import new_mirror
from app.kinds.pod.pod import Pod
from app.machinery.base import OwnerReference
from app.plans.jobs.finalizers import TRACKING
from app.plans.plan import Create
from app.registry.admission.admission import NamespaceLocks
from app.registry.agents.status_reports import accept
from app.registry.codec import key_of
from app.registry.verbs import objects
from app.registry.verbs.binding import bound
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from app.store import open_store
from tests.conftest import Clock
from tests.controllers.running import Running, events, every, held_copy, running, settled, until
from tests.registry.examples import JOBS, NAMESPACES, PODS, a_job, a_pod, create, example, get, named


@pytest.fixture
async def other(dsn: str, clock: Clock) -> AsyncIterator[Registry]:
    """A second process."""
    async with open_store(dsn) as store:
        yield Registry(store, clock)


async def pods(registry: Registry, phase: str = "") -> list[Pod]:
    return [pod for pod in await every(registry, PODS) if not phase or pod.status.phase == phase]


async def there_are(registry: Registry, count: int, phase: str = "") -> None:
    async def so() -> bool:
        return len(await pods(registry, phase)) == count

    await until(registry, so)


async def status_is(registry: Registry, name: str = "pi", **wanted: Any) -> None:
    async def so() -> bool:
        status = (await get(registry, JOBS, name)).status
        return all(getattr(status, field) == value for field, value in wanted.items())

    await until(registry, so)


async def ends(registry: Registry, chosen: list[Pod], phase: str) -> None:
    """As the agent says it, after a scheduler has put the pods somewhere."""
    for pod in chosen:
        await objects.rewrite(registry, PODS, "default", pod.metadata.name, on_node)
    reports = [
        StatusReport(
            namespace="default",
            name=pod.metadata.name,
            uid=pod.metadata.uid,
            status=replace(pod.status, phase=phase),
        )
        for pod in chosen
    ]
    outcomes = await accept(registry, PODS, reports, lambda _: True)
    assert [each.code for each in outcomes] == [200] * len(chosen)


def on_node(pod: Any) -> Pod:
    return pod if pod.spec.node_name else replace(pod, spec=replace(pod.spec, node_name="n1"))


async def versions(registry: Registry, view: str) -> Counter[str]:
    rows = await registry.store.pool.fetch(f"select change, count(*) as n from {view}_history group by change")
    return Counter({row["change"]: row["n"] for row in rows})


async def test_a_job_gets_its_pods(registry: Registry) -> None:
    job = await create(registry, JOBS, a_job(parallelism=3, completions=5))

    async with running(registry, JobController):
        await there_are(registry, 3)
        await status_is(registry, active=3)

    for pod in await pods(registry):
        meta = pod.metadata
        assert meta.name.startswith("pi-")
        assert meta.labels["batch.kubernetes.io/job-name"] == "pi"
        assert [(each.kind, each.uid, each.controller) for each in meta.owner_references] == [
            ("Job", job.metadata.uid, True)
        ]
        assert meta.finalizers == (TRACKING,)
        assert (meta.generation, pod.status.phase, pod.status.qos_class) == (1, "Pending", "BestEffort")


def test_a_job_is_looked_at_for_its_pods_but_not_when_they_get_nodes(clock: Clock) -> None:
    controller = JobController(new_mirror(), NamespaceLocks())
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="pi", uid="1", controller=True)
    pod = named(a_pod(), owner_references=(owner,), finalizers=(TRACKING,))
    pod = replace(pod, status=replace(pod.status, phase="Pending"))
    key, on_n1 = key_of(PODS, "default", "p"), bound(pod, "n1", clock())

    def jobs(before: Pod | None, now: Pod | None) -> list[str]:
        return [each.name for each in controller.on_event(key, before, now)]

    assert jobs(pod, on_n1) == []
    running = replace(on_n1, status=replace(on_n1.status, phase="Running"))
    deleted = replace(on_n1, metadata=replace(pod.metadata, deletion_timestamp=clock()))
    untracked = replace(on_n1, metadata=replace(pod.metadata, finalizers=()))
    for before, now in ((None, pod), (on_n1, running), (pod, running), (pod, deleted), (pod, untracked), (on_n1, None)):
        assert jobs(before, now) == ["pi"]


async def test_pods_get_names_that_no_other_pod_has(registry: Registry) -> None:
    """Of 50,000 random names, 87 are there twice: each was a refused write, and a wait after it."""
    await create(registry, PODS, a_pod("pi-aaaaa"))
    await create(registry, JOBS, a_job(parallelism=3, completions=3))
    mirror = await held_copy(registry)
    suffixes = iter(("aaaaa", "bbbbb", "bbbbb", "ccccc", "aaaaa", "ddddd"))
    controller = JobController(mirror, NamespaceLocks(), random_name=lambda prefix: prefix + next(suffixes))

    (work,) = controller.reconcile(key_of(JOBS, "default", "pi"), registry.now())

    created = [each.object.metadata for each in work.plan.actions if isinstance(each, Create)]
    assert [each.name for each in created if each.generate_name] == ["pi-bbbbb", "pi-ccccc", "pi-ddddd"]


async def test_a_job_runs_to_its_end(registry: Registry) -> None:
    await create(registry, JOBS, a_job(parallelism=2, completions=3))
    async with running(registry, JobController):
        for _ in range(2):
            await until(registry, lambda: pods(registry, "Pending"))
            await settled(registry, 0.1)
            await ends(registry, await pods(registry, "Pending"), "Succeeded")
        await status_is(registry, succeeded=3, active=0)

    job = await get(registry, JOBS, "pi")
    assert [each.type for each in job.status.conditions] == ["SuccessCriteriaMet", "Finished", "Complete"]
    assert all(not pod.metadata.finalizers for pod in await pods(registry))
    assert Counter(reason for reason, _ in await events(registry)) == {"SuccessfulCreate": 3, "Completed": 1}


async def test_a_failed_pod_is_counted_and_replaced_after_a_while(registry: Registry) -> None:
    await create(registry, JOBS, a_job(parallelism=1, completions=1, backoff_limit=1))
    async with running(registry, JobController) as controllers:
        await there_are(registry, 1)
        await ends(registry, await pods(registry), "Failed")
        await status_is(registry, failed=1, active=0)
        assert len(await pods(registry)) == 1

        controllers.move(seconds=30)
        await status_is(registry, failed=1, active=1)
        await ends(registry, await pods(registry, "Pending"), "Failed")
        await status_is(registry, failed=2, active=0)

    job = await get(registry, JOBS, "pi")
    assert (job.status.conditions[-1].type, job.status.conditions[-1].reason) == ("Failed", "BackoffLimitExceeded")


async def test_fifty_pods_with_two_controllers_at_once(registry: Registry, other: Registry) -> None:
    """Nothing but the preconditions keeps the two apart."""
    async with running(registry, JobController) as first, running(other, JobController) as second:
        await create(registry, JOBS, a_job(parallelism=10, completions=50))
        await finishes(registry, first, second)
        await settled(registry)

    status = (await get(registry, JOBS, "pi")).status
    assert (status.succeeded, status.failed, status.active) == (50, 0, 0)
    assert Counter(pod.status.phase for pod in await pods(registry)) == {"Succeeded": 50}
    assert (await versions(registry, "pods"))["A"] == 50
    created = [message for reason, message in await events(registry) if reason == "SuccessfulCreate"]
    assert len(created) == len(set(created))
    await counts_only_rose(registry)


async def counts_only_rose(registry: Registry) -> None:
    sql = "select coalesce(object->'status'->>'succeeded', '0')::int as n from jobs_history order by revision"
    counts = [row["n"] for row in await registry.store.pool.fetch(sql)]
    assert counts == sorted(counts)


async def ended_pod(registry: Registry) -> None:
    async with running(registry, JobController):
        await there_are(registry, 3)
        await settled(registry, 0.1)
    await ends(registry, (await pods(registry))[:1], "Succeeded")


async def wanted_fewer(registry: Registry) -> None:
    async with running(registry, JobController):
        await there_are(registry, 3)
        await settled(registry, 0.1)
    await scaled(registry, 1)


async def nothing_yet(_: Registry) -> None:
    """The Job is there, and none of its pods."""


async def scaled(registry: Registry, parallelism: int) -> None:
    def change(job: Any) -> Any:
        return replace(job, spec=replace(job.spec, parallelism=parallelism))

    await objects.edit(registry, JOBS, "default", "pi", change)


async def nothing_more(_: Registry) -> None:
    """Only the other controller acts."""


async def scaled_down(registry: Registry) -> None:
    await scaled(registry, 1)


@pytest.mark.parametrize(
    ("seen", "meanwhile", "active"),
    [
        pytest.param(nothing_yet, nothing_more, 3, id="another has created the pods"),
        pytest.param(nothing_yet, scaled_down, 1, id="fewer pods are wanted by now"),
        pytest.param(ended_pod, nothing_more, 3, id="another has counted a pod and replaced it"),
        pytest.param(wanted_fewer, nothing_more, 1, id="another has deleted what was too many"),
    ],
)
async def test_what_is_planned_from_a_stale_copy_is_refused(
    registry: Registry, other: Registry, seen: Any, meanwhile: Any, active: int
) -> None:
    await create(registry, JOBS, a_job(parallelism=3, completions=9))
    await seen(registry)
    copy = await held_copy(registry)
    await meanwhile(registry)
    async with running(other, JobController):
        await status_is(registry, active=active)
        await registry.store.feed.reach(await settled(other, 0.2))
        before = await written(registry)

        async with running(registry, JobController, copy=copy) as stale:
            for _ in range(3):  # refused, again and again
                await settled(registry, 0.1)
                stale.move(seconds=10)
            await settled(registry, 0.1)
            assert stale.runners[0]._failures
            assert await written(registry) == before

            copy.is_paused = False
            stale.move(seconds=60)
            await status_is(registry, active=active)
            await finishes(registry, stale)
        await settled(registry)
    status = (await get(registry, JOBS, "pi")).status
    assert (status.succeeded, status.failed, status.active) == (9, 0, 0)
    assert Counter(pod.status.phase for pod in await pods(registry)) == {"Succeeded": 9}
    await counts_only_rose(registry)


async def written(registry: Registry) -> tuple[Counter[str], Counter[str], int]:
    return await versions(registry, "pods"), await versions(registry, "jobs"), len(await events(registry))


async def finishes(registry: Registry, *controllers: Running) -> None:
    """Lets pods succeed until the Job is complete."""
    async with asyncio.timeout(60):
        while not (await get(registry, JOBS, "pi")).status.completion_time:
            alive = [pod for pod in await pods(registry, "Pending") if pod.metadata.deletion_timestamp is None]
            await ends(registry, alive, "Succeeded")
            for each in controllers:
                each.move(seconds=1)
            await registry.store.feed.changed_within(0.2)


async def test_a_deleted_pod_is_counted_as_failed_and_replaced(registry: Registry) -> None:
    await create(registry, JOBS, a_job(parallelism=1, completions=1))
    async with running(registry, JobController) as controllers:
        await there_are(registry, 1)
        (pod,) = await pods(registry)
        await objects.delete(registry, PODS, "default", pod.metadata.name, Demand())

        await status_is(registry, failed=1)
        controllers.move(seconds=30)
        await status_is(registry, failed=1, active=1)

    (new,) = await pods(registry)
    assert new.metadata.uid != pod.metadata.uid


async def test_a_job_in_a_namespace_that_is_going_is_left_alone(registry: Registry) -> None:
    """It is about to be deleted as well."""
    await create(registry, NAMESPACES, named(example(NAMESPACES), name="going"))
    await create(registry, JOBS, a_job(metadata={"namespace": "going"}))
    await objects.delete(registry, NAMESPACES, "", "going", Demand())

    async with running(registry, JobController) as controllers:
        await settled(registry)
        assert controllers.runners[0]._failures == {}
    assert await pods(registry) == []


class TestDeletingAJob:
    """With the garbage collector: what becomes of the pods."""

    @pytest.fixture(autouse=True)
    async def two_pods(self, registry: Registry) -> AsyncIterator[None]:
        await create(registry, JOBS, a_job(parallelism=2, completions=2))
        async with running(registry, JobController, GarbageCollector):
            await there_are(registry, 2)
            await settled(registry, 0.1)
            yield

    async def delete(self, registry: Registry, propagation: Any) -> None:
        await objects.delete(registry, JOBS, "default", "pi", Demand(propagation=propagation))

    async def test_in_the_background_the_pods_go_after_it(self, registry: Registry) -> None:
        await self.delete(registry, "Background")
        assert await get(registry, JOBS, "pi") is None

        await there_are(registry, 0)

    async def test_running_pods_lose_the_finalizer_and_have_their_grace(self, registry: Registry) -> None:
        for pod in await pods(registry):
            await objects.rewrite(registry, PODS, "default", pod.metadata.name, on_node)

        await self.delete(registry, "Background")

        async def going() -> bool:
            return all(pod.metadata.deletion_timestamp and not pod.metadata.finalizers for pod in await pods(registry))

        await until(registry, going)
        await settled(registry, 0.1)
        assert {pod.metadata.deletion_grace_period_seconds for pod in await pods(registry)} == {30}
        await gone(registry)
        await there_are(registry, 0)

    async def test_orphaned_the_pods_stay_without_an_owner(self, registry: Registry) -> None:
        await self.delete(registry, "Orphan")

        async def over() -> bool:
            return await get(registry, JOBS, "pi") is None

        await until(registry, over)
        await settled(registry, 0.1)
        left = await pods(registry)
        assert len(left) == 2
        for pod in left:
            assert pod.metadata.owner_references == ()
            assert pod.metadata.finalizers == ()
            assert pod.metadata.deletion_timestamp is None

    async def test_in_the_foreground_it_waits_for_its_pods(self, registry: Registry) -> None:
        for pod in await pods(registry):
            await objects.rewrite(registry, PODS, "default", pod.metadata.name, on_node)

        await self.delete(registry, "Foreground")
        await settled(registry)
        job = await get(registry, JOBS, "pi")
        assert job.metadata.finalizers == ("foregroundDeletion",)
        assert len(await pods(registry)) == 2
        assert all(pod.metadata.deletion_timestamp for pod in await pods(registry))

        await gone(registry)

        async def over() -> bool:
            return await get(registry, JOBS, "pi") is None

        await until(registry, over)
        assert await pods(registry) == []


async def gone(registry: Registry) -> None:
    """As the agent says it when the containers have ended."""
    reports = [
        StatusReport(
            namespace="default",
            name=pod.metadata.name,
            uid=pod.metadata.uid,
            status=replace(pod.status, phase="Failed"),
            gone=True,
        )
        for pod in await pods(registry)
    ]
    await accept(registry, PODS, reports, lambda _: True)


async def test_a_finished_job_goes_with_its_pods_when_its_time_has_come(registry: Registry) -> None:
    async with running(registry, JobController, GarbageCollector):
        await create(registry, JOBS, a_job(ttl_seconds_after_finished=0))
        await there_are(registry, 1)
        await ends(registry, await pods(registry), "Succeeded")

        async def so() -> bool:
            return not await every(registry, JOBS) and not await every(registry, PODS)

        await until(registry, so)
