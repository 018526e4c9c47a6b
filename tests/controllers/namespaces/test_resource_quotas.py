"""Quotas, on a real database: counted right from whatever state, never exceeded by Jobs, and released for them."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.controllers.batch.jobs import JobController
from app.controllers.namespaces.resource_quotas import ResourceQuotaController
from app.kinds.core.configmap import KIND as CONFIG_MAPS
from app.kinds.core.configmap import ConfigMap
from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.limitrange import KIND as LIMIT_RANGES
from app.kinds.core.limitrange import LimitRange
from app.kinds.core.resourcequota import KIND as QUOTAS
from app.kinds.core.resourcequota import ResourceQuota
from app.kinds.core.service import KIND as SERVICES
from app.kinds.core.service import Service
from app.kinds.pod.pod import Pod, is_terminal
from app.machinery.base import ObjectMeta
from app.machinery.errors import ApiError
from app.plans.admission.refusals import ANNOTATION
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from app.store import Mirror, open_store
from tests.conftest import Clock
from tests.controllers.batch.test_jobs import ends, on_node, pods, status_is, there_are
from tests.controllers.running import events, every, held_copy, running, settled, until
from tests.registry.examples import JOBS, PODS, a_job, a_pod, create, get


@pytest.fixture
async def other(dsn: str, clock: Clock) -> AsyncIterator[Registry]:
    """A second process."""
    async with open_store(dsn) as store:
        yield Registry(store, clock)


def a_quota(name: str = "q", **hard: Any) -> ResourceQuota:
    limits = {key.replace("_", "/"): str(value) for key, value in hard.items()}
    return msgspec.convert({"metadata": {"name": name}, "spec": {"hard": limits}}, ResourceQuota)


async def used_is(registry: Registry, name: str = "q", **wanted: Any) -> None:
    amounts = {key.replace("_", "/"): str(value) for key, value in wanted.items()}

    async def so() -> bool:
        status = (await get(registry, QUOTAS, name)).status
        return bool(status.used == amounts)

    await until(registry, so)


async def living(registry: Registry) -> list[Pod]:
    return [pod for pod in await pods(registry) if not is_terminal(pod)]


async def failures(registry: Registry) -> list[str]:
    return [message for reason, message in await events(registry) if reason == "FailedCreate"]


async def test_a_new_quota_counts_what_there_is(registry: Registry) -> None:
    await create(registry, PODS, a_pod("a"))
    await create(registry, CONFIG_MAPS, ConfigMap(metadata=ObjectMeta(name="c")))
    await create(registry, QUOTAS, a_quota(pods=5, configmaps=3, **{"count/jobs.batch": 1, "requests.cpu": 4}))

    async with running(registry, ResourceQuotaController):
        await used_is(registry, pods=1, configmaps=1, **{"count/jobs.batch": 0, "requests.cpu": 0})

    assert (await get(registry, QUOTAS, "q")).status.hard["configmaps"] == "3"


async def test_node_ports_of_services_are_counted_and_limited(registry: Registry) -> None:
    def service(name: str, type_: str) -> Service:
        ports = [{"port": 80}]
        return msgspec.convert({"metadata": {"name": name}, "spec": {"type": type_, "ports": ports}}, Service)

    limited, balancers = "services.nodeports", "services.loadbalancers"
    await create(registry, SERVICES, service("a", "NodePort"))
    await create(registry, QUOTAS, a_quota(**{limited: 2, balancers: 1}))

    async with running(registry, ResourceQuotaController):
        await used_is(registry, **{limited: 1, balancers: 0})
        await create(registry, SERVICES, service("b", "ClusterIP"))
        await create(registry, SERVICES, service("c", "LoadBalancer"))
        with pytest.raises(ApiError, match="exceeded quota: q"):
            await create(registry, SERVICES, service("d", "NodePort"))
        await used_is(registry, **{limited: 2, balancers: 1})
        await objects.delete(registry, SERVICES, "default", "c", Demand())
        await used_is(registry, **{limited: 1, balancers: 0})


async def test_a_quota_made_while_it_runs_counts_what_there_is(registry: Registry) -> None:
    await create(registry, PODS, a_pod("a"))
    async with running(registry, ResourceQuotaController):
        await create(registry, QUOTAS, a_quota(pods=5))
        await used_is(registry, pods=1)
        await create(registry, QUOTAS, a_quota("r", count_pods=5, resourcequotas=9))
        await used_is(registry, "r", count_pods=1, resourcequotas=2)


async def test_what_is_deleted_is_released(registry: Registry) -> None:
    async with running(registry, ResourceQuotaController):
        await create(registry, QUOTAS, a_quota(pods=5, configmaps=1))
        await used_is(registry, pods=0, configmaps=0)
        await create(registry, PODS, a_pod("a"))
        await create(registry, CONFIG_MAPS, ConfigMap(metadata=ObjectMeta(name="c")))
        await used_is(registry, pods=1, configmaps=1)

        await objects.delete(registry, PODS, "default", "a", Demand())
        await objects.delete(registry, CONFIG_MAPS, "default", "c", Demand())
        await used_is(registry, pods=0, configmaps=0)


async def test_what_has_ended_is_released_but_still_an_object(registry: Registry) -> None:
    async with running(registry, ResourceQuotaController):
        await create(registry, QUOTAS, a_quota(pods=5, count_pods=5))
        await used_is(registry, pods=0, count_pods=0)
        await create(registry, PODS, a_pod("a"))
        await ends(registry, await pods(registry), "Succeeded")

        await used_is(registry, pods=0, count_pods=1)


async def test_what_is_going_counts_until_it_should_long_be_gone(registry: Registry) -> None:
    async with running(registry, ResourceQuotaController) as controllers:
        await create(registry, QUOTAS, a_quota(pods=5))
        await used_is(registry, pods=0)
        await create(registry, PODS, a_pod("a"))
        await objects.rewrite(registry, PODS, "default", "a", on_node)
        await objects.delete(registry, PODS, "default", "a", Demand())
        await settled(registry)
        await used_is(registry, pods=1)

        controllers.move(seconds=90)
        await used_is(registry, pods=0)


async def test_other_limits_are_counted_anew(registry: Registry) -> None:
    async with running(registry, ResourceQuotaController):
        await create(registry, QUOTAS, a_quota(pods=5))
        await used_is(registry, pods=0)
        await create(registry, PODS, a_pod("a"))
        wanted = a_quota(count_pods=2).spec
        await objects.edit(registry, QUOTAS, "default", "q", lambda old: replace(old, spec=wanted))

        await used_is(registry, count_pods=1)


async def test_what_somebody_garbled_is_put_right_in_time(registry: Registry) -> None:
    async with running(registry, ResourceQuotaController) as controllers:
        await create(registry, QUOTAS, a_quota(pods=5))
        await used_is(registry, pods=0)
        wrong = {"pods": "4"}
        await objects.rewrite(
            registry, QUOTAS, "default", "q", lambda old: replace(old, status=replace(old.status, used=wrong))
        )
        await settled(registry)
        assert (await get(registry, QUOTAS, "q")).status.used == wrong

        controllers.move(minutes=6)
        await used_is(registry, pods=0)


async def test_a_job_gets_only_the_pods_that_fit_and_the_others_as_those_end(registry: Registry) -> None:
    await create(registry, QUOTAS, a_quota(pods=2))
    async with running(registry, ResourceQuotaController, JobController):
        await used_is(registry, pods=0)
        await create(registry, JOBS, a_job(parallelism=4, completions=5))
        for done in (0, 2, 4):
            await status_is(registry, active=min(2, 5 - done), succeeded=done)
            await used_is(registry, pods=min(2, 5 - done))
            assert len(await living(registry)) == min(2, 5 - done)
            await ends(registry, await living(registry), "Succeeded")
        await status_is(registry, active=0, succeeded=5)
        await used_is(registry, pods=0)

    job = await get(registry, JOBS, "pi")
    assert ANNOTATION not in job.metadata.annotations
    (message,) = await failures(registry)  # the clock stands still
    assert message.startswith('Error creating: pods "pi-')
    why = "exceeded quota: q, requested: pods=1, used: pods=2, limited: pods=2"
    assert message.endswith(f'" is forbidden: {why}; tried again as soon as the quota has room')


async def test_a_refusal_is_told_again_after_a_while(registry: Registry) -> None:
    await create(registry, QUOTAS, a_quota(pods=0))
    async with running(registry, ResourceQuotaController, JobController) as controllers:
        await used_is(registry, pods=0)
        await create(registry, JOBS, a_job())
        for count, seconds in ((1, 1), (2, 2), (3, 4)):

            async def told(count: int = count) -> bool:
                said = [each for each in await every(registry, EVENTS) if each.reason == "FailedCreate"]
                return sum(max(each.count, 1) for each in said) == count

            await until(registry, told)
            controllers.move(seconds=seconds)


@pytest.mark.parametrize("change", ["more is allowed", "the quota is gone", "the limit range is gone"])
async def test_a_job_goes_on_when(change: str, registry: Registry) -> None:
    sizes = {"type": "Pod", "max": {"cpu": "1"}}
    if change == "the limit range is gone":
        made = msgspec.convert({"metadata": {"name": "sizes"}, "spec": {"limits": [sizes]}}, LimitRange)
        await create(registry, LIMIT_RANGES, made)
    else:
        await create(registry, QUOTAS, a_quota(pods=0))
    async with running(registry, ResourceQuotaController, JobController):
        await settled(registry)
        await create(registry, JOBS, a_job())
        await until(registry, lambda: failures(registry))
        assert await pods(registry) == []

        if change == "more is allowed":
            await objects.edit(registry, QUOTAS, "default", "q", lambda old: replace(old, spec=a_quota(pods=1).spec))
        elif change == "the quota is gone":
            await objects.delete(registry, QUOTAS, "default", "q", Demand())
        else:
            await objects.delete(registry, LIMIT_RANGES, "default", "sizes", Demand())
        await there_are(registry, 1)


async def test_many_jobs_and_clients_at_once_never_exceed_a_quota(registry: Registry, other: Registry) -> None:
    """Two processes act at the same time, one of them as if it had not been told for a while."""
    await create(registry, QUOTAS, a_quota(pods=7))
    async with running(registry, ResourceQuotaController):
        await used_is(registry, pods=0)
    for n in range(6):
        await create(registry, JOBS, a_job(f"job-{n}", parallelism=3, completions=3))
    stale: Mirror = await held_copy(other)

    async with running(registry, ResourceQuotaController, JobController), running(other, JobController, copy=stale):
        clients = [create(each, PODS, a_pod(f"p-{n}-{each is other}")) for n in range(3) for each in (registry, other)]
        outcomes = await asyncio.gather(*clients, return_exceptions=True)
        assert all(isinstance(each, Pod | ApiError) for each in outcomes)
        stale.is_paused = False
        await settled(registry, 0.5)

        assert len(await living(registry)) == 7
        await used_is(registry, pods=7)

    jobs = await every(registry, JOBS)
    owned = [pod for pod in await pods(registry) if pod.metadata.owner_references]
    assert sum(job.status.active for job in jobs) == len(owned)
