"""Admission webhooks for what controllers create: changed, refused with an event, and no obstacle for others."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.controllers.batch.cronjobs import CronJobController
from app.controllers.batch.jobs import JobController
from app.kinds.admission.mutating_webhook_configuration import KIND as MUTATING
from app.kinds.admission.validating_webhook_configuration import KIND as VALIDATING
from app.kinds.batch.cronjob import KIND as CRON_JOBS
from app.kinds.core.event import KIND as EVENTS
from app.kinds.core.resourcequota import KIND as QUOTAS
from app.machinery.base import Kind
from app.registry.verbs import deletion, objects
from app.registry.verbs.objects import Registry
from tests.controllers.running import every, running, settled, until
from tests.registry.examples import JOBS, PODS, a_job, create, example
from tests.webhook_server import WebhookServer, a_webhook, patching, serving

SCHEDULER = {"op": "replace", "path": "/spec/schedulerName", "value": "mine"}


@pytest.fixture
async def webhook(registry: Registry) -> AsyncIterator[WebhookServer]:
    async with serving() as made:
        yield made
        registry.admission.webhooks.client.close()


async def configure(
    registry: Registry, kind: Kind, config: dict[str, Any], resource: str = "pods", **fields: Any
) -> None:
    spec = {"metadata": {"name": "c"}, "webhooks": [a_webhook(config, resource, **fields)]}
    await create(registry, kind, msgspec.convert(spec, kind.type))


async def failures(registry: Registry) -> list[str]:
    return [each.message for each in await every(registry, EVENTS) if each.reason == "FailedCreate"]


async def pods_are(registry: Registry, count: int) -> list[Any]:
    async def there() -> list[Any]:
        found = await every(registry, PODS)
        return found if len(found) == count else []

    return await until(registry, there)


async def test_pods_of_a_job_are_changed_and_then_judged(registry: Registry, webhook: WebhookServer) -> None:
    webhook.answer = lambda request: (
        patching(SCHEDULER, {"op": "add", "path": "/metadata/name", "value": "other"})
        if webhook.paths[-1].startswith("/m")
        else {"allowed": request["object"]["spec"]["schedulerName"] == "mine"}
    )
    await configure(registry, MUTATING, webhook.client_config("/m"))
    await configure(registry, VALIDATING, webhook.client_config("/v"))
    await create(registry, JOBS, a_job(parallelism=40, completions=40))

    async with running(registry, JobController):
        pods = await pods_are(registry, 40)

    assert {pod.spec.scheduler_name for pod in pods} == {"mine"}
    assert len({pod.metadata.name for pod in pods}) == 40, "each under its own name"
    seen = {each["object"]["metadata"]["uid"] for each in webhook.requests[-40:]}
    assert seen == {pod.metadata.uid for pod in pods}
    assert webhook.requests[0]["userInfo"]["username"] == "system:serviceaccount:kube-system:job-controller"
    assert webhook.connections <= 32


async def test_a_job_whose_pods_are_refused_says_so_and_tries_again(registry: Registry, webhook: WebhookServer) -> None:
    webhook.answer = lambda _: {"allowed": False, "status": {"message": "not today"}}
    await configure(registry, VALIDATING, webhook.client_config())
    await create(registry, JOBS, a_job(parallelism=3, completions=3))

    async with running(registry, JobController):
        await until(registry, lambda: failures(registry))
        await settled(registry, 0.1)
        assert await failures(registry) == [
            'Error creating: admission webhook "w.example.com" denied the request: not today; '
            "tried again in 1s, or as soon as the rules change"
        ]
        calls = len(webhook.requests)
        await settled(registry, 0.2)
        assert len(webhook.requests) == calls, "nothing is tried before the pause is over"

        await objects.delete(registry, VALIDATING, "", "c", deletion.Demand())
        await pods_are(registry, 3)


async def test_what_webhooks_make_invalid_is_refused(registry: Registry, webhook: WebhookServer) -> None:
    webhook.answer = lambda _: patching({"op": "replace", "path": "/spec/restartPolicy", "value": "Sometimes"})
    await configure(registry, MUTATING, webhook.client_config())
    await create(registry, JOBS, a_job())

    async with running(registry, JobController):
        (message,) = await until(registry, lambda: failures(registry))

    assert 'spec.restartPolicy: Unsupported value: "Sometimes"' in message


async def test_a_webhook_that_hangs_delays_no_other_job(registry: Registry, webhook: WebhookServer) -> None:
    over = asyncio.Event()

    async def answer(_: Any) -> dict[str, Any]:
        await over.wait()
        return {"allowed": True}

    webhook.answer = answer
    await configure(registry, VALIDATING, webhook.client_config(), objectSelector={"matchLabels": {"slow": "yes"}})
    slow = a_job("slow")
    labels = {"labels": {"slow": "yes"}}
    template = msgspec.convert(msgspec.to_builtins(slow.spec.template) | {"metadata": labels}, type(slow.spec.template))
    await create(registry, JOBS, replace(slow, spec=replace(slow.spec, template=template)))

    async with running(registry, JobController):
        async with asyncio.timeout(30):
            while not webhook.requests:  # noqa: ASYNC110 - nothing tells of a call
                await asyncio.sleep(0.01)
        await create(registry, JOBS, a_job("quick"))
        (pod,) = await pods_are(registry, 1)
        assert pod.metadata.name.startswith("quick-")
        over.set()
        await pods_are(registry, 2)


async def test_quotas_count_what_webhooks_made(registry: Registry, webhook: WebhookServer) -> None:
    cpu = {"op": "add", "path": "/spec/containers/0/resources", "value": {"requests": {"cpu": "2"}}}
    webhook.answer = lambda _: patching(cpu)
    await configure(registry, MUTATING, webhook.client_config())
    body = {"metadata": {"name": "q"}, "spec": {"hard": {"pods": "10"}}}
    await create(registry, QUOTAS, msgspec.convert(body, QUOTAS.type))
    await objects.edit(
        registry,
        QUOTAS,
        "default",
        "q",
        lambda old: replace(
            old,
            status=replace(
                old.status, hard={"pods": "10", "requests.cpu": "5"}, used={"pods": "0", "requests.cpu": "0"}
            ),
        ),
        objects.UpdateOptions(status=True),
    )
    await create(registry, JOBS, a_job(parallelism=2, completions=2))

    async with running(registry, JobController):
        await pods_are(registry, 2)

    (quota,) = await every(registry, QUOTAS)
    assert quota.status.used == {"pods": "2", "requests.cpu": "4"}


async def test_the_job_of_a_cronjob_is_changed(registry: Registry, webhook: WebhookServer) -> None:
    webhook.answer = lambda _: patching({"op": "add", "path": "/spec/suspend", "value": True})
    await configure(registry, MUTATING, webhook.client_config(), "jobs")
    cron_job: Any = example(CRON_JOBS)
    spec = replace(cron_job.spec, schedule="* * * * *", time_zone=None)
    await create(registry, CRON_JOBS, replace(cron_job, spec=spec))

    async with running(registry, CronJobController) as controllers:
        controllers.move(seconds=61)
        (job,) = await until(registry, lambda: every(registry, JOBS))

    assert job.spec.suspend is True
