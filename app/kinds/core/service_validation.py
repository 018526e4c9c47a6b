"""Validation of a Service. The Kind record in `app.kinds.core.service` calls it. Causes come in Kubernetes' order and words."""

import ipaddress
from collections.abc import Iterator

from app.kinds.core.service_schema import Service, ServicePort, ServiceSpec
from app.machinery import name_validation
from app.machinery.errors import Cause, duplicate, forbidden, invalid, not_supported, one_of, required, too_many
from app.machinery.meta.meta_condition import validate_conditions
from app.machinery.meta.metadata_validation import validate_labels

TYPES = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
PROTOCOLS = ("SCTP", "TCP", "UDP")
FAMILIES = ("IPv4", "IPv6")
FAMILY_POLICIES = ("PreferDualStack", "RequireDualStack", "SingleStack")
SCOPES = ("Cluster", "Local")
A_DAY = 86400
_BALANCER = "may only be used when `type` is 'LoadBalancer'"
_NOT_EXTERNAL = "may not be set for ExternalName services"


def validate(service: Service) -> list[Cause]:
    spec = service.spec
    return [
        *_name(service.metadata.name),
        *_type(service),
        *_ports(spec.ports),
        *validate_labels(spec.selector, "spec.selector"),
        *_affinity(spec),
        *_addresses(spec),
        *_external_ips(spec.external_ips),
        *one_of("spec.type", spec.type, TYPES),
        *_node_ports(spec),
        *_same_ports(spec.ports),
        *_balancer(spec),
        *_policies(spec),
    ]


def _name(name: str) -> Iterator[Cause]:
    """A name in DNS, in its older form: it begins with a letter."""
    if name:
        yield from (invalid("metadata.name", name, fault) for fault in name_validation.dns_label_1035(name))


def _type(service: Service) -> Iterator[Cause]:
    spec = service.spec
    if not spec.ports and not is_headless(service) and spec.type != "ExternalName":
        yield required("spec.ports")
    if spec.type in ("LoadBalancer", "NodePort") and is_headless(service):
        yield invalid("spec.clusterIPs[0]", "None", f"may not be set to 'None' for {spec.type} services")
    if spec.type == "ExternalName":
        yield from _external_name(spec)


def _external_name(spec: ServiceSpec) -> Iterator[Cause]:
    if spec.cluster_ips:
        yield forbidden("spec.clusterIPs", _NOT_EXTERNAL)
    if spec.ip_families:
        yield forbidden("spec.ipFamilies", _NOT_EXTERNAL)
    if spec.ip_family_policy is not None:
        yield forbidden("spec.ipFamilyPolicy", _NOT_EXTERNAL)
    name = spec.external_name.removesuffix(".")
    if not name:
        yield required("spec.externalName")
    for text in name_validation.dns_subdomain(name) if name else ():
        yield invalid("spec.externalName", name, text)


def _ports(ports: tuple[ServicePort, ...]) -> Iterator[Cause]:
    seen: set[str] = set()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        if port.name:
            for text in name_validation.dns_label(port.name):
                yield invalid(f"{path}.name", port.name, text)
            if port.name in seen:
                yield duplicate(f"{path}.name", port.name)
            seen.add(port.name)
        elif len(ports) > 1:
            yield required(f"{path}.name")
        for text in name_validation.port_number(port.port):
            yield invalid(f"{path}.port", port.port, text)
        yield from one_of(f"{path}.protocol", port.protocol, PROTOCOLS)
        yield from _target(port, f"{path}.targetPort")
        for text in name_validation.qualified_name(port.app_protocol) if port.app_protocol is not None else ():
            yield invalid(f"{path}.appProtocol", port.app_protocol, text)


def _target(port: ServicePort, path: str) -> Iterator[Cause]:
    target = port.target_port
    faults = name_validation.port_name(target) if isinstance(target, str) else name_validation.port_number(target or 0)
    for text in faults:
        yield invalid(path, target, text)


