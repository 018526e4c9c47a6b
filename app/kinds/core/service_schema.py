"""The structs of a Service. Everyone imports them from `app.kinds.core.service`."""

from typing import Annotated

import msgspec

from app.machinery.base import Int32, IntOrString, Object, Struct, at
from app.machinery.meta_condition import Condition


class ServicePort(Struct):
    """A port of a service."""

    name: Annotated[str, at(1, "Name, a DNS label, unique in the service. Needed if there are several ports.")] = ""
    protocol: Annotated[str, at(2, "TCP, UDP or SCTP. TCP if unset.", default="TCP", enum=("SCTP", "TCP", "UDP"))] = ""
    app_protocol: Annotated[str | None, at(6, "What is spoken, such as kubernetes.io/h2c.")] = None
    port: Annotated[Int32, at(3, "The port, 1 to 65535.", required=True)] = 0
    target_port: Annotated[
        IntOrString | None, at(4, "Number or name of the port of the pods. The same number if unset.")
    ] = None
    node_port: Annotated[Int32, at(5, "The port on every node. Kept, and none is given out.")] = 0


class ClientIPConfig(Struct):
    """How clients are kept to a pod."""

    timeout_seconds: Annotated[Int32 | None, at(1, "For how long, up to a day. Three hours if unset.")] = None


class SessionAffinityConfig(Struct):
    """How sessions are kept together."""

    client_ip: Annotated[ClientIPConfig | None, at(1, "For sessionAffinity ClientIP.")] = None


class ServiceSpec(Struct):
    """What a service is to offer. Jobplane keeps it, and routes nothing."""

    ports: Annotated[
        tuple[ServicePort, ...], at(1, "Its ports.", patch="merge", patch_key="port", list_keys=("port", "protocol"))
    ] = ()
    selector: Annotated[dict[str, str], at(2, "Labels of the pods behind it.", map_type="atomic")] = msgspec.field(
        default_factory=dict
    )
    cluster_ip: Annotated[str, at(3, "None for a headless service. An address is kept; none is given out.")] = ""
    cluster_ips: Annotated[tuple[str, ...], at(18, "clusterIP, and one of the other IP family.")] = ()
    type: Annotated[
        str,
        at(
            4,
            "ClusterIP, NodePort, LoadBalancer or ExternalName. ClusterIP if unset.",
            enum=("ClusterIP", "ExternalName", "LoadBalancer", "NodePort"),
        ),
    ] = ""
    external_ips: Annotated[tuple[str, ...], at(5, "Addresses of nodes that traffic is sent to from outside.")] = ()
    session_affinity: Annotated[str, at(7, "ClientIP or None. None if unset.", enum=("ClientIP", "None"))] = ""
    load_balancer_ip: Annotated[str, at(8, "Obsolete: the address that a load balancer should have.")] = ""
    load_balancer_source_ranges: Annotated[tuple[str, ...], at(9, "Who may reach the load balancer.")] = ()
    external_name: Annotated[str, at(10, "Where an ExternalName service points to.")] = ""
    external_traffic_policy: Annotated[
        str, at(11, "Cluster or Local: where traffic from outside may go.", enum=("Cluster", "Local"))
    ] = ""
    health_check_node_port: Annotated[Int32, at(12, "Port on which nodes say whether they have a pod of it.")] = 0
    publish_not_ready_addresses: Annotated[bool, at(13, "Whether pods that are not ready are published, too.")] = False
    session_affinity_config: Annotated[SessionAffinityConfig | None, at(14, "How sessions are kept together.")] = None
    ip_families: Annotated[tuple[str, ...], at(19, "IPv4, IPv6 or both.", enum=("", "IPv4", "IPv6"))] = ()
    ip_family_policy: Annotated[
        str | None,
        at(
            17,
            "SingleStack, PreferDualStack or RequireDualStack.",
            enum=("PreferDualStack", "RequireDualStack", "SingleStack"),
        ),
    ] = None
    allocate_load_balancer_node_ports: Annotated[bool | None, at(20, "Whether a load balancer needs node ports.")] = (
        None
    )
    load_balancer_class: Annotated[str | None, at(21, "Which load balancer it is for.")] = None
    internal_traffic_policy: Annotated[
        str | None, at(22, "Cluster or Local: where traffic from pods may go.", enum=("Cluster", "Local"))
    ] = None
    traffic_distribution: Annotated[str | None, at(23, "PreferClose: to pods nearby if there are any.")] = None


class PortStatus(Struct):
    """How a load balancer's port fares."""

    port: Annotated[Int32, at(1, "The port.", required=True)] = 0
    protocol: Annotated[str, at(2, "Its protocol.", required=True, enum=("SCTP", "TCP", "UDP"))] = ""
    error: Annotated[str | None, at(3, "What is wrong with it.")] = None


class LoadBalancerIngress(Struct):
    """A point at which a load balancer takes traffic."""

    ip: Annotated[str, at(1, "Its address.")] = ""
    hostname: Annotated[str, at(2, "Its name.")] = ""
    ip_mode: Annotated[str | None, at(3, "VIP or Proxy.")] = None
    ports: Annotated[tuple[PortStatus, ...], at(4, "How its ports fare.")] = ()


class LoadBalancerStatus(Struct):
    """How a load balancer fares."""

    ingress: Annotated[tuple[LoadBalancerIngress, ...], at(1, "Where it takes traffic.")] = ()


class ServiceStatus(Struct):
    """How a service fares."""

    load_balancer: Annotated[LoadBalancerStatus, at(1, "How its load balancer fares.")] = msgspec.field(
        default_factory=LoadBalancerStatus
    )
    conditions: Annotated[tuple[Condition, ...], at(2, "Observations.", patch="merge", patch_key="type")] = ()


class Service(Object):
    """A name for a set of pods."""

    spec: Annotated[ServiceSpec, at(2, "What it is to offer.")] = msgspec.field(default_factory=ServiceSpec)
    status: Annotated[ServiceStatus, at(3, "How it fares.")] = msgspec.field(default_factory=ServiceStatus)


def is_headless(service: Service) -> bool:
    return service.spec.cluster_ip == "None"
