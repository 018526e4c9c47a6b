"""Creates are judged by the rules of their namespace, and charged to its quotas in their own write set."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from app.kinds.core.configmap import KIND as CONFIG_MAPS
from app.kinds.core.configmap import ConfigMap
from app.kinds.core.limitrange import KIND as LIMIT_RANGES
from app.kinds.core.limitrange import LimitRange
from app.kinds.core.namespace import Namespace
from app.kinds.core.resourcequota import KIND as QUOTAS
from app.kinds.core.resourcequota import ResourceQuota, ResourceQuotaStatus
from app.kinds.core.runtimeclass import KIND as RUNTIME_CLASSES
from app.kinds.core.serviceaccount import KIND as ACCOUNTS
from app.kinds.core.serviceaccount import ServiceAccount
from app.kinds.scheduling.priorityclass import KIND as CLASSES
from app.kinds.scheduling.priorityclass import PriorityClass
from app.machinery.base import ObjectMeta
from app.machinery.errors import ApiError
from app.registry.admission.admission import MOST_KNOWN
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from app.store import open_store
from tests.conftest import Clock
from tests.registry.examples import JOBS, NAMESPACES, PODS, a_job, a_pod, create, example, get


@pytest.fixture
async def other(dsn: str, clock: Clock) -> AsyncIterator[Registry]:
    """A second process."""
    async with open_store(dsn) as store:
        yield Registry(store, clock)


async def a_quota(registry: Registry, name: str = "q", **hard: Any) -> None:
    """In force, as if the quota controller had seen it."""
    limits = {key.replace("_", "/"): str(value) for key, value in hard.items()}
    await create(
        registry, QUOTAS, msgspec.convert({"metadata": {"name": name}, "spec": {"hard": limits}}, ResourceQuota)
    )

    def in_force(old: Any) -> ResourceQuota:
        return replace(old, status=ResourceQuotaStatus(hard=limits, used=dict.fromkeys(limits, "0")))

    await objects.rewrite(registry, QUOTAS, "default", name, in_force)


async def used(registry: Registry, name: str = "q") -> dict[str, Any]:
    return dict((await get(registry, QUOTAS, name)).status.used)


def a_config_map(name: str = "c") -> ConfigMap:
    return ConfigMap(metadata=ObjectMeta(name=name))


async def refusal(registry: Registry, kind: Any, obj: Any) -> str:
    with pytest.raises(ApiError) as error:
        await create(registry, kind, obj)
    assert (error.value.code, error.value.reason) == (403, "Forbidden")
    return error.value.message


async def test_a_create_is_charged(registry: Registry) -> None:
    await a_quota(registry, pods=2, count_pods=5, secrets=1)

    await create(registry, PODS, a_pod())

    assert await used(registry) == {"pods": "1", "count/pods": "1", "secrets": "0"}


async def test_what_exceeds_a_quota_is_refused_and_nothing_is_charged(registry: Registry) -> None:
    await a_quota(registry, pods=1, configmaps=9)
    await a_quota(registry, "r", configmaps=0)
    await create(registry, PODS, a_pod())

    assert await refusal(registry, PODS, a_pod("two")) == (
        'pods "two" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1'
    )
    assert "exceeded quota: r" in await refusal(registry, CONFIG_MAPS, a_config_map())
    assert await used(registry) == {"pods": "1", "configmaps": "0"}


async def test_every_kind_is_counted(registry: Registry) -> None:
    await a_quota(registry, configmaps=1, **{"count/jobs.batch": 1})

    await create(registry, CONFIG_MAPS, a_config_map())
    await create(registry, JOBS, a_job())

    assert await used(registry) == {"configmaps": "1", "count/jobs.batch": "1"}
    assert "exceeded quota" in await refusal(registry, JOBS, a_job("two"))


async def test_a_create_that_fails_is_not_charged(registry: Registry) -> None:
    await a_quota(registry, configmaps=5)
    await create(registry, CONFIG_MAPS, a_config_map())

    with pytest.raises(ApiError, match="already exists"):
        await create(registry, CONFIG_MAPS, a_config_map())

    assert await used(registry) == {"configmaps": "1"}


async def test_a_dry_run_is_judged_and_charges_nothing(registry: Registry) -> None:
    await a_quota(registry, configmaps=1)
    await objects.create(registry, CONFIG_MAPS, "default", a_config_map(), dry_run=True)
    assert await used(registry) == {"configmaps": "0"}

    await create(registry, CONFIG_MAPS, a_config_map())
    with pytest.raises(ApiError, match="exceeded quota"):
        await objects.create(registry, CONFIG_MAPS, "default", a_config_map("d"), dry_run=True)


async def test_other_namespaces_have_nothing_to_do_with_it(registry: Registry) -> None:
    await a_quota(registry, configmaps=0)

    await objects.create(registry, CONFIG_MAPS, "kube-system", a_config_map())


async def test_a_quota_may_count_quotas(registry: Registry) -> None:
    await a_quota(registry, resourcequotas=1)

    await create(registry, QUOTAS, ResourceQuota(metadata=ObjectMeta(name="r")))
    assert "exceeded quota" in await refusal(registry, QUOTAS, ResourceQuota(metadata=ObjectMeta(name="s")))
    with pytest.raises(ApiError, match="exceeded quota"):
        await create(registry, QUOTAS, ResourceQuota(metadata=ObjectMeta(name="r")))


async def test_of_many_at_once_in_two_processes_exactly_as_many_as_fit_succeed(
    registry: Registry, other: Registry
) -> None:
    await a_quota(registry, pods=7)
    await other.admission.catch_up()

    tries = [
        create(each, PODS, a_pod(f"{name}-{n}")) for n in range(8) for name, each in (("a", registry), ("b", other))
    ]
    outcomes = await asyncio.gather(*tries, return_exceptions=True)

    refused = [each for each in outcomes if isinstance(each, Exception)]
    assert len(outcomes) - len(refused) == 7
    assert all(isinstance(each, ApiError) and "exceeded quota: q" in each.message for each in refused)
    assert await used(registry) == {"pods": "7"}


async def test_no_refusal_comes_from_a_copy_that_is_behind(registry: Registry, other: Registry) -> None:
    await a_quota(registry, configmaps=0)
    assert "exceeded quota" in await refusal(other, CONFIG_MAPS, a_config_map())

    for n in range(3):
        await create(registry, ACCOUNTS, ServiceAccount(metadata=ObjectMeta(name=f"robot-{n}")))
        await create(other, PODS, a_pod(f"p-{n}", service_account_name=f"robot-{n}"))


SIZES = {"type": "Container", "max": {"memory": "1Gi"}, "default": {"cpu": "1"}, "defaultRequest": {"cpu": "500m"}}


async def test_limit_ranges_complete_pods_and_refuse_them(registry: Registry) -> None:
    sizes = msgspec.convert({"metadata": {"name": "sizes"}, "spec": {"limits": [SIZES]}}, LimitRange)
    await create(registry, LIMIT_RANGES, sizes)

    made = await create(registry, PODS, a_pod())

    resources = made.spec.containers[0].resources
    assert resources.requests == {"cpu": "500m", "memory": "1Gi"}
    assert resources.limits == {"cpu": "1", "memory": "1Gi"}
    assert made.status.qos_class == "Burstable"
    assert made.metadata.annotations["kubernetes.io/limit-ranger"].startswith("LimitRanger plugin set: cpu, memory")

    large = msgspec.convert(
        {"name": "m", "image": "i", "resources": {"limits": {"memory": "2Gi"}}}, type(made.spec.containers[0])
    )
    assert await refusal(registry, PODS, a_pod("large", containers=(large,))) == (
        'pods "large" is forbidden: maximum memory usage per Container is 1Gi, but limit is 2Gi'
    )


async def test_what_is_invalid_with_its_defaults_is_invalid(registry: Registry) -> None:
    sizes = msgspec.convert({"metadata": {"name": "sizes"}, "spec": {"limits": [SIZES]}}, LimitRange)
    await create(registry, LIMIT_RANGES, sizes)
    pod = a_pod()
    hungry = msgspec.convert(
        {"name": "m", "image": "i", "resources": {"requests": {"cpu": "2"}}}, type(pod.spec.containers[0])
    )

    with pytest.raises(ApiError) as error:
        await create(registry, PODS, a_pod(containers=(hungry,)))

    assert (error.value.code, error.value.reason) == (422, "Invalid")


async def test_nobody_is_warned_of_what_the_rules_have_added(registry: Registry) -> None:
    sizes = msgspec.convert({"metadata": {"name": "sizes"}, "spec": {"limits": [SIZES]}}, LimitRange)
    await create(registry, LIMIT_RANGES, sizes)
    await create(registry, CLASSES, PriorityClass(metadata=ObjectMeta(name="usual"), value=7, global_default=True))

    plain = await objects.create(registry, PODS, "default", a_pod("p"))
    asked = await objects.create(registry, PODS, "default", a_pod("q", hostname_override="q"))

    assert plain.warnings == ()
    assert [text.partition(":")[0] for text in asked.warnings] == ["spec.hostnameOverride"]


async def test_pods_get_a_priority(registry: Registry) -> None:
    await create(registry, CLASSES, PriorityClass(metadata=ObjectMeta(name="high"), value=7, preemption_policy="Never"))

    plain = await create(registry, PODS, a_pod())
    urgent = await create(registry, PODS, a_pod("q", priority_class_name="high"))
    vital = await create(registry, PODS, a_pod("r", priority_class_name="system-node-critical"))

    assert [(each.spec.priority, each.spec.preemption_policy) for each in (plain, urgent, vital)] == [
        (0, "PreemptLowerPriority"),
        (7, "Never"),
        (2_000_001_000, "PreemptLowerPriority"),
    ]
    assert await refusal(registry, PODS, a_pod("s", priority_class_name="gold")) == (
        'pods "s" is forbidden: no PriorityClass with name gold was found'
    )


async def test_a_pod_of_an_unknown_runtime_class_is_refused(registry: Registry) -> None:
    assert await refusal(registry, PODS, a_pod("p", runtime_class_name="nvidia")) == (
        'pods "p" is forbidden: pod rejected: RuntimeClass "nvidia" not found'
    )
    await create(registry, RUNTIME_CLASSES, example(RUNTIME_CLASSES))
    assert (await create(registry, PODS, a_pod("p", runtime_class_name="nvidia"))).spec.runtime_class_name == "nvidia"


async def test_a_pod_whose_name_is_yet_to_come_is_called_by_its_prefix(registry: Registry) -> None:
    pod = a_pod("", {"generate_name": "s-"}, priority_class_name="gold")

    assert (await refusal(registry, PODS, pod)).startswith('pods "s-" is forbidden')


async def test_there_is_one_default_class(registry: Registry) -> None:
    one, two = (PriorityClass(metadata=ObjectMeta(name=name), value=1, global_default=True) for name in ("a", "b"))
    await create(registry, CLASSES, one)
    assert "PriorityClass a is already marked as default" in await refusal(registry, CLASSES, two)

    await create(registry, CLASSES, replace(two, global_default=False))
    for name, fine in (("a", True), ("b", False)):
        edit = objects.edit(registry, CLASSES, "", name, lambda old: replace(old, description="x", global_default=True))
        if fine:
            await edit
        else:
            with pytest.raises(ApiError, match="Only one default can exist"):
                await edit


async def test_accounts_must_exist_and_give_their_pull_secrets(registry: Registry) -> None:
    robot = msgspec.convert({"metadata": {"name": "robot"}, "imagePullSecrets": [{"name": "key"}]}, ServiceAccount)
    await create(registry, ACCOUNTS, robot)

    made = await create(registry, PODS, a_pod(service_account_name="robot"))

    assert [each.name for each in made.spec.image_pull_secrets] == ["key"]
    assert await refusal(registry, PODS, a_pod("q", service_account_name="cat")) == (
        'pods "q" is forbidden: error looking up service account default/cat: serviceaccount "cat" not found'
    )


async def test_a_namespace_that_is_not_there_is_named_before_what_is_not_in_it(registry: Registry) -> None:
    with pytest.raises(ApiError, match='namespaces "nowhere" not found'):
        await objects.create(registry, PODS, "nowhere", a_pod(service_account_name="robot"))


async def test_the_default_account_need_not_exist_yet(registry: Registry) -> None:
    await objects.create(registry, NAMESPACES, "", Namespace(metadata=ObjectMeta(name="fresh")))

    await objects.create(registry, PODS, "fresh", a_pod())


async def test_rules_of_a_namespace_are_made_once_until_one_changes(registry: Registry) -> None:
    first = await registry.admission.rules("default")
    assert await registry.admission.rules("default") is first

    await a_quota(registry, pods=1)
    await registry.admission.catch_up()
    assert [each.metadata.name for each in (await registry.admission.rules("default")).quotas] == ["q"]
    assert not first.quotas


async def test_names_of_namespaces_do_not_fill_the_memory(registry: Registry) -> None:
    first = await registry.admission.rules("default")
    for number in range(MOST_KNOWN):
        await registry.admission.rules(f"none-{number}")
    assert await registry.admission.rules("default") is not first
