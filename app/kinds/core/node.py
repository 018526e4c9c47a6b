"""The Node kind."""

from collections.abc import Iterator
from datetime import datetime
from typing import Annotated, Any

import msgspec
from msgspec.structs import replace

from app.kinds.core.node_parts import (
    AttachedVolume,
    NodeConfigSource,
    NodeConfigStatus,
    NodeDaemonEndpoints,
    NodeFeatures,
    NodeRuntimeHandler,
    NodeSwapStatus,
)
from app.machinery import name_validation as names
from app.machinery import quantity
from app.machinery.base import (
    TOLD,
    Column,
    Int64,
    Kind,
    Object,
    Quantity,
    Struct,
    Time,
    at,
)
from app.machinery.durations import age
from app.machinery.errors import Cause, duplicate, forbidden, invalid, one_of
from app.machinery.metadata_validation import NEGATIVE


class Taint(Struct):
    """Keeps away pods that do not tolerate it."""

    key: Annotated[str, at(1, "What the taint is called.", required=True)] = ""
    value: Annotated[str, at(2, "A value that tolerations can compare with.")] = ""
    effect: Annotated[
        str,
        at(
            3,
            "NoSchedule: no new pods. PreferNoSchedule: none if they fit elsewhere. NoExecute: running ones go too.",
            required=True,
            enum=("NoExecute", "NoSchedule", "PreferNoSchedule"),
        ),
    ] = ""
    time_added: Annotated[Time | None, at(4, "When the taint was added; counts for NoExecute.")] = None


class NodeAddress(Struct):
    """A name or number under which the node can be reached."""

    type: Annotated[str, at(1, "Hostname, InternalIP, ExternalIP, InternalDNS or ExternalDNS.", required=True)] = TOLD
    address: Annotated[str, at(2, "The address.", required=True)] = TOLD


class NodeSystemInfo(Struct):
    """What kind of machine the node is, as its agent sees it."""

    machine_id: Annotated[str, at(1, "The operating system's id of the machine.", required=True)] = TOLD
    system_uuid: Annotated[str, at(2, "The hardware's id of the machine.", required=True)] = TOLD
    boot_id: Annotated[str, at(3, "New with each start of the machine.", required=True)] = TOLD
    kernel_version: Annotated[str, at(4, "Release of the kernel.", required=True)] = TOLD
    os_image: Annotated[str, at(5, "Name and version of the operating system.", required=True)] = TOLD
    container_runtime_version: Annotated[str, at(6, "What runs containers, as name://version.", required=True)] = TOLD
    kubelet_version: Annotated[str, at(7, "Version of the agent.", required=True)] = TOLD
    kube_proxy_version: Annotated[str, at(8, "Obsolete, never set.", required=True)] = TOLD
    operating_system: Annotated[str, at(9, "The operating system: linux.", required=True)] = TOLD
    architecture: Annotated[str, at(10, "The processor's architecture, such as amd64.", required=True)] = TOLD
    swap: Annotated[NodeSwapStatus | None, at(11, "How much swap space there is.")] = None


class ContainerImage(Struct):
    """An image that the node has already."""

    names: Annotated[tuple[str, ...], at(1, "Names and digests that the image is known by.")] = ()
    size_bytes: Annotated[Int64 | None, at(2, "How large it is.")] = None


class NodeSpec(Struct):
    """How the node is to be used."""

    pod_cidr: Annotated[str, at(1, "Addresses that pods of the node get.")] = ""
    external_id: Annotated[str, at(2, "Obsolete.")] = ""
    provider_id: Annotated[str, at(3, "The machine's id at its cloud provider. Cannot change once set.")] = ""
    unschedulable: Annotated[bool, at(4, "If true, no new pods are put here: what cordon sets.")] = False
    taints: Annotated[tuple[Taint, ...], at(5, "What keeps pods away. The list is replaced as a whole.")] = ()
    config_source: Annotated[NodeConfigSource | None, at(6, "Obsolete.")] = None
    pod_cidrs: Annotated[
        tuple[str, ...], at(7, "Address ranges for pods, at most one an address family.", patch="merge")
    ] = ()


class NodeCondition(Struct):
    """One observation about a node."""

    type: Annotated[
        str, at(1, "What is observed: Ready, MemoryPressure, DiskPressure, PIDPressure.", required=True)
    ] = TOLD
    status: Annotated[str, at(2, "True, False or Unknown.", required=True)] = TOLD
    last_heartbeat_time: Annotated[Time | None, at(3, "When it was last observed.")] = None
    last_transition_time: Annotated[Time | None, at(4, "When status last changed.")] = None
    reason: Annotated[str, at(5, "One word for why.")] = ""
    message: Annotated[str, at(6, "A sentence for people.")] = ""


class NodeStatus(Struct):
    """What the node has and how it fares, as reported by its agent."""

    capacity: Annotated[dict[str, Quantity], at(1, "All that the machine has of each resource.")] = msgspec.field(
        default_factory=dict
    )
    allocatable: Annotated[dict[str, Quantity], at(2, "What pods may have of it; the capacity, if not said.")] = (
        msgspec.field(default_factory=dict)
    )
    phase: Annotated[str, at(3, "Obsolete, never set.", enum=("Pending", "Running", "Terminated"))] = ""
    conditions: Annotated[
        tuple[NodeCondition, ...], at(4, "What is observed about the node.", patch="merge", patch_key="type")
    ] = ()
    addresses: Annotated[
        tuple[NodeAddress, ...], at(5, "Where the node can be reached.", patch="merge", patch_key="type")
    ] = ()
    daemon_endpoints: Annotated[NodeDaemonEndpoints | None, at(6, "Ports that the agent listens on.")] = None
    node_info: Annotated[NodeSystemInfo | None, at(7, "What kind of machine it is.")] = None
    images: Annotated[tuple[ContainerImage, ...], at(8, "Images that need no download.")] = ()
    volumes_in_use: Annotated[tuple[str, ...], at(9, "Attachable volumes that pods use.")] = ()
    volumes_attached: Annotated[tuple[AttachedVolume, ...], at(10, "Volumes attached to the machine.")] = ()
    config: Annotated[NodeConfigStatus | None, at(11, "Obsolete.")] = None
    runtime_handlers: Annotated[tuple[NodeRuntimeHandler, ...], at(12, "Ways in which the runtime can run a pod.")] = ()
    features: Annotated[NodeFeatures | None, at(13, "What the runtime can do.")] = None
    declared_features: Annotated[tuple[str, ...], at(14, "Features that the agent says it has.")] = ()


class Node(Object):
    """A machine that runs pods."""

    spec: Annotated[NodeSpec, at(2, "How the node is to be used.")] = msgspec.field(default_factory=NodeSpec)
    status: Annotated[NodeStatus, at(3, "What the node has and how it fares.")] = msgspec.field(
        default_factory=NodeStatus
    )


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
    """What the node's labels say that it is for."""
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
