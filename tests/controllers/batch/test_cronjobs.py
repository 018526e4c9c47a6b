"""The CronJob controller on a real database: every slot is started, late or in time, and none twice."""

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.controllers.batch.cronjobs import CronJobController
from app.controllers.batch.jobs import JobController
from app.controllers.garbage_collection.garbage_collector import GarbageCollector
from app.controllers.namespaces.resource_quotas import ResourceQuotaController
from app.kinds.batch.cronjob import KIND as CRON_JOBS
from app.kinds.batch.cronjob import CronJob
from app.kinds.batch.cronjob_validation import CATCH_UP
from app.kinds.batch.job import Job
from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.resourcequota import KIND as QUOTAS
from app.kinds.core.resourcequota import ResourceQuota
from app.plans.admission.refusals import ANNOTATION
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from app.store import open_store
from tests.conftest import Clock
from tests.controllers.batch.test_jobs import ends, pods, versions
from tests.controllers.running import Running, events, every, held_copy, running, settled, until
from tests.registry.examples import JOBS, NAMESPACES, create, example, get, named

SLOT = 29_748_240  # the minute in which all tests begin: noon


@pytest.fixture
async def other(dsn: str, clock: Clock) -> AsyncIterator[Registry]:
    """A second process."""
    async with open_store(dsn) as store:
        yield Registry(store, clock)


