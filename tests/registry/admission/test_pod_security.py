"""Pod Security on a real registry: what creates and updates answer, by the labels of the namespace."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.kinds.batch.cronjob import KIND as CRON_JOBS
from app.kinds.pod.container import Container
from app.kinds.pod.podtemplate import KIND as POD_TEMPLATES
from app.machinery.base import Kind, Object
from app.machinery.errors import ApiError
from app.plans.admission.pod_security import review
from app.plans.admission.pod_security.namespace_policy import PodSecurityConfiguration, default_policy
from app.registry.verbs import objects
from app.registry.verbs.objects import Answer, Registry
from app.registry.verbs.versions import UpdateOptions
from app.store import open_store
from tests.conftest import Clock
from tests.registry.examples import JOBS, NAMESPACES, PODS, a_job, a_pod, example, get, named

ENFORCE = "pod-security.kubernetes.io/enforce"
WARN = "pod-security.kubernetes.io/warn"
FAULT = "host namespaces (hostPID=true)"


async def label(registry: Registry, name: str = "default", **options: Any) -> Answer:
    given = {f"pod-security.kubernetes.io/{key}": value for key, value in options.items() if key != "dry_run"}

    def change(old: Object) -> Object:
        return named(old, labels=given)

    return await objects.edit(
        registry, NAMESPACES, "", name, change, UpdateOptions(dry_run=options.get("dry_run", False))
    )


async def made(registry: Registry, kind: Kind, obj: Object, namespace: str = "default") -> Answer:
    return await objects.create(registry, kind, namespace, obj)


async def refusal(call: Any) -> ApiError:
    with pytest.raises(ApiError) as error:
        await call
    return error.value


async def test_a_pod_that_violates_the_level_is_refused(registry: Registry) -> None:
    await made(registry, PODS, a_pod("before", host_pid=True))
    await label(registry, enforce="baseline")

    error = await refusal(made(registry, PODS, a_pod(host_pid=True)))

    assert (error.code, error.message) == (
        403,
        f'pods "p" is forbidden: violates PodSecurity "baseline:latest": {FAULT}',
    )
    await made(registry, PODS, a_pod())
    await label(registry)
    await made(registry, PODS, a_pod("after", host_pid=True))


async def test_a_dry_run_is_refused_too(registry: Registry) -> None:
    await label(registry, enforce="baseline")

    error = await refusal(objects.create(registry, PODS, "default", a_pod(host_pid=True), dry_run=True))

    assert error.code == 403


async def test_warnings_and_annotations_come_with_the_answer(registry: Registry) -> None:
    await label(registry, warn="baseline", audit="baseline")

    said = await made(registry, PODS, a_pod(host_pid=True))

    text = f'would violate PodSecurity "baseline:latest": {FAULT}'
    assert text in said.warnings
    assert said.audit_annotations == {
        "pod-security.kubernetes.io/enforce-policy": "privileged:latest",
        "pod-security.kubernetes.io/audit-violations": text,
    }


@pytest.mark.parametrize("kind", [JOBS, CRON_JOBS, POD_TEMPLATES], ids=lambda kind: kind.name)
async def test_what_makes_pods_is_warned_of_when_it_is_made_and_changed(registry: Registry, kind: Kind) -> None:
    await label(registry, enforce="restricted")

    new = await made(registry, kind, example(kind))

    def touch(old: Object) -> Object:
        return named(old, annotations={"seen": "yes"})

    changed = await objects.edit(registry, kind, "default", example(kind).metadata.name, touch)
    for said in (new, changed):
        assert any(each.startswith('would violate PodSecurity "restricted:latest": ') for each in said.warnings)


async def test_the_image_of_a_pod_cannot_become_worse_than_its_namespace_allows(registry: Registry) -> None:
    """The pod is older than the level: whatever else changes of it is let be, until its image does."""
    await made(registry, PODS, a_pod(host_pid=True))
    await label(registry, enforce="baseline")

    def relabel(old: Any) -> Object:
        return named(old, labels={"a": "b"})

    def another_image(old: Any) -> Object:
        return replace(old, spec=replace(old.spec, containers=(replace(old.spec.containers[0], image="other"),)))

    await objects.edit(registry, PODS, "default", "p", relabel)
    error = await refusal(objects.edit(registry, PODS, "default", "p", another_image))

    assert 'violates PodSecurity "baseline:latest"' in error.message
    assert (await get(registry, PODS, "p")).spec.containers[0] == replace(
        (await get(registry, PODS, "p")).spec.containers[0], image="busybox"
    )


# --- namespaces


async def test_labels_that_cannot_be_read_are_refused(registry: Registry) -> None:
    bad = named(example(NAMESPACES), name="n", labels={ENFORCE: "strict"})

    for call in (made(registry, NAMESPACES, bad, ""), label(registry, enforce="strict")):
        error = await refusal(call)
        assert (error.code, error.reason) == (422, "Invalid")
        assert (
            f'metadata.labels[{ENFORCE}]: Invalid value: "strict": must be one of privileged, baseline, restricted'
            in error.message
        )


async def test_a_stricter_level_names_the_pods_that_violate_it(registry: Registry) -> None:
    for name in ("b", "a"):
        await made(registry, PODS, a_pod(name, host_pid=True))
    await made(registry, PODS, a_pod("fine"))

    for dry_run in (True, False):
        said = await label(registry, enforce="baseline", dry_run=dry_run)
        assert said.warnings == (
            'existing pods in namespace "default" violate the new PodSecurity enforce level "baseline:latest"',
            "a (and 1 other pod): host namespaces",
        )
    assert (await label(registry, enforce="baseline", warn="restricted")).warnings == ()


async def test_of_very_many_pods_it_says_how_many_it_has_looked_at(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(review, "MOST_PODS", 2)
    for name in ("a", "b", "c"):
        await made(registry, PODS, a_pod(name, host_pid=True))

    said = await label(registry, enforce="baseline")

    assert said.warnings[0] == "new PodSecurity enforce level only checked against the first 2 of 3 existing pods"


async def test_an_exempt_namespace_takes_every_pod_and_says_so(registry: Registry) -> None:
    said = await label(registry, "kube-system", enforce="restricted")

    assert said.warnings == (
        'namespace "kube-system" is exempt from Pod Security, and the policy '
        "(enforce=restricted:latest) will be ignored",
    )
    await made(registry, PODS, a_pod(host_pid=True), "kube-system")


async def test_the_default_level_is_that_of_namespaces_without_labels(registry: Registry) -> None:
    configuration = PodSecurityConfiguration(default_policy("baseline"))
    registry = Registry(registry.store, registry.clock, pod_security=configuration)

    assert (await refusal(made(registry, PODS, a_pod(host_pid=True)))).code == 403
    await label(registry, enforce="privileged")
    await made(registry, PODS, a_pod(host_pid=True))
    await made(registry, PODS, a_pod(host_pid=True), "kube-system")


async def test_a_replica_learns_of_a_label_that_another_has_set(registry: Registry, dsn: str, clock: Clock) -> None:
    async with open_store(dsn) as store:
        other = Registry(store, clock)
        await made(other, PODS, a_pod("first", host_pid=True))
        await label(registry, enforce="baseline")
        await store.feed.reach(await registry.revision())

        assert (await refusal(made(other, PODS, a_pod(host_pid=True)))).code == 403


async def test_a_refusal_never_comes_from_a_label_that_is_gone(registry: Registry, dsn: str, clock: Clock) -> None:
    """The other replica may not have heard yet: before it refuses, it catches up."""
    async with open_store(dsn) as store:
        other = Registry(store, clock)
        await label(registry, enforce="baseline")
        assert (await refusal(made(other, PODS, a_pod(host_pid=True)))).code == 403
        await label(registry)

        await made(other, PODS, a_pod(host_pid=True))


async def test_a_job_is_warned_of_by_what_it_will_make(registry: Registry) -> None:
    await label(registry, enforce="baseline")
    job = a_job()
    template = job.spec.template
    bad = replace(template, spec=replace(template.spec, containers=(Container(name="m", image="i"),), host_pid=True))

    said = await made(registry, JOBS, replace(job, spec=replace(job.spec, template=bad)))

    assert said.warnings == (f'would violate PodSecurity "baseline:latest": {FAULT}',)
