"""Deployments on a real database: their ReplicaSets and pods come, are replaced when the template changes, and go with them."""

from typing import Any

import pytest
from msgspec.structs import replace

from app.client.protocol import StatusReport
from app.controllers.apps.deployments import DeploymentController
from app.controllers.apps.replica_sets import ReplicaSetController
from app.controllers.disruption import DisruptionController
from app.controllers.garbage_collection.garbage_collector import GarbageCollector
from app.kinds.apps.deployment import KIND as DEPLOYMENTS
from app.kinds.apps.deployment import Deployment, DeploymentSpec
from app.kinds.apps.replicaset import KIND as REPLICA_SETS
from app.kinds.core.poddisruptionbudget import KIND as BUDGETS
from app.kinds.core.poddisruptionbudget import PodDisruptionBudget, PodDisruptionBudgetSpec
from app.kinds.pod.pod import KIND as PODS
from app.kinds.pod.pod import Pod, is_ready
from app.machinery.base import Condition, LabelSelector, ObjectMeta
from app.registry.agents.status_reports import accept
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from tests.build import a_template
from tests.controllers.running import every, running, until
from tests.registry.examples import create, get

LABELS = {"app": "web"}

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture
def registry(restored: Registry) -> Registry:
    return restored


def a_deployment(**spec: Any) -> Deployment:
    template = a_template(labels=LABELS, restart_policy="Always")
    given = DeploymentSpec(
        **({"replicas": 2, "selector": LabelSelector(match_labels=LABELS), "template": template} | spec)
    )
    return Deployment(metadata=ObjectMeta(name="web"), spec=given)


async def start_pods(registry: Registry) -> list[Pod]:
    """As scheduler and agent do: every pod is on a node and ready. Returns all of them."""
    for pod in await every(registry, PODS):
        if not pod.spec.node_name:
            await objects.rewrite(registry, PODS, "default", pod.metadata.name, _on_node)
        if not is_ready(pod):
            ready = (Condition(type="Ready", status="True", last_transition_time=registry.now()),)
            status = replace(pod.status, phase="Running", conditions=ready)
            meta = pod.metadata
            told = StatusReport(namespace="default", name=meta.name, uid=meta.uid, status=status)
            await accept(registry, PODS, [told], lambda _: True)
    return await every(registry, PODS)


def _on_node(pod: Any) -> Pod:
    return pod if pod.spec.node_name else replace(pod, spec=replace(pod.spec, node_name="n1"))


async def images(registry: Registry) -> list[str]:
    """Of the pods that nobody has asked to end: those that are, are gone with the next look, as no agent is here."""
    found = await start_pods(registry)
    for pod in found:
        if pod.metadata.deletion_timestamp is not None:
            await objects.delete(registry, PODS, "default", pod.metadata.name, _AT_ONCE)
    return sorted(pod.spec.containers[0].image for pod in found if pod.metadata.deletion_timestamp is None)


_AT_ONCE = Demand(grace_seconds=0)


async def test_a_deployment_lives_and_goes(registry: Registry) -> None:
    await create(registry, DEPLOYMENTS, a_deployment())
    controllers = (DeploymentController, ReplicaSetController, GarbageCollector, DisruptionController)
    budget = PodDisruptionBudgetSpec(max_unavailable=1, selector=LabelSelector(match_labels=LABELS))
    await create(registry, BUDGETS, PodDisruptionBudget(metadata=ObjectMeta(name="web"), spec=budget))

    async with running(registry, *controllers):
        await until(registry, lambda: has_images(registry, ["busybox", "busybox"]))
        await until(registry, lambda: is_complete(registry))
        await until(registry, lambda: may_disrupt(registry, 2, 1))

        await objects.rewrite(registry, DEPLOYMENTS, "default", "web", with_other_image)
        await until(registry, lambda: has_images(registry, ["other", "other"]))
        await until(registry, lambda: is_complete(registry))
        assert sorted(each.spec.replicas for each in await every(registry, REPLICA_SETS)) == [0, 2]

        await objects.delete(registry, DEPLOYMENTS, "default", "web", Demand())
        await until(registry, lambda: has_images(registry, []))
        await until(registry, lambda: has_no_replica_sets(registry))


def with_other_image(deployment: Any) -> Deployment:
    template = deployment.spec.template
    containers = (replace(template.spec.containers[0], image="other"),)
    template = replace(template, spec=replace(template.spec, containers=containers))
    generation = deployment.metadata.generation + 1
    return replace(
        deployment,
        spec=replace(deployment.spec, template=template),
        metadata=replace(deployment.metadata, generation=generation),
    )


async def has_images(registry: Registry, wanted: list[str]) -> bool:
    return await images(registry) == wanted


async def is_complete(registry: Registry) -> bool:
    await start_pods(registry)
    made = await get(registry, DEPLOYMENTS, "web")
    status = made.status
    is_seen = status.observed_generation == made.metadata.generation
    return is_seen and (status.updated_replicas, status.replicas, status.available_replicas) == (2, 2, 2)


async def may_disrupt(registry: Registry, expected: int, allowed: int) -> bool:
    status = (await get(registry, BUDGETS, "web")).status
    return (status.expected_pods, status.disruptions_allowed) == (expected, allowed)


async def has_no_replica_sets(registry: Registry) -> bool:
    return not await every(registry, REPLICA_SETS)
