"""K: the end-to-end scenarios of CronJobs. Minutes pass by hand, and the test says what becomes of the pods."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import msgspec
import pytest

from app.controllers.batch.cronjobs import CronJobController
from app.controllers.batch.jobs import JobController
from app.controllers.garbage_collection.garbage_collector import GarbageCollector
from app.kinds.batch.cronjob import KIND as CRON_JOBS
from app.kinds.batch.cronjob import CronJob
from app.kinds.batch.job import Job, is_finished
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from tests.controllers.batch.test_jobs import ends, pods
from tests.controllers.running import Running, events, every, running, settled, until
from tests.registry.examples import JOBS, create, get

CRONJOBS = "/apis/batch/v1/namespaces/default/cronjobs"
MERGE = {"Content-Type": "application/merge-patch+json"}


def manifest(**spec: Any) -> dict[str, Any]:
    """Of one that starts a Job every minute."""
    template = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "busybox"}]}}
    wanted = {"schedule": "*/1 * * * ?", "jobTemplate": {"spec": {"template": template, "backoffLimit": 0}}, **spec}
    return {"apiVersion": "batch/v1", "kind": "CronJob", "metadata": {"name": "tick"}, "spec": wanted}


class Minutes:
    """A CronJob called tick, and time."""

    def __init__(self, registry: Registry) -> None:
        self.registry = registry
        self.controllers: Running | None = None

    async def create(self, **spec: Any) -> None:
        await create(self.registry, CRON_JOBS, msgspec.convert(manifest(**spec), CronJob))

    async def pass_by(self, count: int = 1) -> None:
        """And with each minute all that comes of it."""
        assert self.controllers
        for _ in range(count):
            self.controllers.move(minutes=1)
            await settled(self.registry, 0.2)

    async def active(self) -> list[str]:
        return [each.name for each in (await get(self.registry, CRON_JOBS, "tick")).status.active]

    async def jobs(self, finished: bool | None = None) -> list[str]:
        """Their names, oldest first; if told, only those that have finished, or have not."""
        found: list[Job] = await every(self.registry, JOBS)
        return sorted(job.metadata.name for job in found if finished in (None, is_finished(job)))

    async def becomes(self, claim: Callable[[], Awaitable[Any]], value: Any) -> None:
        async def so() -> bool:
            return bool(await claim() == value)

        await until(self.registry, so)

    async def end(self, phase: str = "Succeeded") -> None:
        """The pods that run do, and with them their Jobs."""
        await until(self.registry, lambda: pods(self.registry, "Pending"))
        await ends(self.registry, await pods(self.registry, "Pending"), phase)
        await self.becomes(lambda: self.jobs(finished=False), [])
        await self.becomes(self.active, [])

    async def pods(self) -> list[str]:
        """The Jobs that still have pods."""
        return sorted(pod.metadata.labels["batch.kubernetes.io/job-name"] for pod in await pods(self.registry))


@pytest.fixture
async def minutes(registry: Registry) -> AsyncIterator[Minutes]:
    made = Minutes(registry)
    async with running(registry, CronJobController, JobController, GarbageCollector) as made.controllers:
        yield made


async def warnings(registry: Registry) -> set[str]:
    return {reason for reason, _ in await events(registry)} & {"MissingJob", "UnexpectedJob"}


@pytest.mark.scenario("K1", "concurrencyPolicy: Allow")
async def test_k01_jobs_may_run_beside_each_other(minutes: Minutes) -> None:
    await minutes.create(concurrencyPolicy="Allow")

    await minutes.pass_by(2)

    assert len(await minutes.active()) == 2
    assert await minutes.jobs(finished=False) == await minutes.active()


@pytest.mark.scenario("K2", "suspend")
async def test_k02_a_suspended_one_starts_nothing(minutes: Minutes) -> None:
    await minutes.create(suspend=True)

    await minutes.pass_by(5)

    assert (await minutes.active(), await minutes.jobs()) == ([], [])


@pytest.mark.scenario("K3", "concurrencyPolicy: Forbid")
async def test_k03_forbid_runs_one_at_a_time(minutes: Minutes) -> None:
    await minutes.create(concurrencyPolicy="Forbid")

    for _ in range(3):
        await minutes.pass_by()
        assert len(await minutes.active()) == 1
        assert await minutes.jobs() == await minutes.active()


@pytest.mark.scenario("K4", "concurrencyPolicy: Replace")
async def test_k04_replace_ends_one_job_for_the_next(minutes: Minutes) -> None:
    await minutes.create(concurrencyPolicy="Replace")
    await minutes.pass_by()
    (first,) = await minutes.active()

    await minutes.pass_by()

    (second,) = await minutes.active()
    assert second != first
    await minutes.becomes(minutes.jobs, [second])
    await minutes.becomes(minutes.pods, [second])


@pytest.mark.scenario("K5", "more than a hundred missed starts")
async def test_k05_a_job_starts_however_many_were_missed(registry: Registry) -> None:
    minutes = Minutes(registry)
    await minutes.create(concurrencyPolicy="Allow")
    registry.clock.move(hours=2)

    async with running(registry, CronJobController):
        await until(registry, minutes.jobs)
        await settled(registry, 0.2)

    assert len(await minutes.active()) == 1
    assert "TooManyMissedTimes" in {reason for reason, _ in await events(registry)}


@pytest.mark.scenario("K6", "no unexpected warnings")
async def test_k06_nothing_unexpected_is_told_of_jobs_that_come_and_end(minutes: Minutes) -> None:
    await minutes.create(concurrencyPolicy="Allow")
    await minutes.pass_by()
    await minutes.end()
    await minutes.pass_by(2)

    assert len(await minutes.jobs()) == 3
    assert len(await minutes.jobs(finished=True)) == 1
    assert await warnings(minutes.registry) == set()


@pytest.mark.scenario("K7", "deletion of an active Job")
async def test_k07_a_deleted_job_leaves_the_active_ones(minutes: Minutes) -> None:
    await minutes.create(concurrencyPolicy="Forbid")
    await minutes.pass_by()
    (name,) = await minutes.active()

    await objects.delete(minutes.registry, JOBS, "default", name, Demand(propagation="Background"))

    await minutes.becomes(minutes.active, [])
    await minutes.becomes(minutes.jobs, [])
    assert ("MissingJob", f"Active job went missing: {name}") in await events(minutes.registry)


async def only_the_last_is_kept(minutes: Minutes, phase: str) -> None:
    for _ in range(2):
        await minutes.pass_by()
        last = await minutes.active()
        await minutes.end(phase)
    await minutes.becomes(lambda: minutes.jobs(finished=True), last)
    await minutes.becomes(minutes.pods, last)


@pytest.mark.scenario("K8", "successfulJobsHistoryLimit")
async def test_k08_successful_jobs_beyond_the_limit_go_with_their_pods(minutes: Minutes) -> None:
    await minutes.create(concurrencyPolicy="Allow", successfulJobsHistoryLimit=1, failedJobsHistoryLimit=0)

    await only_the_last_is_kept(minutes, "Succeeded")


@pytest.mark.scenario("K9", "failedJobsHistoryLimit")
async def test_k09_failed_jobs_beyond_the_limit_go_with_their_pods(minutes: Minutes) -> None:
    await minutes.create(concurrencyPolicy="Allow", successfulJobsHistoryLimit=0, failedJobsHistoryLimit=1)

    await only_the_last_is_kept(minutes, "Failed")


@pytest.mark.scenario("K10", "unknown time zone")
async def test_k10_an_unknown_time_zone_is_invalid(admin: httpx.AsyncClient) -> None:
    answer = await admin.post(CRONJOBS, json=manifest(timeZone="bad-time-zone"))

    said = answer.json()
    assert (answer.status_code, said["reason"]) == (422, "Invalid")
    assert said["message"] == (
        'CronJob.batch "tick" is invalid: spec.timeZone: Invalid value: "bad-time-zone": unknown time zone bad-time-zone'
    )


async def seen(lines: AsyncIterator[str], kind: str, annotation: str = "") -> dict[str, Any]:
    """The object of the next event of this kind; with this annotation, if one is given."""
    async for line in lines:
        event = json.loads(line)
        if event["type"] == kind and (not annotation or annotation in event["object"]["metadata"]["annotations"]):
            found: dict[str, Any] = event["object"]
            return found
    raise AssertionError(f"the watch has ended without {kind}")


@pytest.mark.scenario("K11", "API operations")
async def test_k11_create_get_list_watch_patch_and_update(admin: httpx.AsyncClient) -> None:
    labelled = manifest(suspend=True)
    labelled["metadata"]["labels"] = {"special-label": "k11"}
    made = (await admin.post(CRONJOBS, json=labelled)).raise_for_status().json()
    uid, chosen = made["metadata"]["uid"], {"labelSelector": "special-label=k11"}
    assert (await admin.get(f"{CRONJOBS}/tick")).raise_for_status().json()["metadata"]["uid"] == uid
    for path in (CRONJOBS, "/apis/batch/v1/cronjobs"):
        listed = (await admin.get(path, params=chosen)).raise_for_status().json()
        assert [each["metadata"]["uid"] for each in listed["items"]] == [uid]

    query = {**chosen, "watch": "true", "resourceVersion": made["metadata"]["resourceVersion"], "timeoutSeconds": "30"}
    async with admin.stream("GET", CRONJOBS, params=query) as watch:
        lines = watch.aiter_lines()
        change = {"metadata": {"annotations": {"patched": "true"}}}
        patched = (await admin.patch(f"{CRONJOBS}/tick", json=change, headers=MERGE)).raise_for_status().json()
        assert patched["metadata"]["annotations"] == {"patched": "true"}
        assert (await seen(lines, "MODIFIED", "patched"))["metadata"]["uid"] == uid

        patched["metadata"]["annotations"]["updated"] = "true"
        updated = (await admin.put(f"{CRONJOBS}/tick", json=patched)).raise_for_status().json()
        assert updated["metadata"]["annotations"] == {"patched": "true", "updated": "true"}
        assert (await seen(lines, "MODIFIED", "updated"))["metadata"]["uid"] == uid


@pytest.mark.scenario("K11", "API operations")
async def test_k11_the_status_is_patched_updated_and_read(admin: httpx.AsyncClient) -> None:
    made = (await admin.post(CRONJOBS, json=manifest(suspend=True))).raise_for_status().json()
    path, moment = f"{CRONJOBS}/tick/status", "2026-07-24T11:00:00Z"

    change = {"metadata": {"annotations": {"patchedstatus": "true"}}, "status": {"lastScheduleTime": moment}}
    patched = (await admin.patch(path, json=change, headers=MERGE)).raise_for_status().json()
    assert patched["status"]["lastScheduleTime"] == moment
    assert patched["metadata"]["annotations"] == {"patchedstatus": "true"}

    later = datetime(2026, 7, 24, 11, 30, tzinfo=UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    patched["status"]["lastScheduleTime"] = later
    updated = (await admin.put(path, json=patched)).raise_for_status().json()
    assert updated["status"]["lastScheduleTime"] == later

    got = (await admin.get(path)).raise_for_status().json()
    assert (got["metadata"]["uid"], got["status"]["lastScheduleTime"]) == (made["metadata"]["uid"], later)


@pytest.mark.scenario("K11", "API operations")
async def test_k11_one_or_many_are_deleted(admin: httpx.AsyncClient) -> None:
    (await admin.post(CRONJOBS, json=manifest(suspend=True))).raise_for_status()
    (await admin.delete(f"{CRONJOBS}/tick")).raise_for_status()
    left = await admin.get(f"{CRONJOBS}/tick")
    assert left.status_code == 404 or left.json()["metadata"]["deletionTimestamp"]

    for name in ("tock-1", "tock-2"):
        another = manifest(suspend=True)
        another["metadata"] = {"name": name, "labels": {"special-label": "k11"}}
        (await admin.post(CRONJOBS, json=another)).raise_for_status()
    chosen = {"labelSelector": "special-label=k11"}
    (await admin.delete(CRONJOBS, params=chosen)).raise_for_status()
    assert (await admin.get(CRONJOBS, params=chosen)).raise_for_status().json()["items"] == []
