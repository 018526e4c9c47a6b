"""The Node kind."""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.core.node_schema import (
    ContainerImage,
    Node,
    NodeAddress,
    NodeCondition,
    NodeSpec,
    NodeStatus,
    NodeSystemInfo,
    Taint,
)
from app.machinery import name_validation as names
from app.machinery import quantity
from app.machinery.base import (
    Column,
    Kind,
)
from app.machinery.durations import age
from app.machinery.errors import Cause, duplicate, forbidden, invalid, one_of
from app.machinery.meta.metadata_validation import NEGATIVE

__all__ = [
    "EFFECTS",
    "KIND",
    "NOT_READY",
    "ROLE_LABEL",
    "ROLE_PREFIX",
    "UNREACHABLE",
    "UNSCHEDULABLE",
    "ContainerImage",
    "Node",
    "NodeAddress",
    "NodeCondition",
    "NodeSpec",
    "NodeStatus",
    "NodeSystemInfo",
    "Taint",
    "on_update",
    "prepare",
    "roles",
    "row",
    "validate",
    "validate_update",
]


def prepare(node: Node) -> Node:
    status = node.status
    if status.allocatable or not status.capacity:
        return node
    return replace(node, status=replace(status, allocatable=status.capacity))


def on_update(new: Node, old: Node) -> Node:
    return replace(new, status=old.status)


EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")
# Taints that say how a node fares.
NOT_READY, UNREACHABLE = "node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable"
UNSCHEDULABLE = "node.kubernetes.io/unschedulable"


def validate(node: Node) -> list[Cause]:
    return [*_faults_in_taints(node.spec.taints), *_faults_in_amounts(node)]


def _faults_in_taints(taints: tuple[Taint, ...]) -> Iterator[Cause]:
    seen = set()
    for index, taint in enumerate(taints):
        path = f"spec.taints[{index}]"
        yield from _faults_in_taint(taint, path)
        if (taint.key, taint.effect) in seen:
            cause = duplicate(path, taint)
            yield cause._replace(message=f"{cause.message}: taints must be unique by key and effect pair")
        seen.add((taint.key, taint.effect))


def _faults_in_taint(taint: Taint, path: str) -> Iterator[Cause]:
    if faults := names.qualified_name(taint.key):
        yield invalid(f"{path}.key", taint.key, "; ".join(faults))
    if faults := names.label_value(taint.value):
        yield invalid(f"{path}.value", taint.value, ";".join(faults))
    yield from one_of(f"{path}.effect", taint.effect, EFFECTS)


def _faults_in_amounts(node: Node) -> Iterator[Cause]:
    """The scheduler counts with these."""
    for field, amounts in (("capacity", node.status.capacity), ("allocatable", node.status.allocatable)):
        for resource, amount in amounts.items():
            if fault := quantity.fault(amount):
                yield invalid(f"status.{field}.{resource}", amount, fault)
            elif quantity.parse(amount) < 0:
                yield invalid(f"status.{field}.{resource}", amount, NEGATIVE)


def validate_update(new: Node, old: Node) -> list[Cause]:
    changed = {
        "podCIDRs": old.spec.pod_cidrs and new.spec.pod_cidrs != old.spec.pod_cidrs,
        "providerID": old.spec.provider_id and new.spec.provider_id != old.spec.provider_id,
    }
    return [
        forbidden(f"spec.{field}", f'node updates may not change {field.removesuffix("s")} except from "" to valid')
        for field, differs in changed.items()
        if differs
    ]


def row(node: Node, now: datetime) -> list[Any]:
    about = node.status.node_info or NodeSystemInfo()
    return [
        node.metadata.name,
        _state(node),
        ",".join(roles(node)) or "<none>",
        age(node.metadata.creation_timestamp, now),
        about.kubelet_version,
        _address(node, "InternalIP"),
        _address(node, "ExternalIP"),
        about.os_image or "<unknown>",
        about.kernel_version or "<unknown>",
        about.container_runtime_version or "<unknown>",
    ]


def _state(node: Node) -> str:
    ready = [each.status == "True" for each in node.status.conditions if each.type == "Ready"]
    state = "Unknown" if not ready else "Ready" if ready[0] else "NotReady"
    return f"{state},SchedulingDisabled" if node.spec.unschedulable else state


ROLE_PREFIX, ROLE_LABEL = "node-role.kubernetes.io/", "kubernetes.io/role"


def roles(node: Node) -> list[str]:
    """Return what the node's labels say that it is for."""
    labels = node.metadata.labels
    named = {key.removeprefix(ROLE_PREFIX) for key in labels if key.startswith(ROLE_PREFIX)}
    return sorted((named | {labels.get(ROLE_LABEL, "")}) - {""})


def _address(node: Node, type_: str) -> str:
    return next((each.address for each in node.status.addresses if each.type == type_), "<none>")


KIND = Kind(
    type=Node,
    group="",
    version="v1",
    plural="nodes",
    short_names=("no",),
    namespaced=False,
    has_status=True,
    prepare=prepare,
    on_update=on_update,
    validate=validate,
    validate_update=validate_update,
    validate_status=lambda new, _: validate(new),
    columns=(
        Column(name="Name", format="name", description="Name of the node."),
        Column(name="Status", description="Whether the node is ready for pods."),
        Column(name="Roles", description="What the node is for."),
        Column(name="Age", description="Time since the node was created."),
        Column(name="Version", description="Version of the node's agent."),
        Column(name="Internal-IP", priority=1, description="Its first internal address."),
        Column(name="External-IP", priority=1, description="Its first external address."),
        Column(name="OS-Image", priority=1, description="Its operating system."),
        Column(name="Kernel-Version", priority=1, description="Release of its kernel."),
        Column(name="Container-Runtime", priority=1, description="What runs its containers."),
    ),
    row=row,
    fields={"spec.unschedulable": lambda node: "true" if node.spec.unschedulable else "false"},
    example="""\
apiVersion: v1
kind: Node
metadata:
  name: worker-1
  labels:
    kubernetes.io/hostname: worker-1
    node-role.kubernetes.io/worker: ""
spec:
  taints:
  - key: gpu
    value: "yes"
    effect: NoSchedule
status:
  capacity:
    cpu: "8"
    memory: 32Gi
    pods: 110
  conditions:
  - type: Ready
    status: "True"
    reason: AgentReady
    lastHeartbeatTime: "2025-01-02T03:04:05Z"
    lastTransitionTime: "2025-01-02T03:04:05Z"
  addresses:
  - type: InternalIP
    address: 10.0.0.7
  nodeInfo:
    kubeletVersion: v1.33.0
    osImage: Debian GNU/Linux 13 (trixie)
    kernelVersion: 6.12.0
    containerRuntimeVersion: process://0.1.0
    operatingSystem: linux
    architecture: amd64
""",
)
