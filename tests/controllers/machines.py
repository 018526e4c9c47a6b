"""Nodes and their leases, as an agent writes them."""

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.core.lease import KIND as LEASES
from app.kinds.core.lease import Lease, LeaseSpec
from app.kinds.core.node import KIND as NODES
from app.kinds.core.node import Node, NodeCondition, NodeSpec, NodeStatus
from app.machinery.base import ObjectMeta
from app.registry.verbs import objects
from app.registry.verbs.objects import Registry
from tests.registry.examples import create, get

LEASE_NAMESPACE = "kube-node-lease"


def a_node(name: str = "n1", *, labels: dict[str, str] | None = None, ready: str = "True", **more: Any) -> Node:
    """With 2 CPUs and room for 10 pods, unless told otherwise; what is no resource goes to the spec."""
    spec = {field: more.pop(field) for field in ("unschedulable", "taints") if field in more}
    allocatable = {"cpu": "2", "memory": "4Gi", "pods": "10"} | more
    conditions = (
        NodeCondition(type="Ready", status=ready, reason="AgentReady"),
        NodeCondition(type="MemoryPressure", status="False"),
    )
    return Node(
        metadata=ObjectMeta(name=name, labels=labels or {}),
        spec=NodeSpec(**spec),
        status=NodeStatus(capacity=allocatable, allocatable=allocatable, conditions=conditions),
    )


def micro(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ")


async def joins(registry: Registry, node: Node) -> None:
    """A new node with its lease."""
    await create(registry, NODES, node)
    meta = ObjectMeta(name=node.metadata.name, namespace=LEASE_NAMESPACE)
    await create(registry, LEASES, Lease(metadata=meta, spec=LeaseSpec(renew_time=micro(registry.clock()))))


async def renews(registry: Registry, name: str = "n1", lasts: int | None = None) -> None:
    def change(lease: Any) -> Lease:
        spec = replace(lease.spec, renew_time=micro(registry.clock()), lease_duration_seconds=lasts)
        return replace(lease, spec=spec)

    await objects.edit(registry, LEASES, LEASE_NAMESPACE, name, change)


async def alter(registry: Registry, name: str, **spec: Any) -> None:
    await objects.edit(registry, NODES, "", name, lambda node: replace(node, spec=replace(node.spec, **spec)))


async def node(registry: Registry, name: str = "n1") -> Node:
    return await get(registry, NODES, name, "")


def ready(found: Node) -> str:
    return next(each.status for each in found.status.conditions if each.type == "Ready")


def taints(found: Node) -> list[str]:
    return [f"{each.key.removeprefix('node.kubernetes.io/')}:{each.effect}" for each in found.spec.taints]
