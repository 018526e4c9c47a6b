"""Jobs in a namespace whose Pod Security level refuses their pods: an event with growing pauses, and pods once they may be."""

from msgspec.structs import replace

from app.controllers.batch.jobs import JobController
from app.controllers.batch.refused_objects import Refused
from app.kinds.core.event import KIND as EVENTS
from app.machinery.base import Object
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from app.store import Key
from tests.controllers.running import every, running, settled, until
from tests.registry.examples import JOBS, NAMESPACES, PODS, a_job, create, get, named


async def label(registry: Registry, level: str) -> None:
    def change(old: Object) -> Object:
        return named(old, labels={"pod-security.kubernetes.io/enforce": level})

    await objects.edit(registry, NAMESPACES, "", "default", change)


def of_the_host(**spec: object) -> Object:
    job = a_job(**spec)
    template = job.spec.template
    return replace(job, spec=replace(job.spec, template=replace(template, spec=replace(template.spec, host_pid=True))))


async def failures(registry: Registry) -> list[str]:
    return [each.message for each in await every(registry, EVENTS) if each.reason == "FailedCreate"]


async def test_a_job_whose_pods_are_refused_says_so_and_tries_again_with_pauses(registry: Registry) -> None:
    await label(registry, "baseline")
    await create(registry, JOBS, of_the_host(parallelism=3, completions=3))

    async with running(registry, JobController) as controllers:
        await until(registry, lambda: failures(registry))
        await settled(registry, 0.1)
        (message,) = await failures(registry)
        assert message.startswith('Error creating: pods "pi-')
        assert (
            '" is forbidden: violates PodSecurity "baseline:latest": host namespaces (hostPID=true); '
            "tried again in 1s, or as soon as the rules change" in message
        )
        revision = await registry.revision()
        await settled(registry, 0.3)
        assert await registry.revision() == revision, "nothing is tried before the pause is over"

        controllers.move(seconds=2)
        await until(registry, lambda: _has_more(registry, 1))
        assert not await every(registry, PODS)
        assert (await get(registry, JOBS, "pi")).status.active == 0


async def _has_more(registry: Registry, than: int) -> bool:
    return sum(each.count or 1 for each in await every(registry, EVENTS) if each.reason == "FailedCreate") > than


async def test_the_pods_come_as_soon_as_the_label_allows_them(registry: Registry) -> None:
    await label(registry, "baseline")
    await create(registry, JOBS, of_the_host(parallelism=2, completions=2))

    async with running(registry, JobController):
        await until(registry, lambda: failures(registry))
        await label(registry, "privileged")

        async def are_there() -> bool:
            return len(await every(registry, PODS)) == 2

        await until(registry, are_there)


async def test_a_job_that_may_runs(registry: Registry) -> None:
    await label(registry, "baseline")
    await create(registry, JOBS, a_job(parallelism=2, completions=2))

    async with running(registry, JobController):
        await until(registry, lambda: every(registry, PODS))

    assert not await failures(registry)


async def test_a_namespace_whose_labels_stay_wakes_nobody(registry: Registry) -> None:
    job = of_the_host()
    job = named(job, annotations={"jobplane.dev/refused": "1;2026-01-01T00:00:00Z"}, namespace="default")
    refused = Refused()
    key = JOBS.resource, "default", "pi"
    refused.note(Key(*key), job)
    namespace = await get(registry, NAMESPACES, "default", "")
    other = replace(namespace, metadata=replace(namespace.metadata, annotations={"a": "b"}))
    relabelled = named(namespace, labels={"a": "b"})

    rule = Key(NAMESPACES.resource, "", "default")
    assert list(refused.on_event(rule, namespace, other)) == []
    assert list(refused.on_event(rule, namespace, relabelled)) == [Key(*key)]
    assert list(refused.on_event(Key(NAMESPACES.resource, "", "else"), namespace, relabelled)) == []
