"""The Service kind: a name for a set of pods, which agents' DNS resolves to the addresses of the pods.

No address of its own is given out: one that nobody answers at would hang every client that believed it.
"""

from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.core.service_schema import (
    ClientIPConfig,
    LoadBalancerIngress,
    LoadBalancerStatus,
    PortStatus,
    Service,
    ServicePort,
    ServiceSpec,
    ServiceStatus,
    SessionAffinityConfig,
)
from app.kinds.core.service_validation import is_headless, is_reachable, validate, validate_status, validate_update
from app.machinery.base import Column, Kind
from app.machinery.durations import age

__all__ = [
    "KIND",
    "ClientIPConfig",
    "LoadBalancerIngress",
    "LoadBalancerStatus",
    "PortStatus",
    "Service",
    "ServicePort",
    "ServiceSpec",
    "ServiceStatus",
    "SessionAffinityConfig",
]

THREE_HOURS = 10800
UNROUTED = (
    "spec.type: the service's name resolves to the addresses of its pods: "
    "Jobplane gives out no addresses and runs no proxy"
)


def prepare(service: Service) -> Service:
    spec = service.spec
    spec = replace(
        spec,
        type=spec.type or "ClusterIP",
        session_affinity=spec.session_affinity or "None",
        ports=tuple(map(_port, spec.ports)),
    )
    return replace(service, spec=_with_policies(_with_addresses(_with_session(spec))))


def _port(port: ServicePort) -> ServicePort:
    return replace(port, protocol=port.protocol or "TCP", target_port=port.target_port or port.port)


def _with_session(spec: ServiceSpec) -> ServiceSpec:
    if spec.session_affinity == "None":
        return replace(spec, session_affinity_config=None)
    config = spec.session_affinity_config
    if spec.session_affinity != "ClientIP" or _seconds(config) is not None:
        return spec
    usual = SessionAffinityConfig(client_ip=ClientIPConfig(timeout_seconds=THREE_HOURS))
    return replace(spec, session_affinity_config=usual)


def _seconds(config: SessionAffinityConfig | None) -> int | None:
    return config.client_ip.timeout_seconds if config and config.client_ip else None


def _with_addresses(spec: ServiceSpec) -> ServiceSpec:
    """clusterIPs follow clusterIP; the family is that of the address."""
    if spec.type == "ExternalName":
        return spec
    ips = spec.cluster_ips or ((spec.cluster_ip,) if spec.cluster_ip else ())
    ip = spec.cluster_ip or (ips[0] if ips else "")
    families = spec.ip_families or tuple("IPv6" if ":" in each else "IPv4" for each in ips) or ("IPv4",)
    policy = spec.ip_family_policy or ("SingleStack" if len(families) == 1 else "RequireDualStack")
    return replace(spec, cluster_ip=ip, cluster_ips=ips, ip_families=families, ip_family_policy=policy)


def _with_policies(spec: ServiceSpec) -> ServiceSpec:
    outside = spec.external_traffic_policy or ("Cluster" if is_reachable(spec) else "")
    inside, allocate = spec.internal_traffic_policy, spec.allocate_load_balancer_node_ports
    if inside is None and spec.type != "ExternalName":
        inside = "Cluster"
    if allocate is None and spec.type == "LoadBalancer":
        allocate = True
    return replace(
        spec,
        external_traffic_policy=outside,
        internal_traffic_policy=inside,
        allocate_load_balancer_node_ports=allocate,
    )


def on_create(service: Service, _: datetime) -> Service:
    return replace(service, status=ServiceStatus())


def on_update(new: Service, old: Service) -> Service:
    """An address that the client leaves out stays; what a type has no use for goes with the type."""
    spec = _without_leftovers(new.spec, old.spec)
    if spec.type != "ExternalName" and old.spec.type != "ExternalName" and not spec.cluster_ip:
        spec = replace(spec, cluster_ip=old.spec.cluster_ip, cluster_ips=old.spec.cluster_ips)
    return replace(new, spec=spec, status=old.status)


def _without_leftovers(new: ServiceSpec, old: ServiceSpec) -> ServiceSpec:
    """A patch of the type alone leaves the rest as the old type had it."""
    if new.type == old.type:
        return new
    changes: dict[str, Any] = {}
    if new.type == "ExternalName" and new.cluster_ip == old.cluster_ip:
        changes |= {"cluster_ip": "", "cluster_ips": (), "ip_families": (), "ip_family_policy": None}
    if not is_reachable(new) and new.external_traffic_policy == old.external_traffic_policy:
        changes["external_traffic_policy"] = ""
    if new.type != "LoadBalancer":
        changes |= {"allocate_load_balancer_node_ports": None, "load_balancer_class": None}
    if not is_reachable(new):
        changes["ports"] = tuple(replace(port, node_port=0) for port in new.ports)
    return replace(new, **changes)


def warnings(new: Service, old: Service | None) -> list[str]:
    """Headless and ExternalName services are names alone; the others promise to route."""
    if new.spec.type == "ExternalName" or is_headless(new) or (old is not None and old.spec == new.spec):
        return []
    return [UNROUTED]


def row(service: Service, now: datetime) -> list[Any]:
    meta, spec = service.metadata, service.spec
    return [
        meta.name,
        spec.type,
        spec.cluster_ips[0] if spec.cluster_ips else "<none>",
        _external_ip(service),
        ",".join(map(_shown_port, spec.ports)) or "<none>",
        age(meta.creation_timestamp, now),
        ",".join(f"{key}={value}" for key, value in sorted(spec.selector.items())) or "<none>",
    ]


def _external_ip(service: Service) -> str:
    spec = service.spec
    if spec.type == "ExternalName":
        return spec.external_name
    points = [each.ip or each.hostname for each in service.status.load_balancer.ingress]
    if spec.type == "LoadBalancer":
        return ",".join((*points, *spec.external_ips)) or "<pending>"
    return ",".join(spec.external_ips) or "<none>"


def _shown_port(port: ServicePort) -> str:
    node_port = f":{port.node_port}" if port.node_port else ""
    return f"{port.port}{node_port}/{port.protocol}"


COLUMNS = (
    Column(name="Name", format="name", description="Name of the service."),
    Column(name="Type", description="ClusterIP, NodePort, LoadBalancer or ExternalName."),
    Column(name="Cluster-IP", description="Its address."),
    Column(name="External-IP", description="How it is reached from outside."),
    Column(name="Port(s)", description="Its ports."),
    Column(name="Age", description="Time since the service was created."),
    Column(name="Selector", description="Labels of the pods behind it.", priority=1),
)

EXAMPLE = """\
apiVersion: v1
kind: Service
metadata:
  name: workers
spec:
  clusterIP: None
  selector:
    app: worker
  ports:
  - name: http
    port: 80
    targetPort: 8080
"""

KIND = Kind(
    type=Service,
    group="",
    version="v1",
    plural="services",
    short_names=("svc",),
    categories=("all",),
    has_status=True,
    name_format="path",  # `validate` is stricter than any of the others
    prepare=prepare,
    on_create=on_create,
    on_update=on_update,
    validate=validate,
    validate_update=validate_update,
    validate_status=validate_status,
    warnings=warnings,
    columns=COLUMNS,
    row=row,
    returns_deleted=True,
    fields={"spec.clusterIP": lambda service: service.spec.cluster_ip, "spec.type": lambda service: service.spec.type},
    example=EXAMPLE,
)
