"""Cluster roles that collect others show what they collect."""

from typing import Any

from msgspec.structs import replace

from app.controllers.auth.clusterrole_aggregation import ClusterRoleController
from app.kinds.auth.cluster_role import KIND as CLUSTER_ROLES
from app.kinds.auth.cluster_role import AggregationRule, ClusterRole
from app.kinds.auth.rbac import PolicyRule
from app.machinery.base import LabelSelector
from app.registry.verbs import objects
from app.registry.verbs.deletion import Demand
from app.registry.verbs.objects import Registry
from tests.controllers.running import running, settled, until
from tests.registry.examples import create, get, named

PODS, JOBS = (PolicyRule(verbs=("get",), api_groups=("",), resources=(each,)) for each in ("pods", "jobs"))
LABELS = {"team": "lab"}


async def a_role(registry: Registry, name: str, *rules: PolicyRule, collects: bool = False, **metadata: Any) -> None:
    selector = LabelSelector(match_labels=LABELS)
    collected = AggregationRule(cluster_role_selectors=(selector,)) if collects else None
    role = named(ClusterRole(rules=rules, aggregation_rule=collected), name=name, **metadata)
    await create(registry, CLUSTER_ROLES, role)


async def shows(registry: Registry, *rules: PolicyRule) -> bool:
    return (await get(registry, CLUSTER_ROLES, "all", "")).rules == rules


async def test_what_it_collects_is_written_into_a_role_and_leaves_with_its_source(registry: Registry) -> None:
    await a_role(registry, "a", PODS, labels=LABELS)
    await a_role(registry, "all", JOBS, collects=True)
    async with running(registry, ClusterRoleController):
        await until(registry, lambda: shows(registry, PODS))
        await a_role(registry, "b", JOBS, labels=LABELS)
        await until(registry, lambda: shows(registry, PODS, JOBS))
        await objects.edit(registry, CLUSTER_ROLES, "", "all", lambda old: replace(old, rules=()))
        await until(registry, lambda: shows(registry, PODS, JOBS))
        await objects.delete(registry, CLUSTER_ROLES, "", "a", Demand())
        await until(registry, lambda: shows(registry, JOBS))


async def test_the_default_roles_are_as_they_should_be_from_the_start(registry: Registry) -> None:
    revision = await registry.store.revision()
    async with running(registry, ClusterRoleController):
        assert await settled(registry, 0.2) == revision
