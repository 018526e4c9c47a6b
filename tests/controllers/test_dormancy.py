"""Finished Jobs and their pods are not in the controllers' memory; whatever concerns them happens all the same."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import pytest
from msgspec.structs import replace

from app.controllers.batch.cronjobs import CronJobController
from app.controllers.batch.job_expiry import EXPIRY
from app.controllers.batch.jobs import JobController
from app.controllers.garbage_collection.garbage_collector import GarbageCollector
from app.controllers.manager import new_mirror
from app.controllers.metrics.state import StateMetrics
from app.controllers.retention.dormant_objects import DepartedOwners, DormancyMarking
from app.kinds.batch.cronjob import KIND as CRON_JOBS
from app.kinds.core.configmap import KIND as CONFIGMAPS
from app.machinery.base import OwnerReference
from app.plans.admission import refusals
from app.plans.jobs.dormancy import SHORTEST_TTL
from app.registry.codec import key_of
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from app.store import Mirror
from app.store import mirror as store_mirror
from tests.controllers.batch.test_job_dependents import a_waiting_job
from tests.controllers.batch.test_jobs import ends, pods, status_is
from tests.controllers.running import Running, every, running, settled, until
from tests.metrics.test_registry import samples
from tests.registry.examples import JOBS, NAMESPACES, PODS, a_job, create, example, get, named

TTL = 3600


async def finish(registry: Registry, name: str = "pi", **spec: Any) -> Any:
    """A Job that has run its pod. No controller runs afterwards."""
    await create(registry, JOBS, a_job(name, **spec))
    async with running(registry, JobController):
        await until(registry, lambda: pods(registry, "Pending"))
        await ends(registry, await pods(registry, "Pending"), "Succeeded")
        await status_is(registry, name, succeeded=1)
    return await get(registry, JOBS, name)


def held(mirror: Mirror) -> tuple[int, int]:
    """How many Jobs and pods a mirror holds."""
    return len([*mirror.all(JOBS.resource)]), len([*mirror.all(PODS.resource)])


async def holds(registry: Registry, mirror: Mirror, *, jobs: int, pods: int) -> None:
    async def so() -> bool:
        return held(mirror) == (jobs, pods)

    await until(registry, so)


async def there_are(registry: Registry, *, jobs: int, pods: int) -> None:
    async def so() -> bool:
        return (len(await every(registry, JOBS)), len(await every(registry, PODS))) == (jobs, pods)

    await until(registry, so)


@asynccontextmanager
async def all_of(registry: Registry) -> AsyncIterator[Running]:
    async with running(registry, JobController, GarbageCollector) as made:
        yield made


async def delete(registry: Registry, propagation: Any, name: str = "pi") -> None:
    await objects.delete(registry, JOBS, "default", name, Demand(propagation=propagation))


async def test_a_job_leaves_with_its_pods_when_it_ends(registry: Registry) -> None:
    await create(registry, JOBS, a_job(parallelism=1, completions=2))
    async with all_of(registry) as made:
        await until(registry, lambda: pods(registry, "Pending"))
        await ends(registry, await pods(registry, "Pending"), "Succeeded")
        await status_is(registry, succeeded=1, active=1)
        await holds(registry, made.mirror, jobs=1, pods=2)  # names that a running Job has used are known
        await ends(registry, await pods(registry, "Pending"), "Succeeded")
        await holds(registry, made.mirror, jobs=0, pods=0)

    mirror = new_mirror()
    await registry.store.fill(mirror)
    assert held(mirror) == (0, 0)
    registry.store.feed.leave(mirror.apply)
    await there_are(registry, jobs=1, pods=2)


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_its_pods_go_with_it(registry: Registry, propagation: str) -> None:
    await finish(registry)
    async with all_of(registry):
        await delete(registry, propagation)
        await there_are(registry, jobs=0, pods=0)


@pytest.mark.parametrize("propagation", ["Background", "Foreground"])
async def test_its_pods_go_with_it_though_no_controller_ran_then(registry: Registry, propagation: str) -> None:
    await finish(registry)
    await delete(registry, propagation)
    async with all_of(registry):
        await there_are(registry, jobs=0, pods=0)

    await DepartedOwners(registry.store).run_once(registry.now())
    assert await registry.store.pool.fetch("select uid from departed_owners") == []


async def test_its_pods_stay_if_they_are_orphaned(registry: Registry) -> None:
    await finish(registry)
    async with all_of(registry):
        await delete(registry, "Orphan")
        await there_are(registry, jobs=0, pods=1)
        await settled(registry, 0.1)

    (pod,) = await every(registry, PODS)
    assert pod.metadata.owner_references == ()


async def test_what_it_owns_lives_as_long_as_it(registry: Registry) -> None:
    job = await finish(registry)
    owner = OwnerReference(api_version="batch/v1", kind="Job", name="pi", uid=job.metadata.uid)
    await create(registry, CONFIGMAPS, named(example(CONFIGMAPS), name="mine", owner_references=(owner,)))
    async with all_of(registry) as made:
        await settled(registry, 1.2)  # it is looked for in the database a second later
        assert await get(registry, CONFIGMAPS, "mine") is not None
        assert held(made.mirror) == (1, 0)
        marking = DormancyMarking(registry.store, made.mirror, lambda: True)
        for _ in (JOBS, PODS):
            await marking.run_once(registry.now())
        assert held(made.mirror) == (0, 0)
        await delete(registry, "Background")
        await there_are(registry, jobs=0, pods=0)

        async def gone() -> bool:
            return await get(registry, CONFIGMAPS, "mine") is None

        await until(registry, gone)


async def test_it_goes_when_its_ttl_is_over(registry: Registry) -> None:
    await finish(registry, ttl_seconds_after_finished=TTL)
    async with all_of(registry) as made:
        made.move(seconds=TTL - 1)
        await settled(registry, 0.1)
        assert held(made.mirror) == (0, 0)
        made.move(seconds=1)
        await there_are(registry, jobs=0, pods=0)


async def test_one_timer_serves_all_that_have_a_ttl(registry: Registry) -> None:
    await create(registry, JOBS, a_job(ttl_seconds_after_finished=TTL))
    async with all_of(registry) as made:
        await until(registry, lambda: pods(registry, "Pending"))
        await ends(registry, await pods(registry, "Pending"), "Succeeded")
        await holds(registry, made.mirror, jobs=0, pods=0)
        await settled(registry, 0.1)
        assert [*made.runners[0].delayed.due] == [EXPIRY]


async def set_ttl(registry: Registry, ttl: int | None) -> None:
    def with_ttl(old: Any) -> Any:
        return replace(old, spec=replace(old.spec, ttl_seconds_after_finished=ttl))

    await objects.edit(registry, JOBS, "default", "pi", with_ttl)
    await settled(registry, 0.1)


@pytest.mark.parametrize(("before", "after"), [(None, TTL), (TTL // 2, TTL), (TTL, SHORTEST_TTL - 1)])
async def test_a_ttl_that_is_set_later_is_exact(registry: Registry, before: int | None, after: int) -> None:
    await finish(registry, ttl_seconds_after_finished=before)
    async with all_of(registry) as made:
        await settled(registry, 0.1)
        made.move(seconds=20)
        await set_ttl(registry, after)
        made.move(seconds=after - 21)
        await settled(registry, 0.1)
        await there_are(registry, jobs=1, pods=1)
        made.move(seconds=1)
        await there_are(registry, jobs=0, pods=0)


async def test_a_ttl_that_is_over_when_it_is_set_takes_effect_at_once(registry: Registry) -> None:
    await finish(registry)
    async with all_of(registry) as made:
        made.move(seconds=2 * TTL)
        await set_ttl(registry, TTL)
        await there_are(registry, jobs=0, pods=0)


async def test_without_its_ttl_it_stays(registry: Registry) -> None:
    await finish(registry, ttl_seconds_after_finished=TTL)
    async with all_of(registry) as made:
        await set_ttl(registry, None)
        made.move(seconds=2 * TTL)
        await settled(registry, 0.1)
        await there_are(registry, jobs=1, pods=1)


async def edit_pod(registry: Registry, **metadata: Any) -> None:
    (pod,) = await every(registry, PODS)
    await objects.edit(registry, PODS, "default", pod.metadata.name, lambda old: named(old, **metadata))


async def test_a_pod_that_is_held_for_a_while_leaves_again_with_its_job(registry: Registry) -> None:
    await finish(registry)
    async with all_of(registry) as made:
        await edit_pod(registry, finalizers=("mine/hold",))
        await holds(registry, made.mirror, jobs=1, pods=1)  # the garbage collector has looked for its owner
        await edit_pod(registry, finalizers=())
        await holds(registry, made.mirror, jobs=0, pods=0)


async def test_a_pod_that_belongs_to_nobody_any_more_outlives_its_job(registry: Registry) -> None:
    await finish(registry)
    async with all_of(registry) as made:
        await edit_pod(registry, owner_references=())
        await holds(registry, made.mirror, jobs=0, pods=1)
        await delete(registry, "Background")
        await there_are(registry, jobs=0, pods=1)


async def test_a_job_that_is_given_an_owner_goes_with_it(registry: Registry) -> None:
    await finish(registry)
    owner = await create(registry, CONFIGMAPS, named(example(CONFIGMAPS), name="owner"))
    reference = OwnerReference(api_version="v1", kind="ConfigMap", name="owner", uid=owner.metadata.uid)
    async with all_of(registry) as made:
        await objects.edit(registry, JOBS, "default", "pi", lambda old: named(old, owner_references=(reference,)))
        await holds(registry, made.mirror, jobs=1, pods=0)
        await objects.delete(registry, CONFIGMAPS, "default", "owner", Demand())
        await there_are(registry, jobs=0, pods=0)


async def test_jobs_that_wait_for_it_start(registry: Registry) -> None:
    await finish(registry)
    await create(registry, JOBS, a_waiting_job("next", "pi"))
    async with all_of(registry):
        await until(registry, lambda: pods(registry, "Pending"))
        await ends(registry, await pods(registry, "Pending"), "Succeeded")
        await status_is(registry, "next", succeeded=1)


async def test_a_cronjob_leaves_a_job_of_others_alone_whose_name_it_wants(registry: Registry) -> None:
    due = registry.now().replace(second=0, microsecond=0) + timedelta(minutes=1)
    name = f"every-{int(due.timestamp()) // 60}"
    await finish(registry, name)
    cron_job = named(example(CRON_JOBS), name="every", namespace="default")
    await create(registry, CRON_JOBS, replace(cron_job, spec=replace(cron_job.spec, schedule="* * * * *")))
    async with running(registry, CronJobController) as made:
        await settled(registry, 0.1)
        made.move(seconds=61)
        await settled(registry, 0.1)
        assert [each.metadata.name for each in await every(registry, JOBS)] == [name]
        assert not any(runner._failures for runner in made.runners), "no write was refused"


async def test_what_was_stored_before_there_were_marks_is_marked(registry: Registry) -> None:
    await finish(registry, ttl_seconds_after_finished=TTL)
    marks = "select name, dormant, expires_at from heads where dormant is not null order by name"
    before = await registry.store.pool.fetch(marks)
    await registry.store.pool.execute("update heads set dormant = null, expires_at = null")
    async with all_of(registry) as made:
        assert held(made.mirror) == (1, 1)
        marking = DormancyMarking(registry.store, made.mirror, lambda: True)
        for _ in range(3):
            await marking.run_once(registry.now())
        assert held(made.mirror) == (0, 0)
        assert await registry.store.pool.fetch(marks) == before
        await registry.store.pool.execute("update heads set dormant = null, expires_at = null")
        await marking.prepare()
    assert len(before) == 2
    assert await registry.store.pool.fetch(marks) == before


async def test_metrics_count_it_as_long_as_it_is_there(registry: Registry) -> None:
    await finish(registry)
    mirror = new_mirror()
    metrics = StateMetrics(registry.metrics, mirror)
    await registry.store.fill(mirror)
    await metrics.dormant.read(registry.store)
    try:
        found = samples(await registry.metrics.render())
        assert found['kube_job_complete{namespace="default",condition="true"}'] == 1
        assert found['kube_job_status_succeeded{namespace="default"}'] == 1
        assert found['kube_pod_status_phase{namespace="default",phase="Succeeded"}'] == 1
        assert found['apiserver_resource_objects{group="batch",resource="jobs"}'] == 1
        await delete(registry, "Background")

        async def gone() -> bool:
            found = samples(await registry.metrics.render())
            return found['apiserver_resource_objects{group="batch",resource="jobs"}'] == 0

        await until(registry, gone)
        assert 'jobplane_jobs{namespace="default"}' not in samples(await registry.metrics.render())
    finally:
        registry.store.feed.leave(mirror.apply)


async def test_a_label_of_a_dormant_job_wakes_nobody(registry: Registry) -> None:
    await finish(registry)
    async with all_of(registry) as made:
        await objects.edit(registry, JOBS, "default", "pi", lambda old: named(old, labels={"mine": "now"}))
        await holds(registry, made.mirror, jobs=0, pods=0)
        await objects.edit(registry, JOBS, "default", "pi", lambda old: named(old, finalizers=("mine/hold",)))
        await settled(registry, 0.1)
        assert made.mirror.get(key_of(JOBS, "default", "pi")) is not None
        await objects.edit(registry, JOBS, "default", "pi", lambda old: named(old, finalizers=()))
        await holds(registry, made.mirror, jobs=0, pods=0)


async def test_a_finished_job_waits_for_no_quota(registry: Registry) -> None:
    job = named(await finish(registry), annotations={refusals.ANNOTATION: "{}"})
    namespace = await get(registry, NAMESPACES, "default", namespace="")
    controller = JobController(new_mirror(), registry.admission.locks)
    assert [*controller.on_event(key_of(JOBS, "default", "pi"), None, job)]
    assert [*controller.on_event(key_of(NAMESPACES, "", "default"), None, namespace)] == []


async def test_the_pods_of_a_large_job_leave_some_at_a_time(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_mirror, "AT_ONCE", 2)
    await create(registry, JOBS, a_job(parallelism=5, completions=5))
    async with all_of(registry) as made:
        await until(registry, lambda: pods(registry, "Pending"))
        await ends(registry, await pods(registry, "Pending"), "Succeeded")
        await holds(registry, made.mirror, jobs=1, pods=3)
        assert made.mirror.drain()
        assert held(made.mirror) == (1, 1)
        await delete(registry, "Background")  # those that have left are found
        await there_are(registry, jobs=0, pods=0)
        assert not made.mirror.drain()
