"""Jobs that wait for others, on a real database: the end of one starts the next, also if it is deleted at once."""

import pytest
from msgspec.structs import replace

from app.controllers.batch.job_dependents import JobDependents
from app.controllers.batch.jobs import JobController
from app.kinds.batch.job import Job, is_true
from app.kinds.batch.job_annotations import AFTER
from app.machinery.base import Condition
from app.machinery.errors import ApiError
from app.plans.jobs.dependencies import CONDITION
from app.registry.codec import key_of
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from tests.controllers.batch.test_jobs import ends, pods
from tests.controllers.running import held_copy, running, until
from tests.registry.examples import JOBS, a_job, create, get


def a_waiting_job(name: str, after: str) -> Job:
    return a_job(name, {"annotations": {AFTER: after}})


async def becomes(registry: Registry, name: str, condition: str) -> None:
    async def so() -> bool:
        return is_true(await get(registry, JOBS, name), condition)

    await until(registry, so)


async def waits(registry: Registry, name: str) -> None:
    async def so() -> bool:
        return any(each.type == CONDITION for each in (await get(registry, JOBS, name)).status.conditions)

    await until(registry, so)


async def test_the_end_of_a_job_starts_those_that_wait_for_it(registry: Registry) -> None:
    await create(registry, JOBS, a_waiting_job("last", "middle"))
    await create(registry, JOBS, a_waiting_job("middle", "pi:any"))
    async with running(registry, JobController):
        await waits(registry, "last")
        await waits(registry, "middle")
        assert await pods(registry) == []
        await create(registry, JOBS, a_job(backoff_limit=0))
        for phase in ("Failed", "Succeeded", "Succeeded"):
            await until(registry, lambda: pods(registry, "Pending"))
            await ends(registry, await pods(registry, "Pending"), phase)
        await becomes(registry, "last", "Complete")
    assert is_true(await get(registry, JOBS, "pi"), "Failed")
    assert is_true(await get(registry, JOBS, "middle"), "Complete")


async def test_the_last_job_of_a_cycle_fails_and_so_do_the_others(registry: Registry) -> None:
    async with running(registry, JobController):
        await create(registry, JOBS, a_waiting_job("a", "b"))
        await waits(registry, "a")
        await create(registry, JOBS, a_waiting_job("b", "a"))
        await becomes(registry, "b", "Failed")
        await becomes(registry, "a", "Failed")


async def test_a_job_that_ended_and_is_gone_at_once_counts_as_it_ended(registry: Registry) -> None:
    """The controller hears of both before it reconciles the Job that waits."""
    waiting = await create(registry, JOBS, a_waiting_job("next", "pi"))
    dependents = JobDependents(await held_copy(registry))
    dependents.rebuild()
    key, next_key, find = key_of(JOBS, "default", "pi"), key_of(JOBS, "default", "next"), dependents.find_in("default")
    job = a_job()
    done = replace(job, status=replace(job.status, conditions=(Condition(type="Complete", status="True"),)))

    assert list(dependents.on_event(key, None, job)) == [next_key]
    assert list(dependents.on_event(key, job, job)) == []
    assert list(dependents.on_event(key, job, done)) == [next_key]
    assert list(dependents.on_event(key, done, None)) == [next_key]
    assert find("pi") == done
    dependents.on_event(next_key, waiting, None)
    assert find("pi") is None


async def test_a_job_that_waits_for_itself_is_refused(registry: Registry) -> None:
    with pytest.raises(ApiError) as refused:
        await create(registry, JOBS, a_waiting_job("a", "a"))
    assert refused.value.code == 422
    assert f"metadata.annotations[{AFTER}]" in refused.value.message


async def test_the_record_of_a_job_that_is_gone_decides_after_a_restart(registry: Registry) -> None:
    """No controllers ran when the awaited Jobs ended, nor when they were deleted."""
    for awaited, waiting in (("good", "after-good"), ("bad", "after-bad"), ("lost", "after-lost")):
        await create(registry, JOBS, a_job(awaited, suspend=True))
        await create(registry, JOBS, a_waiting_job(waiting, awaited))
    async with running(registry, JobController):
        for waiting in ("after-good", "after-bad", "after-lost"):
            await waits(registry, waiting)
    for name, ended in (("good", "Complete"), ("bad", "Failed")):
        condition = Condition(type=ended, status="True", reason="Why")
        await objects.rewrite(registry, JOBS, "default", name, lambda job, each=condition: with_status(job, (each,)))
    for name in ("good", "bad", "lost"):
        await objects.delete(registry, JOBS, "default", name, Demand(propagation="Background"))

    async with running(registry, JobController):
        await becomes(registry, "after-good", CONDITION)
        for waiting, why in (
            ("after-bad", "Job bad failed (Why)"),
            ("after-lost", "Job lost was deleted before it ended"),
        ):
            await becomes(registry, waiting, "Failed")
            job = await get(registry, JOBS, waiting)
            assert job.status.conditions[-1].message == f"Job can never start: {why}"


def with_status(job: Job, conditions: tuple[Condition, ...]) -> Job:
    return replace(job, status=replace(job.status, conditions=conditions))