def _affinity(spec: ServiceSpec) -> Iterator[Cause]:
    path, config = "spec.sessionAffinityConfig", spec.session_affinity_config
    yield from one_of("spec.sessionAffinity", spec.session_affinity, ("ClientIP", "None"))
    if spec.session_affinity == "None" and config is not None:
        yield forbidden(path, "must not be set when session affinity is None")
    if spec.session_affinity != "ClientIP":
        return
    seconds = config.client_ip.timeout_seconds if config and config.client_ip else None
    if config is None:
        yield required(path, "when session affinity type is ClientIP")
    elif seconds is None:
        yield required(f"{path}.clientIP", "when session affinity type is ClientIP")
    elif not 0 < seconds <= A_DAY:
        yield invalid(f"{path}.clientIP.timeoutSeconds", seconds, f"must be greater than 0 and less than {A_DAY}")


def _addresses(spec: ServiceSpec) -> Iterator[Cause]:
    """clusterIP and clusterIPs tell the same thing, one address a family."""
    if spec.type == "ExternalName":
        return
    path, ips = "spec.clusterIPs", spec.cluster_ips
    yield from _families(spec)
    if (ips[0] if ips else "") != spec.cluster_ip:
        yield invalid(path, list(ips), "first value must match `clusterIP`")
    if len(ips) > 2:
        yield too_many(path, len(ips), 2)
    if "None" in ips:
        if len(ips) > 1:
            yield invalid(path, list(ips), "'None' must be the first and only value")
        return
    for index, ip in enumerate(ips):
        for text in name_validation.ip_address(ip):
            yield invalid(f"{path}[{index}]", ip, text)
    if len(ips) == 2 and len({":" in ip for ip in ips}) == 1:
        yield invalid(path, list(ips), "may specify no more than one IP for each IP family")


def _families(spec: ServiceSpec) -> Iterator[Cause]:
    for index, family in enumerate(spec.ip_families[:100]):
        if family not in FAMILIES:
            yield not_supported(f"spec.ipFamilies[{index}]", family, FAMILIES)
        if family in spec.ip_families[:index]:
            yield duplicate(f"spec.ipFamilies[{index}]", family)
    if spec.ip_family_policy not in (None, *FAMILY_POLICIES):
        yield not_supported("spec.ipFamilyPolicy", spec.ip_family_policy, FAMILY_POLICIES)


def _external_ips(ips: tuple[str, ...]) -> Iterator[Cause]:
    for index, ip in enumerate(ips):
        path = f"spec.externalIPs[{index}]"
        faults = name_validation.ip_address(ip)
        for text in faults or special_ip(ip):
            yield invalid(path, ip, text)


def special_ip(ip: str) -> Iterator[str]:
    """Return why an address cannot be that of an endpoint; it is valid otherwise."""
    address = ipaddress.ip_address(ip)
    texts = {
        "may not be unspecified (0.0.0.0 or ::)": address.is_unspecified,
        "may not be in the loopback range (127.0.0.0/8, ::1/128)": address.is_loopback,
        "may not be in the link-local range (169.254.0.0/16, fe80::/10)": address.is_link_local,
        "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)": _is_local_multicast(address),
    }
    return (text for text, wrong in texts.items() if wrong)


def _is_local_multicast(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    network = ipaddress.ip_network("224.0.0.0/24" if address.version == 4 else "ff02::/16")
    return address in network


def _node_ports(spec: ServiceSpec) -> Iterator[Cause]:
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(spec.ports):
        path, key = f"spec.ports[{index}].nodePort", (port.protocol, port.node_port)
        if not port.node_port:
            continue
        if spec.type == "ClusterIP":
            yield forbidden(path, "may not be used when `type` is 'ClusterIP'")
        if not 0 < port.node_port <= 65535:
            yield from (invalid(path, port.node_port, text) for text in name_validation.port_number(port.node_port))
        if key in seen:
            yield duplicate(path, port.node_port)
        seen.add(key)


def _same_ports(ports: tuple[ServicePort, ...]) -> Iterator[Cause]:
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        if (port.protocol, port.port) in seen:
            yield duplicate(f"spec.ports[{index}]", ServicePort(protocol=port.protocol, port=port.port))
        seen.add((port.protocol, port.port))


def _balancer(spec: ServiceSpec) -> Iterator[Cause]:
    is_balancer = spec.type == "LoadBalancer"
    if spec.load_balancer_source_ranges and not is_balancer:
        yield forbidden("spec.LoadBalancerSourceRanges", _BALANCER)
    for index, text in enumerate(spec.load_balancer_source_ranges):
        if not _is_range(text.strip()):
            why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)"
            yield invalid(f"spec.LoadBalancerSourceRanges[{index}]", text, why)
    if spec.allocate_load_balancer_node_ports is not None and not is_balancer:
        yield forbidden("spec.allocateLoadBalancerNodePorts", _BALANCER)
    if spec.load_balancer_class is not None:
        if not is_balancer:
            yield forbidden("spec.loadBalancerClass", "may only be used when `type` is 'LoadBalancer'")
        for fault in name_validation.qualified_name(spec.load_balancer_class):
            yield invalid("spec.loadBalancerClass", spec.load_balancer_class, fault)


