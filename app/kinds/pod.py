"""The Pod kind."""

from typing import Annotated

import msgspec

from app.kinds.base import (
    Condition,
    Int32,
    Int64,
    LocalObjectReference,
    Object,
    ObjectMeta,
    Opaque,
    Quantity,
    Struct,
    Time,
    at,
)
from app.kinds.affinity import Affinity, Toleration, TopologySpreadConstraint
from app.kinds.container import Container, EphemeralContainer, ContainerStatus, ResourceRequirements
from app.kinds.security import PodSecurityContext
from app.kinds.volume import Volume


class HostAlias(Struct):
    """TODO-DOC"""

    ip: Annotated[str, at(1)] = ""
    hostnames: Annotated[tuple[str, ...], at(2)] = ()


class PodDNSConfigOption(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1)] = ""
    value: Annotated[str, at(2)] = ""


class PodDNSConfig(Struct):
    """TODO-DOC"""

    nameservers: Annotated[tuple[str, ...], at(1)] = ()
    searches: Annotated[tuple[str, ...], at(2)] = ()
    options: Annotated[tuple[PodDNSConfigOption, ...], at(3)] = ()


class PodReadinessGate(Struct):
    """TODO-DOC"""

    condition_type: Annotated[str, at(1)] = ""


class PodOS(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1)] = ""


class PodSchedulingGate(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1)] = ""


class PodResourceClaim(Struct):
    """TODO-DOC"""

    name: Annotated[str, at(1)] = ""
    resource_claim_name: Annotated[str, at(3)] = ""
    resource_claim_template_name: Annotated[str, at(4)] = ""


class PodSchedulingGroup(Struct):
    """TODO-DOC"""

    pod_group_name: Annotated[str, at(1)] = ""


class PodSpec(Struct):
    """TODO-DOC"""

    volumes: Annotated[tuple[Volume, ...], at(1)] = ()
    containers: Annotated[tuple[Container, ...], at(2)] = ()
    restart_policy: Annotated[str, at(3)] = ""
    termination_grace_period_seconds: Annotated[Int64 | None, at(4)] = None
    active_deadline_seconds: Annotated[Int64 | None, at(5)] = None
    dns_policy: Annotated[str, at(6)] = ""
    node_selector: Annotated[dict[str, str], at(7)] = {}
    service_account_name: Annotated[str, at(8)] = ""
    service_account: Annotated[str, at(9)] = ""
    node_name: Annotated[str, at(10)] = ""
    host_network: Annotated[bool, at(11)] = False
    host_pid: Annotated[bool, at(12)] = False
    host_ipc: Annotated[bool, at(13)] = False
    security_context: Annotated[PodSecurityContext | None, at(14)] = None
    image_pull_secrets: Annotated[tuple[LocalObjectReference, ...], at(15)] = ()
    hostname: Annotated[str, at(16)] = ""
    subdomain: Annotated[str, at(17)] = ""
    affinity: Annotated[Affinity | None, at(18)] = None
    scheduler_name: Annotated[str, at(19)] = ""
    init_containers: Annotated[tuple[Container, ...], at(20)] = ()
    automount_service_account_token: Annotated[bool | None, at(21)] = None
    tolerations: Annotated[tuple[Toleration, ...], at(22)] = ()
    host_aliases: Annotated[tuple[HostAlias, ...], at(23)] = ()
    priority_class_name: Annotated[str, at(24)] = ""
    priority: Annotated[Int32 | None, at(25)] = None
    dns_config: Annotated[PodDNSConfig | None, at(26)] = None
    share_process_namespace: Annotated[bool | None, at(27)] = None
    readiness_gates: Annotated[tuple[PodReadinessGate, ...], at(28)] = ()
    runtime_class_name: Annotated[str, at(29)] = ""
    enable_service_links: Annotated[bool | None, at(30)] = None
    preemption_policy: Annotated[str, at(31)] = ""
    overhead: Annotated[dict[str, Quantity], at(32)] = {}
    topology_spread_constraints: Annotated[tuple[TopologySpreadConstraint, ...], at(33)] = ()
    ephemeral_containers: Annotated[tuple[EphemeralContainer, ...], at(34)] = ()
    set_hostname_as_fqdn: Annotated[bool | None, at(35)] = None
    os: Annotated[PodOS | None, at(36)] = None
    host_users: Annotated[bool | None, at(37)] = None
    scheduling_gates: Annotated[tuple[PodSchedulingGate, ...], at(38)] = ()
    resource_claims: Annotated[tuple[PodResourceClaim, ...], at(39)] = ()
    resources: Annotated[ResourceRequirements | None, at(40)] = None
    hostname_override: Annotated[str, at(41)] = ""
    scheduling_group: Annotated[PodSchedulingGroup | None, at(43)] = None
    eviction_responders: Annotated[tuple[Opaque, ...], at(44)] = ()


class PodTemplateSpec(Struct):
    """TODO-DOC"""

    metadata: Annotated[ObjectMeta, at(1)] = msgspec.field(default_factory=ObjectMeta)
    spec: Annotated[PodSpec, at(2)] = msgspec.field(default_factory=PodSpec)


class HostIP(Struct):
    """TODO-DOC"""

    ip: Annotated[str, at(1)] = ""


class PodIP(Struct):
    """TODO-DOC"""

    ip: Annotated[str, at(1)] = ""


class PodStatus(Struct):
    """TODO-DOC"""

    phase: Annotated[str, at(1)] = ""
    conditions: Annotated[tuple[Condition, ...], at(2)] = ()
    message: Annotated[str, at(3)] = ""
    reason: Annotated[str, at(4)] = ""
    host_ip: Annotated[str, at(5)] = ""
    pod_ip: Annotated[str, at(6)] = ""
    start_time: Annotated[Time | None, at(7)] = None
    container_statuses: Annotated[tuple[ContainerStatus, ...], at(8)] = ()
    qos_class: Annotated[str, at(9)] = ""
    init_container_statuses: Annotated[tuple[ContainerStatus, ...], at(10)] = ()
    nominated_node_name: Annotated[str, at(11)] = ""
    pod_ips: Annotated[tuple[PodIP, ...], at(12)] = ()
    ephemeral_container_statuses: Annotated[tuple[ContainerStatus, ...], at(13)] = ()
    resize: Annotated[str, at(14)] = ""
    resource_claim_statuses: Annotated[tuple[Opaque, ...], at(15)] = ()
    host_ips: Annotated[tuple[HostIP, ...], at(16)] = ()
    observed_generation: Annotated[Int64 | None, at(17)] = None
    extended_resource_claim_status: Annotated[Opaque | None, at(18)] = None
    allocated_resources: Annotated[dict[str, Quantity], at(19)] = {}
    resources: Annotated[ResourceRequirements | None, at(20)] = None
    node_allocatable_resource_claim_statuses: Annotated[tuple[Opaque, ...], at(21)] = ()
    volume_health: Annotated[tuple[Opaque, ...], at(22)] = ()


class Pod(Object):
    """TODO-DOC"""

    spec: Annotated[PodSpec, at(2)] = msgspec.field(default_factory=PodSpec)
    status: Annotated[PodStatus, at(3)] = msgspec.field(default_factory=PodStatus)
