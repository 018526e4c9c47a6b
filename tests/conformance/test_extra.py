"""What follows from the rules of Jobs and CronJobs, and no test of Kubernetes' shows: X1 to X15."""

from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import msgspec
import pytest
from msgspec.structs import replace

from app.controllers.batch.cronjobs import CronJobController
from app.kinds.batch.cronjob import KIND as CRON_JOBS
from app.kinds.batch.cronjob import CronJob
from app.kinds.batch.job import JobStatus
from app.machinery.base import Condition
from app.plans.jobs.cronjob_job import SCHEDULED_AT
from app.plans.jobs.finalizers import TRACKING
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from app.registry.verbs.versions import UpdateOptions
from tests.conformance.played import COMPLETE, FAILED, Play, Running
from tests.controllers.running import events, every, running, settled, until
from tests.registry.examples import JOBS, create, get

IGNORE_42 = {"rules": [{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [42]}}]}
JOBS_PATH = "/apis/batch/v1/namespaces/default/jobs"
CRON_JOBS_PATH = "/apis/batch/v1/namespaces/default/cronjobs"


@pytest.fixture
def play(registry: Registry) -> Play:
    return Play(registry)


NOTHING = pytest.mark.scenario("X1", "completions 0, and parallelism 0")


@NOTHING
@pytest.mark.parametrize("suspend", [False, True], ids=["running", "suspended"])
async def test_x1_a_job_that_wants_nothing_is_complete(play: Play, suspend: bool) -> None:
    await play.submit({"completions": 0, "parallelism": 0, "suspend": suspend})
    async with play.running():
        await play.shows(active=0, succeeded=0, true=COMPLETE, reason="CompletionsReached")
    assert await play.pods() == []
    assert [reason for reason, _ in await events(play.registry)] == ["Completed"]


@NOTHING
async def test_x1_a_job_that_may_do_nothing_never_ends(play: Play) -> None:
    await play.submit({"completions": 1, "parallelism": 0})
    async with play.running() as controllers:
        await play.shows(start_time=play.registry.now())
        controllers.move(days=1)
        await play.still()
        await play.shows(active=0, true=())
    assert await play.pods() == []


@pytest.mark.scenario("X2", "a work queue with a success does not shrink")
async def test_x2_a_work_queue_with_a_success_keeps_its_pods(play: Play) -> None:
    await play.submit({"parallelism": 5})
    async with play.running():
        pods = await play.there_are(5)
        await play.succeed(pods[0])
        await play.shows(active=4, succeeded=1)
        await play.alter({"parallelism": 1})
        await play.still()
        await play.shows(active=4, succeeded=1, true=())


@pytest.mark.scenario("X3", "backoffLimit 0: one container restart is too many")
async def test_x3_without_retries_the_first_restart_fails_the_job(play: Play) -> None:
    await play.submit({"backoffLimit": 0}, pod={"restartPolicy": "OnFailure"})
    async with play.running():
        (pod,) = await play.there_are(1)
        await play.start(pod)
        await play.still()
        await play.shows(active=1, true=())
        await play.start(pod, restarts=1)
        await play.shows(active=0, terminating=1, reason="BackoffLimitExceeded")
        await play.go(pod)
        await play.shows(failed=1, true=FAILED, reason="BackoffLimitExceeded")


RETRIES = pytest.mark.scenario("X4", "backoffLimit 3: three restarts in a pod, or four failed pods")


@RETRIES
async def test_x4_a_job_fails_at_the_third_restart(play: Play) -> None:
    await play.submit({"backoffLimit": 3}, pod={"restartPolicy": "OnFailure"})
    async with play.running():
        (pod,) = await play.there_are(1)
        await play.start(pod, restarts=2)
        await play.still()
        await play.shows(active=1, true=())
        await play.start(pod, restarts=3)
        await play.shows(active=0, reason="BackoffLimitExceeded")


