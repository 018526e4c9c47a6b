"""The structs of a pod: spec, template, status and the object itself. Everyone imports them from `app.kinds.pod.pod`."""

from typing import Annotated

import msgspec

from app.kinds.pod.affinity import Affinity, Toleration, TopologySpreadConstraint
from app.kinds.pod.container import Container, ContainerStatus, EphemeralContainer, ResourceRequirements
from app.kinds.pod.security import PodSecurityContext
from app.kinds.pod.volume import Volume
from app.machinery.base import (
    TOLD,
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


class HostAlias(Struct):
    """A line of the pod's hosts file."""

    ip: Annotated[str, at(1, "The address.", required=True)] = ""
    hostnames: Annotated[tuple[str, ...], at(2, "Names for it.")] = ()


class PodDNSConfigOption(Struct):
    """An option of the resolver."""

    name: Annotated[str, at(1, "Its name.")] = ""
    value: Annotated[str, at(2, "Its value, if it has one.")] = ""


class PodDNSConfig(Struct):
    """Additions to what dnsPolicy brings."""

    nameservers: Annotated[tuple[str, ...], at(1, "Addresses of name servers.")] = ()
    searches: Annotated[tuple[str, ...], at(2, "Search domains.")] = ()
    options: Annotated[tuple[PodDNSConfigOption, ...], at(3, "Options of the resolver.")] = ()


class PodReadinessGate(Struct):
    """A condition without which the pod is not ready."""

    condition_type: Annotated[str, at(1, "Type of the condition.", required=True)] = ""


class PodOS(Struct):
    """The operating system that a pod is meant for."""

    name: Annotated[str, at(1, "linux or windows.", required=True)] = ""


class PodSchedulingGate(Struct):
    """Holds back scheduling until it is removed."""

    name: Annotated[str, at(1, "Name of the gate.", required=True)] = ""


class PodResourceClaim(Struct):
    """A resource claim that containers refer to by name."""

    name: Annotated[str, at(1, "Name for containers to use.", required=True)] = ""
    resource_claim_name: Annotated[str, at(3, "An existing claim; or")] = ""
    resource_claim_template_name: Annotated[str, at(4, "a template that one is made from.")] = ""


class PodSchedulingGroup(Struct):
    """The group that a pod is scheduled with."""

    pod_group_name: Annotated[str, at(1, "Name of the group.")] = ""


class PodSpec(Struct):
    """What a pod is to run, and where."""

    volumes: Annotated[
        tuple[Volume, ...], at(1, "Volumes that containers can mount.", patch_key="name", patch="merge,retainKeys")
    ] = ()
    containers: Annotated[
        tuple[Container, ...],
        at(
            2,
            "The programs; at least one. None is added or removed later.",
            patch_key="name",
            patch="merge",
            required=True,
        ),
    ] = ()
    restart_policy: Annotated[
        str, at(3, "Always (the default), OnFailure or Never.", enum=("Always", "Never", "OnFailure"))
    ] = ""
    termination_grace_period_seconds: Annotated[
        Int64 | None, at(4, "Time from the stop signal to the kill; 30 by default.")
    ] = None
    active_deadline_seconds: Annotated[Int64 | None, at(5, "The pod fails if it runs longer than this.")] = None
    dns_policy: Annotated[
        str,
        at(
            6,
            "ClusterFirst (the default), ClusterFirstWithHostNet, Default or None.",
            enum=("ClusterFirst", "ClusterFirstWithHostNet", "Default", "None"),
        ),
    ] = ""
    node_selector: Annotated[dict[str, str], at(7, "Labels that a node must have.", map_type="atomic")] = msgspec.field(
        default_factory=dict
    )
    service_account_name: Annotated[str, at(8, "Account that the pod acts as.")] = ""
    service_account: Annotated[str, at(9, "Old name of serviceAccountName.")] = ""
    node_name: Annotated[str, at(10, "The node; set by the scheduler, or by who needs none.")] = ""
    host_network: Annotated[bool, at(11, "True: the node's network is used.")] = False
    host_pid: Annotated[bool, at(12, "True: the node's processes are visible.")] = False
    host_ipc: Annotated[bool, at(13, "True: the node's IPC namespace is used.")] = False
    security_context: Annotated[
        PodSecurityContext | None, at(14, "Who containers run as, unless they say otherwise.")
    ] = None
    image_pull_secrets: Annotated[
        tuple[LocalObjectReference, ...], at(15, "Secrets for pulling images.", patch_key="name", patch="merge")
    ] = ()
    hostname: Annotated[str, at(16, "Host name; the pod's name if empty.")] = ""
    subdomain: Annotated[str, at(17, "Put after the host name, in full names.")] = ""
    affinity: Annotated[Affinity | None, at(18, "Where the pod needs or wishes to run.")] = None
    scheduler_name: Annotated[str, at(19, "Scheduler in charge; default-scheduler by default.")] = ""
    init_containers: Annotated[
        tuple[Container, ...],
        at(20, "Run first, one after the other; each must succeed.", patch_key="name", patch="merge"),
    ] = ()
    automount_service_account_token: Annotated[bool | None, at(21, "False: no token is mounted.")] = None
    tolerations: Annotated[tuple[Toleration, ...], at(22, "Taints that do not keep the pod off a node.")] = ()
    host_aliases: Annotated[
        tuple[HostAlias, ...], at(23, "Further lines of the hosts file.", patch_key="ip", patch="merge")
    ] = ()
    priority_class_name: Annotated[str, at(24, "Priority class; sets priority.")] = ""
    priority: Annotated[Int32 | None, at(25, "The higher, the sooner scheduled.")] = None
    dns_config: Annotated[PodDNSConfig | None, at(26, "Additions to what dnsPolicy brings.")] = None
    share_process_namespace: Annotated[bool | None, at(27, "True: containers see each other's processes.")] = None
    readiness_gates: Annotated[
        tuple[PodReadinessGate, ...], at(28, "Conditions without which the pod is not ready.")
    ] = ()
    runtime_class_name: Annotated[str, at(29, "Runtime class to run with.")] = ""
    enable_service_links: Annotated[bool | None, at(30, "False: no environment variables about services.")] = None
    preemption_policy: Annotated[
        str, at(31, "PreemptLowerPriority (the default) or Never.", enum=("Never", "PreemptLowerPriority"))
    ] = ""
    overhead: Annotated[dict[str, Quantity], at(32, "Resources that the sandbox itself takes.")] = msgspec.field(
        default_factory=dict
    )
    topology_spread_constraints: Annotated[
        tuple[TopologySpreadConstraint, ...],
        at(
            33,
            "How evenly pods are spread over places.",
            patch_key="topologyKey",
            patch="merge",
            list_keys=("topologyKey", "whenUnsatisfiable"),
        ),
    ] = ()
    ephemeral_containers: Annotated[
        tuple[EphemeralContainer, ...],
        at(34, "Containers added for debugging; not on create.", patch_key="name", patch="merge"),
    ] = ()
    set_hostname_as_fqdn: Annotated[bool | None, at(35, "True: the host name is the full name.")] = None
    os: Annotated[PodOS | None, at(36, "Operating system that the pod is meant for.")] = None
    host_users: Annotated[bool | None, at(37, "False: the pod has a user namespace of its own.")] = None
    scheduling_gates: Annotated[
        tuple[PodSchedulingGate, ...],
        at(38, "While there is one, the pod is not scheduled.", patch_key="name", patch="merge"),
    ] = ()
    resource_claims: Annotated[
        tuple[PodResourceClaim, ...],
        at(39, "Claims that must be met before the pod starts.", patch_key="name", patch="merge,retainKeys"),
    ] = ()
    resources: Annotated[ResourceRequirements | None, at(40, "What all containers together need and may take.")] = None
    hostname_override: Annotated[str, at(41, "Host name as the pod sees it, whatever hostname says.")] = ""
    scheduling_group: Annotated[PodSchedulingGroup | None, at(43, "The group that it is scheduled with.")] = None
    eviction_responders: Annotated[
        tuple[Opaque, ...], at(44, "Who is asked before an eviction.", patch_key="name", patch="merge")
    ] = ()


class PodTemplateSpec(Struct):
    """What pods made from it look like."""

    metadata: Annotated[ObjectMeta, at(1, "Labels and annotations of the pods.")] = msgspec.field(
        default_factory=ObjectMeta
    )
    spec: Annotated[PodSpec, at(2, "What they run.")] = msgspec.field(default_factory=PodSpec)


class HostIP(Struct):
    """An address of the node."""

    ip: Annotated[str, at(1, "The address.", required=True)] = TOLD


class PodIP(Struct):
    """An address of the pod."""

    ip: Annotated[str, at(1, "The address.", required=True)] = TOLD


class PodResourceClaimStatus(Struct):
    """A claim that was made for a pod."""

    name: Annotated[str, at(1, "Its name.", required=True)] = TOLD
    resource_claim_name: Annotated[str | None, at(2, "Name of the claim; none if none was needed.")] = None


class PodStatus(Struct):
    """How a pod fares; written by its node's agent."""

    phase: Annotated[
        str,
        at(
            1,
            "Pending, Running, Succeeded, Failed or Unknown.",
            enum=("Failed", "Pending", "Running", "Succeeded", "Unknown"),
        ),
    ] = ""
    conditions: Annotated[
        tuple[Condition, ...], at(2, "Observations, such as PodScheduled and Ready.", patch_key="type", patch="merge")
    ] = ()
    message: Annotated[str, at(3, "A sentence on why the pod is as it is.")] = ""
    reason: Annotated[str, at(4, "One word on why the pod is as it is.")] = ""
    host_ip: Annotated[str, at(5, "Address of the node.")] = ""
    pod_ip: Annotated[str, at(6, "Address of the pod.")] = ""
    start_time: Annotated[Time | None, at(7, "When the agent took the pod on.")] = None
    container_statuses: Annotated[tuple[ContainerStatus, ...], at(8, "How each container fares.")] = ()
    qos_class: Annotated[
        str, at(9, "Guaranteed, Burstable or BestEffort.", enum=("BestEffort", "Burstable", "Guaranteed"))
    ] = ""
    init_container_statuses: Annotated[tuple[ContainerStatus, ...], at(10, "How each init container fares.")] = ()
    nominated_node_name: Annotated[str, at(11, "Node that is being cleared for the pod.")] = ""
    pod_ips: Annotated[
        tuple[PodIP, ...], at(12, "All addresses of the pod; the first is podIP.", patch_key="ip", patch="merge")
    ] = ()
    ephemeral_container_statuses: Annotated[
        tuple[ContainerStatus, ...], at(13, "How each ephemeral container fares.")
    ] = ()
    resize: Annotated[str, at(14, "How a change of resources gets on; obsolete.")] = ""
    resource_claim_statuses: Annotated[
        tuple[PodResourceClaimStatus, ...],
        at(15, "Claims made for the pod.", patch_key="name", patch="merge,retainKeys"),
    ] = ()
    host_ips: Annotated[
        tuple[HostIP, ...],
        at(16, "All addresses of the node.", patch_key="ip", patch="merge", list_type="atomic"),
    ] = ()
    observed_generation: Annotated[Int64 | None, at(17, "The generation that this status is about.")] = None
    extended_resource_claim_status: Annotated[Opaque | None, at(18, "Claim that stands for extended resources.")] = None
    allocated_resources: Annotated[dict[str, Quantity], at(19, "Resources that the node has granted the pod.")] = (
        msgspec.field(default_factory=dict)
    )
    resources: Annotated[ResourceRequirements | None, at(20, "Resources in force for the pod.")] = None
    node_allocatable_resource_claim_statuses: Annotated[
        tuple[Opaque, ...],
        at(21, "Node resources taken by way of claims.", patch_key="resourceClaimName", patch="merge"),
    ] = ()
    volume_health: Annotated[tuple[Opaque, ...], at(22, "Health of the pod's volumes.")] = ()


class Pod(Object):
    """Containers that run together on one node, once."""

    spec: Annotated[PodSpec, at(2, "What to run, and where.")] = msgspec.field(default_factory=PodSpec)
    status: Annotated[PodStatus, at(3, "How it fares.")] = msgspec.field(default_factory=PodStatus)
