"""Numbers of the controllers: what is in the mirror, queues, the scheduler, and who leads."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta

import pytest

from app.client.protocol import StatusReport
from app.controllers.manager import NAME, NodeSettings, new_mirror, run
from app.controllers.metrics import state as state_metrics
from app.controllers.metrics.state import StateMetrics
from app.kinds.core.namespace import Namespace
from app.kinds.pod.pod import PodStatus
from app.machinery.base import ObjectMeta
from app.registry.agents.status_reports import accept
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from tests.conftest import Clock
from tests.controllers.machines import a_node, joins
from tests.controllers.running import every, until
from tests.controllers.scheduling.test_scheduler import a_pod_requesting
from tests.metrics.promtool import check_metrics
from tests.metrics.test_registry import samples
from tests.registry.examples import JOBS, NAMESPACES, PODS, a_job, create

SUCCEEDED = PodStatus(phase="Succeeded")


async def scrape(registry: Registry) -> dict[str, float]:
    return samples(await registry.metrics.render())


@asynccontextmanager
async def leading(registry: Registry) -> AsyncIterator[None]:
    """All controllers of a process that is elected."""
    task = asyncio.create_task(run(registry, nodes=NodeSettings(grace=timedelta(seconds=40))))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def wait_for(registry: Registry, **wanted: float) -> dict[str, float]:
    """The first scrape with these values."""

    seen: dict[str, float] = {}

    async def holds() -> bool:
        seen.clear()
        seen.update(await scrape(registry))
        return {name: seen.get(SERIES[name]) for name in wanted} == wanted

    try:
        await until(registry, holds)
    except AssertionError:
        assert {name: seen.get(SERIES[name]) for name in wanted} == wanted  # says what differs
    return seen


SERIES = {
    "leader": f'leader_election_master_status{{name="{NAME}"}}',
    "active": 'kube_job_status_active{namespace="default"}',
    "succeeded": 'kube_job_status_succeeded{namespace="default"}',
    "complete": 'kube_job_complete{namespace="default",condition="true"}',
    "failed": 'kube_job_failed{namespace="default",condition="true"}',
    "suspended": 'jobplane_jobs_suspended{namespace="default"}',
    "jobs": 'jobplane_jobs{namespace="default"}',
    "pods_pending": 'kube_pod_status_phase{namespace="default",phase="Pending"}',
    "pods_succeeded": 'kube_pod_status_phase{namespace="default",phase="Succeeded"}',
    "unschedulable": 'scheduler_pending_pods{queue="unschedulable"}',
    "bound": "scheduler_pod_scheduling_sli_duration_seconds_count",
    "job_queue": 'workqueue_depth{name="job-controller"}',
    "job_objects": 'apiserver_resource_objects{group="batch",resource="jobs"}',
}


async def test_a_job_is_counted_from_its_pods_to_its_end(registry: Registry, clock: Clock) -> None:
    await joins(registry, a_node())
    async with leading(registry):
        await create(registry, JOBS, a_job())
        await create(registry, JOBS, a_job("later", suspend=True))
        found = await wait_for(registry, leader=1, active=1, jobs=2, suspended=1, pods_pending=1, bound=1)
        assert found['scheduler_schedule_attempts_total{result="scheduled",profile="default-scheduler"}'] == 1
        (pod,) = await every(registry, PODS)
        clock.move(seconds=30)
        report = StatusReport(namespace="default", name=pod.metadata.name, uid=pod.metadata.uid, status=SUCCEEDED)
        assert [each.code for each in await accept(registry, PODS, [report], lambda _: True)] == [200]
        found = await wait_for(
            registry, active=0, succeeded=1, complete=1, failed=0, pods_pending=0, pods_succeeded=1, job_queue=0
        )

    ended = 'job_controller_jobs_finished_total{completion_mode="NonIndexed",result="succeeded",reason="CompletionsReached"}'
    assert found[ended] == 1
    assert found['job_controller_job_pods_finished_total{result="succeeded"}'] == 1
    assert found['jobplane_job_duration_seconds_sum{result="succeeded"}'] == 30
    assert found[SERIES["job_objects"]] == 2
    for name in (
        "workqueue_adds_total",
        "workqueue_queue_duration_seconds_count",
        "workqueue_work_duration_seconds_count",
    ):
        assert found[f'{name}{{name="job-controller"}}'] > 2


async def test_nodes_and_their_resources_are_counted(registry: Registry) -> None:
    await joins(registry, a_node())
    await joins(registry, a_node("n2", unschedulable=True))
    async with leading(registry):
        await create(registry, PODS, a_pod_requesting("p", cpu="500m"))
        await wait_for(registry, bound=1)
        await create(registry, PODS, a_pod_requesting("large", cpu="64"))  # nothing happens after it that might help
        found = await wait_for(registry, unschedulable=1)
        text = (await registry.metrics.render()).decode()

    assert found['jobplane_nodes{ready="true"}'] == 2
    assert found["jobplane_nodes_cordoned"] == 1
    assert found['kube_node_status_condition{node="n1",condition="Ready",status="true"}'] == 1
    assert found['kube_node_status_condition{node="n1",condition="Ready",status="unknown"}'] == 0
    assert found['kube_node_status_condition{node="n1",condition="MemoryPressure",status="false"}'] == 1
    assert found['jobplane_cluster_allocatable{resource="cpu",unit="core"}'] == 4
    assert found['jobplane_cluster_requested{resource="cpu",unit="core"}'] == 0.5
    assert found['jobplane_cluster_allocatable{resource="memory",unit="byte"}'] == 8 << 30
    check_metrics(text)


async def test_who_no_longer_leads_says_nothing_of_the_state(registry: Registry) -> None:
    async with leading(registry):
        await create(registry, JOBS, a_job(suspend=True))
        await wait_for(registry, leader=1, jobs=1)
    found = await scrape(registry)

    assert found[SERIES["leader"]] == 0
    assert not [name for name in found if name.startswith(("kube_", "scheduler_pending", "jobplane_jobs"))]


async def test_what_is_deleted_counts_no_more(registry: Registry) -> None:
    mirror = new_mirror()
    StateMetrics(registry.metrics, mirror)
    await create(registry, JOBS, a_job(suspend=True))
    await registry.store.fill(mirror)
    assert (await scrape(registry))[SERIES["jobs"]] == 1
    await objects.delete(registry, JOBS, "default", "pi", Demand(propagation="Background"))

    async def gone() -> bool:
        found = await scrape(registry)
        return SERIES["jobs"] not in found and SERIES["suspended"] not in found and found[SERIES["job_objects"]] == 0

    await until(registry, gone)
    registry.store.feed.leave(mirror.apply)


async def test_there_are_series_for_so_many_namespaces(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_metrics, "MOST_NAMESPACES", 2)
    for name in ("a", "b", "c", "d"):
        await create(registry, NAMESPACES, Namespace(metadata=ObjectMeta(name=name)))
        await objects.create(registry, JOBS, name, a_job(suspend=True))
    mirror = new_mirror()
    StateMetrics(registry.metrics, mirror)
    await registry.store.fill(mirror)
    found = {name: value for name, value in (await scrape(registry)).items() if name.startswith("jobplane_jobs{")}
    registry.store.feed.leave(mirror.apply)

    assert sorted(found.values()) == [1, 1, 2]
    assert found['jobplane_jobs{namespace=""}'] == 2