@RETRIES
async def test_x4_a_job_fails_at_the_fourth_failed_pod(play: Play) -> None:
    await play.submit({"backoffLimit": 3})
    async with play.running() as controllers:
        for failed in range(1, 4):
            await play.fail(*await play.there_are(1))
            await play.shows(failed=failed, active=0, true=())
            controllers.move(minutes=1)
        await play.fail(*await play.there_are(1))
        await play.shows(failed=4, active=0, true=FAILED, reason="BackoffLimitExceeded")


@pytest.mark.scenario("X5", "backoffLimit and activeDeadlineSeconds both exceeded: backoffLimit decides")
async def test_x5_too_many_failures_are_told_before_the_deadline(play: Play) -> None:
    await play.submit({"backoffLimit": 0, "activeDeadlineSeconds": 5})
    async with play.running():
        (pod,) = await play.there_are(1)
    await play.fail(pod)
    play.registry.clock.move(seconds=10)
    async with play.running():
        await play.shows(failed=1, true=FAILED, reason="BackoffLimitExceeded")


RESUMED = pytest.mark.scenario("X6", "resume with an old start time")


@RESUMED
async def test_x6_a_resumed_job_starts_when_it_is_resumed(play: Play) -> None:
    await play.submit({"suspend": True, "activeDeadlineSeconds": 60})
    await suspended(play)
    play.registry.clock.move(hours=1)
    await play.alter({"suspend": False})
    async with play.running():
        await play.shows(active=1, start_time=play.registry.now(), reason="JobResumed", true=())


@RESUMED
async def test_x6_another_controller_may_say_so_too(play: Play) -> None:
    await play.submit({"suspend": True, "managedBy": "acme.io/jobs"})
    await suspended(play)
    play.registry.clock.move(hours=1)
    await play.alter({"suspend": False})
    await says(play, start_time=play.registry.now(), conditions=(Condition(type="Suspended", status="False"),))


async def suspended(play: Play) -> None:
    """It has run, and nobody has forgotten since when."""
    await says(play, start_time=play.registry.now(), conditions=(Condition(type="Suspended", status="True"),))


async def says(play: Play, **status: Any) -> None:
    def change(job: Any) -> Any:
        return replace(job, status=JobStatus(**status))

    await objects.edit(play.registry, JOBS, "default", "pi", change, UpdateOptions(status=True))


@pytest.mark.scenario("X7", "DELETE without a propagation policy: the pods live on")
async def test_x7_a_bare_delete_leaves_the_pods(play: Play, admin: httpx.AsyncClient) -> None:
    await play.submit({"parallelism": 2, "completions": 2})
    async with play.running():
        await play.there_are(2)
        answer = await admin.delete(f"{JOBS_PATH}/pi")
        assert answer.status_code == 200
        assert "child pods are preserved by default" in answer.headers["Warning"]
        await until(play.registry, lambda: is_gone(play))
        await play.still()
        pods = await play.active()
    assert [(pod.metadata.owner_references, pod.metadata.finalizers) for pod in pods] == 2 * [((), ())]


async def is_gone(play: Play) -> bool:
    return await play.job() is None


@pytest.mark.scenario("X8", "Job created again under its name: the old pods are not counted")
async def test_x8_a_job_does_not_count_the_pods_of_its_namesake(play: Play) -> None:
    await play.submit({"parallelism": 2, "completions": 2})
    async with play.running():
        old = await play.there_are(2)
        await play.start(*old)
        await play.delete("Background")
        await play.submit()
        (new,) = await play.there_are(1)
        await play.go(*old)
        await play.still()
        await play.shows(active=1, failed=0, succeeded=0, terminating=0)
        await play.succeed(new)
        await play.shows(active=0, failed=0, succeeded=1, true=COMPLETE)


@pytest.mark.scenario("X9", "status with more ready than active pods: refused")
async def test_x9_no_status_has_more_pods_ready_than_active(play: Play, admin: httpx.AsyncClient) -> None:
    await play.submit({"managedBy": "acme.io/jobs"})
    job = (await admin.get(f"{JOBS_PATH}/pi")).json()
    answer = await admin.put(f"{JOBS_PATH}/pi/status", json={**job, "status": {"active": 1, "ready": 2}})
    assert (answer.status_code, answer.json()["reason"]) == (422, "Invalid")
    assert answer.json()["message"] == (
        'Job.batch "pi" is invalid: status.ready: Invalid value: 2: cannot set more ready pods than active'
    )