def _is_range(text: str) -> bool:
    try:
        ipaddress.ip_network(text, strict=False)
    except ValueError:
        return False
    return "/" in text


def _policies(spec: ServiceSpec) -> Iterator[Cause]:
    outside, inside = spec.external_traffic_policy, spec.internal_traffic_policy
    if not is_reachable(spec) and outside:
        why = "may only be set for externally-accessible services"
        yield invalid("spec.externalTrafficPolicy", outside, why)
    elif is_reachable(spec):
        yield from one_of("spec.externalTrafficPolicy", outside, SCOPES)
    if spec.health_check_node_port and not (spec.type == "LoadBalancer" and outside == "Local"):
        why = "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        yield invalid("spec.healthCheckNodePort", spec.health_check_node_port, why)
    if inside not in (None, *SCOPES):
        yield not_supported("spec.internalTrafficPolicy", inside, SCOPES)
    if spec.traffic_distribution not in (None, "PreferClose"):
        yield not_supported("spec.trafficDistribution", spec.traffic_distribution, ("PreferClose",))


def is_headless(service: Service) -> bool:
    return service.spec.cluster_ip == "None"


def is_reachable(spec: ServiceSpec) -> bool:
    """From outside."""
    return spec.type in ("LoadBalancer", "NodePort") or (spec.type == "ClusterIP" and bool(spec.external_ips))


def validate_update(new: Service, old: Service) -> list[Cause]:
    """An address, once there, stays."""
    before, after = old.spec.cluster_ips, new.spec.cluster_ips
    if "ExternalName" in (new.spec.type, old.spec.type) or not before:
        return []
    if not after:
        return [invalid("spec.clusterIPs[0]", list(after), "primary clusterIP can not be unset")]
    return [
        invalid(f"spec.clusterIPs[{index}]", list(after), "may not change once set")
        for index, (now, was) in enumerate(zip(after, before, strict=False))
        if now != was
    ]


def validate_status(new: Service, _: Service) -> list[Cause]:
    """Kubernetes does not look at the conditions, and then shows some that its own typed clients cannot read."""
    return [*_status(new), *validate_conditions(new.status.conditions, "status.conditions")]


def _status(service: Service) -> Iterator[Cause]:
    for index, point in enumerate(service.status.load_balancer.ingress):
        path = f"status.loadBalancer.ingress[{index}]"
        for text in name_validation.ip_address(point.ip) if point.ip else ():
            yield invalid(f"{path}.ip", point.ip, text)
        if point.ip_mode is not None and not point.ip:
            yield forbidden(f"{path}.ipMode", "may not be specified when `ip` is not set")
        elif point.ip_mode not in (None, "VIP", "Proxy"):
            yield not_supported(f"{path}.ipMode", point.ip_mode, ("Proxy", "VIP"))
        for text in name_validation.dns_subdomain(point.hostname) if point.hostname else ():
            yield invalid(f"{path}.hostname", point.hostname, text)
        if point.hostname and not name_validation.ip_address(point.hostname):
            yield invalid(f"{path}.hostname", point.hostname, "must be a DNS name, not an IP address")
