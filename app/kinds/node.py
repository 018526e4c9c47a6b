"""The Node kind."""

from typing import Annotated

import msgspec

from app.kinds.base import (
    Int64,
    Object,
    Opaque,
    Quantity,
    Struct,
    Time,
    at,
)


class Taint(Struct):
    """TODO-DOC"""

    key: Annotated[str, at(1)] = ""
    value: Annotated[str, at(2)] = ""
    effect: Annotated[str, at(3)] = ""
    time_added: Annotated[Time | None, at(4)] = None


class NodeAddress(Struct):
    """TODO-DOC"""

    type: Annotated[str, at(1)] = ""
    address: Annotated[str, at(2)] = ""


class NodeSystemInfo(Struct):
    """TODO-DOC"""

    machine_id: Annotated[str, at(1)] = ""
    system_uuid: Annotated[str, at(2)] = ""
    boot_id: Annotated[str, at(3)] = ""
    kernel_version: Annotated[str, at(4)] = ""
    os_image: Annotated[str, at(5)] = ""
    container_runtime_version: Annotated[str, at(6)] = ""
    kubelet_version: Annotated[str, at(7)] = ""
    kube_proxy_version: Annotated[str, at(8)] = ""
    operating_system: Annotated[str, at(9)] = ""
    architecture: Annotated[str, at(10)] = ""
    swap: Annotated[Opaque | None, at(11)] = None


class ContainerImage(Struct):
    """TODO-DOC"""

    names: Annotated[tuple[str, ...], at(1)] = ()
    size_bytes: Annotated[Int64 | None, at(2)] = None


class NodeSpec(Struct):
    """TODO-DOC"""

    pod_cidr: Annotated[str, at(1)] = ""
    external_id: Annotated[str, at(2)] = ""
    provider_id: Annotated[str, at(3)] = ""
    unschedulable: Annotated[bool, at(4)] = False
    taints: Annotated[tuple[Taint, ...], at(5)] = ()
    config_source: Annotated[Opaque | None, at(6)] = None
    pod_cidrs: Annotated[tuple[str, ...], at(7)] = ()


class NodeCondition(Struct):
    """TODO-DOC"""

    type: Annotated[str, at(1)] = ""
    status: Annotated[str, at(2)] = ""
    last_heartbeat_time: Annotated[Time | None, at(3)] = None
    last_transition_time: Annotated[Time | None, at(4)] = None
    reason: Annotated[str, at(5)] = ""
    message: Annotated[str, at(6)] = ""


class NodeStatus(Struct):
    """TODO-DOC"""

    capacity: Annotated[dict[str, Quantity], at(1)] = {}
    allocatable: Annotated[dict[str, Quantity], at(2)] = {}
    phase: Annotated[str, at(3)] = ""
    conditions: Annotated[tuple[NodeCondition, ...], at(4)] = ()
    addresses: Annotated[tuple[NodeAddress, ...], at(5)] = ()
    daemon_endpoints: Annotated[Opaque | None, at(6)] = None
    node_info: Annotated[NodeSystemInfo | None, at(7)] = None
    images: Annotated[tuple[ContainerImage, ...], at(8)] = ()
    volumes_in_use: Annotated[tuple[str, ...], at(9)] = ()
    volumes_attached: Annotated[tuple[Opaque, ...], at(10)] = ()
    config: Annotated[Opaque | None, at(11)] = None
    runtime_handlers: Annotated[tuple[Opaque, ...], at(12)] = ()
    features: Annotated[Opaque | None, at(13)] = None
    declared_features: Annotated[tuple[str, ...], at(14)] = ()


class Node(Object):
    """TODO-DOC"""

    spec: Annotated[NodeSpec, at(2)] = msgspec.field(default_factory=NodeSpec)
    status: Annotated[NodeStatus, at(3)] = msgspec.field(default_factory=NodeStatus)