@pytest.mark.scenario("X10", "ignored failures do not count, but lengthen the back-off")
async def test_x10_ignored_failures_are_retried_after_ever_longer(play: Play) -> None:
    await play.submit({"podFailurePolicy": IGNORE_42, "backoffLimit": 0})
    async with play.running() as controllers:
        for seconds in (10, 20, 40):
            await play.fail(*await play.there_are(1), code=42)
            await waits(play, controllers, seconds)
        await play.shows(failed=0, active=1, true=())


async def waits(play: Play, controllers: Running, seconds: int) -> None:
    """There is a pod when so many seconds have passed, and none before."""
    await play.shows(active=0)
    controllers.move(seconds=seconds - 1)
    await play.still()
    assert await play.active() == []
    controllers.move(seconds=1)
    await play.there_are(1)


# Where Kubernetes writes a status, then frees the pods that it counts, Jobplane does both at once: there is no between.
@pytest.mark.scenario("X11", "controller killed again and again: each pod is counted once")
async def test_x11_each_pod_is_counted_once_whenever_the_controller_dies(play: Play) -> None:
    await play.submit({"parallelism": 6, "completions": 6, "backoffLimit": 6})
    await play.crash()
    pods = await play.there_are(6)
    for count, pod in enumerate(pods[:4], start=1):
        await (play.succeed(pod) if count % 2 else play.fail(pod))
        await play.crash()
        status = (await play.job()).status
        freed = [each for each in await play.pods() if TRACKING not in each.metadata.finalizers]
        assert status.failed + status.succeeded == len(freed) == count
    play.registry.clock.move(minutes=5)
    await play.crash()
    await play.succeed(*await play.there_are(4))
    async with play.running():
        await play.shows(succeeded=6, failed=2, active=0, true=COMPLETE)
        await play.all_are_free()


TTL = pytest.mark.scenario("X12", "TTL: a finished Job is deleted when its TTL ends, its pods first")


@TTL
async def test_x12_without_delay_a_job_goes_after_its_pods(play: Play) -> None:
    await play.submit({"ttlSecondsAfterFinished": 0, "parallelism": 2, "completions": 2})
    async with play.running():
        await play.succeed(*await play.there_are(2))
        await until(play.registry, lambda: is_gone(play))
    assert await play.pods() == []
    assert max(await deaths(play.registry, "pods")) < min(await deaths(play.registry, "jobs"))


async def deaths(registry: Registry, view: str) -> list[int]:
    rows = await registry.store.pool.fetch(f"select revision from {view}_history where change = 'D'")
    assert rows
    return [row["revision"] for row in rows]


@TTL
@pytest.mark.parametrize(("before", "after"), [(100, 60), (30, 60), (None, 60)], ids=["earlier", "later", "at all"])
async def test_x12_a_finished_job_may_be_told_to_go(play: Play, before: int | None, after: int) -> None:
    await play.submit({"ttlSecondsAfterFinished": before} if before else {})
    async with play.running() as controllers:
        await play.succeed(*await play.there_are(1))
        await play.shows(true=COMPLETE)
        controllers.move(seconds=20)
        await play.alter({"ttlSecondsAfterFinished": after})
        controllers.move(seconds=39)
        await play.still()
        assert await play.job() is not None
        controllers.move(seconds=1)
        await until(play.registry, lambda: is_gone(play))


def manifest(name: str = "often", **spec: Any) -> dict[str, Any]:
    """Of a CronJob, every minute."""
    pods = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
    usual = {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": pods}}}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": name}, "spec": usual | spec}


def a_cron_job(**spec: Any) -> CronJob:
    return msgspec.convert(manifest(**spec), CronJob)