def a_cron_job(
    name: str = "tick", schedule: str = "* * * * *", job: dict[str, Any] | None = None, **spec: Any
) -> CronJob:
    """As a client sends it."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
    wanted = {"schedule": schedule, "jobTemplate": {"spec": {"template": template, **(job or {})}}, **spec}
    return msgspec.convert({"metadata": {"name": name}, "spec": wanted}, CronJob)


async def jobs(registry: Registry) -> list[Job]:
    return sorted(await every(registry, JOBS), key=lambda job: job.metadata.name)


async def slots(registry: Registry) -> list[int]:
    """Those of all Jobs, in minutes since noon."""
    return [int(job.metadata.name.rpartition("-")[2]) - SLOT for job in await jobs(registry)]


async def slots_are(registry: Registry, *wanted: int) -> None:
    async def so() -> bool:
        return await slots(registry) == [*wanted]

    await until(registry, so)


async def active(registry: Registry) -> list[str]:
    return [each.name for each in (await get(registry, CRON_JOBS, "tick")).status.active]


async def active_are(registry: Registry, count: int) -> None:
    async def so() -> bool:
        return len(await active(registry)) == count

    await until(registry, so)


async def edit(registry: Registry, **spec: Any) -> None:
    await objects.edit(registry, CRON_JOBS, "default", "tick", lambda old: replace(old, spec=replace(old.spec, **spec)))


async def deleted(registry: Registry, job: Job) -> None:
    await objects.delete(registry, JOBS, "default", job.metadata.name, Demand(propagation="Background"))


async def job_ends(registry: Registry, phase: str = "Succeeded") -> None:
    """All its pods do, of each Job that runs."""
    await until(registry, lambda: pods(registry, "Pending"))
    await settled(registry, 0.1)
    await ends(registry, await pods(registry, "Pending"), phase)


async def minute(registry: Registry, controllers: Running, count: int = 1) -> None:
    """And all that comes of it."""
    for _ in range(count):
        controllers.move(minutes=1)
        await settled(registry, 0.1)


async def test_every_slot_gets_its_job(registry: Registry) -> None:
    cron_job = await create(registry, CRON_JOBS, a_cron_job(schedule="*/2 * * * *"))
    async with running(registry, CronJobController) as controllers:
        for wanted in ([], [2], [2], [2, 4]):
            await minute(registry, controllers)
            await slots_are(registry, *wanted)

    job, _ = await jobs(registry)
    assert [(each.kind, each.uid, each.controller) for each in job.metadata.owner_references] == [
        ("CronJob", cron_job.metadata.uid, True)
    ]
    assert job.metadata.annotations == {"batch.kubernetes.io/cronjob-scheduled-timestamp": "2026-07-24T12:02:00Z"}
    assert job.spec.completions == 1
    assert job.spec.selector
    assert job.spec.selector.match_labels == {"batch.kubernetes.io/controller-uid": job.metadata.uid}
    status = (await get(registry, CRON_JOBS, "tick")).status
    assert [(each.name, each.uid) for each in status.active] == [
        (each.metadata.name, each.metadata.uid) for each in await jobs(registry)
    ]
    assert status.last_schedule_time == registry.clock.now


async def test_a_slot_is_started_once_whoever_starts_after_it(registry: Registry) -> None:
    await create(registry, CRON_JOBS, a_cron_job())
    for wanted in ([1], [1, 2]):
        registry.clock.move(minutes=1)
        for _ in range(2):
            async with running(registry, CronJobController):
                await slots_are(registry, *wanted)
                await settled(registry, 0.1)
        assert await slots(registry) == wanted


async def test_of_all_that_was_missed_while_nobody_looked_the_last_is_started(registry: Registry) -> None:
    await create(registry, CRON_JOBS, a_cron_job())
    registry.clock.move(hours=3)

    async with running(registry, CronJobController):
        await slots_are(registry, 180)
        await settled(registry, 0.1)

    assert [reason for reason, _ in await events(registry)] == [
        "TooManyMissedTimes",
        "SuccessfulCreate",
        "SkippedSchedule",
    ]


def catching_up(policy: str, **spec: Any) -> CronJob:
    cron_job = a_cron_job(**spec)
    return replace(cron_job, metadata=replace(cron_job.metadata, annotations={CATCH_UP: policy}))


async def explained(registry: Registry) -> dict[str, int]:
    """How often each reason was given."""
    found = Counter[str]()
    for each in await every(registry, EVENTS):
        found[each.reason] += max(each.count, 1)
    return dict(found)


async def test_all_that_was_missed_is_started_in_order_across_restarts(registry: Registry) -> None:
    """More than fit into one plan, and more than a hundred minutes ago."""
    await create(registry, CRON_JOBS, catching_up("all", schedule="*/5 * * * *", startingDeadlineSeconds=3600))
    registry.clock.move(hours=3)
    for _ in range(2):
        async with running(registry, CronJobController):
            await slots_are(registry, *range(120, 181, 5)[1:])
            await settled(registry, 0.1)

    told = await explained(registry)
    assert (told["SuccessfulCreate"], told["StartedLate"], told["SkippedSchedule"]) == (12, 11, 1)
    assert "TooManyMissedTimes" not in told


async def test_all_that_was_missed_runs_one_after_the_other_under_forbid(registry: Registry) -> None:
    await create(registry, CRON_JOBS, catching_up("all", concurrencyPolicy="Forbid"))
    registry.clock.move(minutes=3)
    async with running(registry, CronJobController, JobController):
        for wanted in ([1], [1, 2], [1, 2, 3]):
            await slots_are(registry, *wanted)
            await job_ends(registry)
        await active_are(registry, 0)
        await settled(registry, 0.1)

    assert await slots(registry) == [1, 2, 3]
    assert "SkippedSchedule" not in await explained(registry)


async def test_nothing_that_was_missed_is_started_and_it_is_explained_once(registry: Registry) -> None:
    await create(registry, CRON_JOBS, catching_up("none", schedule="0 * * * *"))
    registry.clock.move(hours=2, minutes=30)
    for _ in range(2):
        async with running(registry, CronJobController) as controllers:
            await settled(registry, 0.1)
            controllers.move(minutes=1)
            await settled(registry, 0.1)
    assert await slots(registry) == []
    text = "Skipped 2 scheduled times (2026-07-24T13:00:00Z, 2026-07-24T14:00:00Z): more than 60s late"
    assert await events(registry) == [("SkippedSchedule", text)]

    registry.clock.move(minutes=28)
    async with running(registry, CronJobController):
        await slots_are(registry, 180)


async def test_a_schedule_that_changed_while_nobody_looked_has_missed_nothing(registry: Registry) -> None:
    await create(registry, CRON_JOBS, catching_up("all", schedule="0 * * * *"))
    async with running(registry, CronJobController):
        await settled(registry, 0.1)
    registry.clock.move(minutes=30)
    await edit(registry, schedule="* * * * *")

    async with running(registry, CronJobController) as controllers:
        await settled(registry, 0.1)
        assert await slots(registry) == []
        controllers.move(minutes=1)
        await slots_are(registry, 31)


async def test_a_hashed_schedule_is_shown_and_kept(registry: Registry) -> None:
    await create(registry, CRON_JOBS, a_cron_job(schedule="H * * * *"))
    async with running(registry, CronJobController) as controllers:

        async def shown() -> str:
            return str((await get(registry, CRON_JOBS, "tick")).metadata.annotations.get("jobplane.dev/schedule", ""))

        schedule = await until(registry, shown)
        minute_of_hour = int(schedule.split()[0])
        assert schedule == f"{minute_of_hour} * * * *"
        controllers.move(minutes=minute_of_hour)
        await slots_are(registry, minute_of_hour)

        await edit(registry, schedule="0 0 1 1 *")

        async def hidden() -> bool:
            return not await shown()

        await until(registry, hidden)


async def test_two_controllers_at_once_never_start_a_slot_twice(registry: Registry, other: Registry) -> None:
    names = [f"tick-{number}" for number in range(20)]
    for name in names:
        await create(registry, CRON_JOBS, a_cron_job(name))
    async with running(registry, CronJobController) as first, running(other, CronJobController) as second:
        for count in range(1, 6):
            first.move(minutes=1)
            second.move(minutes=0)

            async def so(count: int = count) -> bool:
                return len(await jobs(registry)) == 20 * count

            await until(registry, so)
        await settled(registry)
        await other.store.feed.reach(await registry.store.revision())

    assert sorted({job.metadata.name for job in await jobs(registry)}) == sorted(
        f"{name}-{SLOT + count}" for name in names for count in range(1, 6)
    )
    assert (await versions(registry, "jobs"))["A"] == 100
    assert sum(reason == "SuccessfulCreate" for reason, _ in await events(registry)) == 100
    for name in names:
        assert len((await get(registry, CRON_JOBS, name)).status.active) == 5


async def test_what_is_planned_from_a_stale_copy_is_refused(registry: Registry, other: Registry) -> None:
    await create(registry, CRON_JOBS, a_cron_job(concurrencyPolicy="Replace"))
    copy = await held_copy(registry)
    async with running(other, CronJobController) as controllers:
        await minute(other, controllers)
        await slots_are(other, 1)
    (job,) = await jobs(other)

    async with running(registry, CronJobController, copy=copy) as stale:
        for _ in range(3):
            await registry.store.feed.changed_within(0.1)
            stale.move(seconds=1)
        assert stale.runners[0]._failures

        copy.is_paused = False
        stale.move(seconds=10)
        await settled(registry)

    assert [each.metadata.uid for each in await jobs(registry)] == [job.metadata.uid]


async def test_a_job_that_ends_is_seen_at_once(registry: Registry) -> None:
    await create(registry, CRON_JOBS, a_cron_job())
    async with running(registry, CronJobController, JobController) as controllers:
        await minute(registry, controllers)
        await active_are(registry, 1)
        await job_ends(registry)
        await active_are(registry, 0)

    status = (await get(registry, CRON_JOBS, "tick")).status
    assert status.last_successful_time == registry.clock.now
    (job,) = await jobs(registry)
    assert ("SawCompletedJob", f"Saw completed job: {job.metadata.name}, condition: Complete") in await events(registry)


async def test_under_forbid_a_missed_slot_starts_when_the_job_before_ends(registry: Registry) -> None:
    await create(registry, CRON_JOBS, a_cron_job(concurrencyPolicy="Forbid"))
    async with running(registry, CronJobController, JobController) as controllers:
        await minute(registry, controllers, 3)
        assert await slots(registry) == [1]
        await job_ends(registry)
        await slots_are(registry, 1, 3)


async def test_a_job_that_is_deleted_is_missed_at_once(registry: Registry) -> None:
    await create(registry, CRON_JOBS, a_cron_job())
    async with running(registry, CronJobController) as controllers:
        await minute(registry, controllers)
        (job,) = await jobs(registry)
        await deleted(registry, job)
        await active_are(registry, 0)
        await settled(registry, 0.1)

    assert ("MissingJob", f"Active job went missing: {job.metadata.name}") in await events(registry)
    assert await jobs(registry) == []  # its slot was started


async def test_a_changed_schedule_starts_with_its_own_next_slot(registry: Registry) -> None:
    await create(registry, CRON_JOBS, a_cron_job(schedule="0 13 * * *"))
    async with running(registry, CronJobController) as controllers:
        controllers.move(minutes=10)
        await edit(registry, schedule="*/4 * * * *")
        await settled(registry, 0.1)
        assert await slots(registry) == []
        await minute(registry, controllers)
        assert await slots(registry) == []
        await minute(registry, controllers)
        await slots_are(registry, 12)

        await edit(registry, schedule="0 0 1 1 *")
        await minute(registry, controllers, 5)
        assert await slots(registry) == [12]


async def test_another_time_zone_is_another_schedule(registry: Registry) -> None:
    await create(registry, CRON_JOBS, a_cron_job(schedule="35 17 * * *"))
    async with running(registry, CronJobController) as controllers:
        await settled(registry, 0.1)
        await edit(registry, time_zone="Asia/Kolkata")
        await settled(registry, 0.1)
        controllers.move(minutes=5)
        await slots_are(registry, 5)

    (job,) = await jobs(registry)
    scheduled = job.metadata.annotations["batch.kubernetes.io/cronjob-scheduled-timestamp"]
    assert scheduled == "2026-07-24T17:35:00+05:30"


async def test_one_that_is_resumed_starts_the_last_slot_that_it_missed(registry: Registry) -> None:
    await create(registry, CRON_JOBS, a_cron_job(suspend=True))
    async with running(registry, CronJobController) as controllers:
        await minute(registry, controllers, 3)
        assert await slots(registry) == []
        await edit(registry, suspend=False)
        await slots_are(registry, 3)


async def test_nothing_starts_in_a_namespace_that_is_going(registry: Registry) -> None:
    await create(registry, NAMESPACES, named(example(NAMESPACES), name="going"))
    await create(registry, CRON_JOBS, named(a_cron_job(), namespace="going"))
    await objects.delete(registry, NAMESPACES, "", "going", Demand())
    async with running(registry, CronJobController) as controllers:
        await minute(registry, controllers, 2)

    assert await jobs(registry) == []


async def test_with_the_cron_job_go_its_jobs_and_their_pods(registry: Registry) -> None:
    await create(registry, CRON_JOBS, a_cron_job())
    async with running(registry, CronJobController, JobController, GarbageCollector) as controllers:
        await minute(registry, controllers, 2)
        await until(registry, lambda: pods(registry))
        await objects.delete(registry, CRON_JOBS, "default", "tick", Demand())

        async def so() -> bool:
            return not await jobs(registry) and not await pods(registry)

        await until(registry, so)


def a_quota(count: int) -> ResourceQuota:
    return msgspec.convert(
        {"metadata": {"name": "q"}, "spec": {"hard": {"count/jobs.batch": str(count)}}}, ResourceQuota
    )


async def used(registry: Registry) -> str:
    return str((await get(registry, QUOTAS, "q")).status.used.get("count/jobs.batch", ""))


async def used_is(registry: Registry, count: int) -> None:
    async def so() -> bool:
        return await used(registry) == str(count)

    await until(registry, so)


async def test_jobs_are_charged_to_quotas_and_wait_for_room(registry: Registry) -> None:
    await create(registry, QUOTAS, a_quota(1))
    await create(registry, CRON_JOBS, a_cron_job())
    async with running(registry, ResourceQuotaController, CronJobController, GarbageCollector) as controllers:
        await used_is(registry, 0)
        await minute(registry, controllers)
        await slots_are(registry, 1)
        await used_is(registry, 1)

        await minute(registry, controllers)
        assert await slots(registry) == [1]
        assert ("FailedCreate", f"Error creating job: {REFUSAL}") in await events(registry)
        assert ANNOTATION in (await get(registry, CRON_JOBS, "tick")).metadata.annotations

        await deleted(registry, (await jobs(registry))[0])
        await slots_are(registry, 2)
        await used_is(registry, 1)

    assert ANNOTATION not in (await get(registry, CRON_JOBS, "tick")).metadata.annotations


REFUSAL = (
    f'jobs.batch "tick-{SLOT + 2}" is forbidden: '
    "exceeded quota: q, requested: count/jobs.batch=1, used: count/jobs.batch=1, limited: count/jobs.batch=1"
    "; tried again as soon as the quota has room"
)


async def test_a_quota_is_never_exceeded_by_many_at_once(registry: Registry, other: Registry) -> None:
    await create(registry, QUOTAS, a_quota(7))
    for number in range(20):
        await create(registry, CRON_JOBS, a_cron_job(f"tick-{number}"))
    async with (
        running(registry, ResourceQuotaController, CronJobController) as first,
        running(other, CronJobController) as second,
    ):
        await used_is(registry, 0)
        first.move(minutes=1)
        second.move(minutes=0)
        await used_is(registry, 7)
        await settled(registry)

    assert len(await jobs(registry)) == 7


async def test_a_refusal_is_tried_again_after_a_while(registry: Registry) -> None:
    """Also without anything that tells: the pauses grow."""
    longest = {"completionMode": "Indexed", "completions": 1000}
    await create(registry, CRON_JOBS, a_cron_job("t" * 52, job=longest))
    async with running(registry, CronJobController) as controllers:
        controllers.move(minutes=1)
        for count, seconds in ((1, 1), (2, 2), (3, 4)):

            async def told(count: int = count) -> bool:
                said = [each for each in await every(registry, EVENTS) if each.reason == "FailedCreate"]
                return sum(max(each.count, 1) for each in said) == count

            await until(registry, told)
            controllers.move(seconds=seconds)
    assert await jobs(registry) == []
    messages = [message for reason, message in await events(registry) if reason == "FailedCreate"]
    assert {re.search(r"tried again in (\d)s, or as soon as the rules change$", each)[1] for each in messages} == set(
        "124"
    )
    assert all("will not able to create pod with invalid DNS label" in each for each in messages)


async def test_two_thousand_that_are_due_in_the_same_minute(registry: Registry) -> None:
    await create(registry, NAMESPACES, named(example(NAMESPACES), name="many"))
    wanted = [f"tick-{number}" for number in range(2000)]
    await asyncio.gather(*(create(registry, CRON_JOBS, named(a_cron_job(name), namespace="many")) for name in wanted))
    async with running(registry, CronJobController) as controllers:
        controllers.move(minutes=1)

        async def so() -> bool:
            return (await versions(registry, "jobs"))["A"] >= 2000

        await until(registry, so, 120)
        await settled(registry)

    made = await jobs(registry)
    assert sorted(job.metadata.name for job in made) == sorted(f"{name}-{SLOT + 1}" for name in wanted)
    statuses = {each.metadata.name: each.status for each in await every(registry, CRON_JOBS)}
    assert {len(status.active) for status in statuses.values()} == {1}
    assert {status.last_schedule_time for status in statuses.values()} == {registry.clock.now}
