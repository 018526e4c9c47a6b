"""The Job controller on a real database: exact pods and exact counts, from whatever state it plans and however many plan."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from msgspec.structs import replace

from app.controllers.garbage import GarbageController
from app.controllers.jobs import JobController
from app.kinds.pod import Pod
from app.registry import objects
from app.registry.deletion import Demand
from app.registry.objects import Registry
from app.registry.reports import Report, accept
from app.plans.template import TRACKING
from app.store import open_store
from tests.conftest import Clock
from tests.controllers.running import Running, events, every, running, settled, until
from tests.registry.examples import JOBS, PODS, a_job, create, get

Keep = Callable[[list[Pod]], bool]


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
        Report(
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


async def test_a_job_runs_to_its_end(registry: Registry) -> None:
    await create(registry, JOBS, a_job(parallelism=2, completions=3))
    async with running(registry, JobController):
        for _ in range(2):
            await until(registry, lambda: pods(registry, "Pending"))
            await settled(registry, 0.1)
            await ends(registry, await pods(registry, "Pending"), "Succeeded")
        await status_is(registry, succeeded=3, active=0)

    job = await get(registry, JOBS, "pi")
    assert [each.type for each in job.status.conditions] == ["SuccessCriteriaMet", "Complete"]
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
        running_both = (first, second)

        async def done() -> bool:
            await ends(registry, await pods(registry, "Pending"), "Succeeded")
            return bool((await get(registry, JOBS, "pi")).status.completion_time)

        async with asyncio.timeout(60):
            while not await done():
                await until_some_wait(registry, running_both)
        await settled(registry)

    status = (await get(registry, JOBS, "pi")).status
    assert (status.succeeded, status.failed, status.active) == (50, 0, 0)
    assert Counter(pod.status.phase for pod in await pods(registry)) == {"Succeeded": 50}
    assert (await versions(registry, "pods"))["A"] == 50
    created = [message for reason, message in await events(registry) if reason == "SuccessfulCreate"]
    assert len(created) == len(set(created))
    await counts_only_rose(registry)


async def until_some_wait(registry: Registry, both: tuple[Running, ...]) -> None:
    for each in both:
        each.move(seconds=1)
    await registry.store.feed.changed_within(0.2)


async def counts_only_rose(registry: Registry) -> None:
    sql = "select coalesce(object->'status'->>'succeeded', '0')::int as n from jobs_history order by revision"
    counts = [row["n"] for row in await registry.store.pool.fetch(sql)]
    assert counts == sorted(counts)


@pytest.mark.parametrize(
    ("change", "active"),
    [
        pytest.param("a pod ended", 3, id="after a pod ended"),
        pytest.param("pods were created", 3, id="after the pods were created"),
        pytest.param("scaled down", 1, id="after the Job was scaled down"),
    ],
)
async def test_a_stale_copy_leads_to_refusals_and_nothing_else(
    registry: Registry, other: Registry, change: str, active: int
) -> None:
    await create(registry, JOBS, a_job(parallelism=3, completions=9))
    async with running(registry, JobController) as stale:
        if change != "pods were created":
            await there_are(registry, 3)
            await status_is(registry, active=3)
        stale.mirror.held_back = True
        if change == "pods were created":
            stale.mirror.held_back = False
    async with running(registry, JobController) as stale:
        await settled(registry, 0.1)
        stale.mirror.held_back = True
        await meddle(registry, other, change)
        await settled(registry, 0.1)
        before = await versions(registry, "pods"), await versions(registry, "jobs")

        stale.look_again()
        stale.runners[0].look_at(await key_of_job())
        for _ in range(8):
            stale.move(seconds=10)
            stale.look_again()
            await settled(registry, 0.05)
        assert (await versions(registry, "pods"), await versions(registry, "jobs")) == before

        stale.mirror.held_back = False
        stale.move(seconds=60)
        stale.look_again()
        await status_is(registry, active=active)
        await settled(registry, 0.1)
    await counts_are_exact(registry)


async def key_of_job() -> Any:
    from app.registry.codec import key_of  # noqa: PLC0415

    return key_of(JOBS, "default", "pi")