@pytest.mark.scenario("X13", "Forbid, every minute, Jobs of 90 seconds: the missed start follows as soon as possible")
async def test_x13_a_slot_that_had_to_wait_starts_when_the_job_before_ends(play: Play) -> None:
    registry = play.registry
    await create(registry, CRON_JOBS, a_cron_job(concurrencyPolicy="Forbid"))
    async with running(registry, CronJobController) as controllers:
        controllers.move(seconds=60)
        (first,) = await there_are_jobs(registry, 1)
        controllers.move(seconds=60)
        await settled(registry)
        assert len(await every(registry, JOBS)) == 1
        assert [reason for reason, _ in await events(registry)] == ["SuccessfulCreate", "JobAlreadyActive"]

        controllers.move(seconds=30)
        await completes(registry, first.metadata.name)
        jobs = await there_are_jobs(registry, 2)
    assert sorted(job.metadata.annotations[SCHEDULED_AT] for job in jobs) == [
        "2026-07-24T12:01:00Z",
        "2026-07-24T12:02:00Z",
    ]
    cron_job = await get(registry, CRON_JOBS, "often")
    assert cron_job.status.last_schedule_time == datetime(2026, 7, 24, 12, 2, tzinfo=UTC)
    assert cron_job.status.last_successful_time == datetime(2026, 7, 24, 12, 2, 30, tzinfo=UTC)


async def there_are_jobs(registry: Registry, count: int) -> list[Any]:
    async def so() -> bool:
        return len(await every(registry, JOBS)) == count

    await until(registry, so)
    return await every(registry, JOBS)


async def completes(registry: Registry, name: str) -> None:
    now = registry.now()
    ends = tuple(Condition(type=each, status="True", last_transition_time=now) for each in COMPLETE)
    status = JobStatus(start_time=now - timedelta(seconds=90), completion_time=now, conditions=ends, succeeded=1)
    await objects.edit(
        registry, JOBS, "default", name, lambda job: replace(job, status=status), UpdateOptions(status=True)
    )


@pytest.mark.scenario("X14", "CronJob names have at most 52 characters")
async def test_x14_the_name_of_a_cron_job_leaves_room_for_a_minute(admin: httpx.AsyncClient) -> None:
    fits = await admin.post(CRON_JOBS_PATH, json=manifest(52 * "n"))
    too_long = await admin.post(CRON_JOBS_PATH, json=manifest(53 * "n"))

    assert (fits.status_code, too_long.status_code) == (201, 422)
    assert too_long.json()["message"] == (
        f'CronJob.batch "{53 * "n"}" is invalid: metadata.name: Invalid value: "{53 * "n"}": '
        "must be no more than 52 characters"
    )


DAYS = pytest.mark.scenario("X15", "cron: days of the week, and of the month")


@DAYS
async def test_x15_a_week_has_no_day_seven(admin: httpx.AsyncClient) -> None:
    answer = await admin.post(CRON_JOBS_PATH, json=manifest(schedule="0 0 * * 7"))
    assert (answer.status_code, answer.json()["message"]) == (
        422,
        'CronJob.batch "often" is invalid: spec.schedule: Invalid value: "0 0 * * 7": '
        "end of range (7) above maximum (6): 7",
    )


@DAYS
async def test_x15_either_day_will_do_if_both_are_named(registry: Registry) -> None:
    await create(registry, CRON_JOBS, a_cron_job(schedule="0 0 13 * 5"))
    async with running(registry, CronJobController) as controllers:
        for number, day in enumerate(("2026-07-31", "2026-08-07", "2026-08-13", "2026-08-14"), start=1):
            midnight = datetime.fromisoformat(f"{day}T00:00:00Z")
            controllers.move(seconds=(midnight - registry.now()).total_seconds() - 1)
            await settled(registry)
            assert len(await every(registry, JOBS)) == number - 1
            controllers.move(seconds=1)
            jobs = await there_are_jobs(registry, number)
            assert f"{day}T00:00:00Z" in [job.metadata.annotations[SCHEDULED_AT] for job in jobs]
