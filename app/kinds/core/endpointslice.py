"""The EndpointSlice kind (discovery.k8s.io/v1): addresses behind a Service.

The controller `endpoint_slices` makes those of Services with a selector; `service_cache` answers names from all of them.
"""

from collections.abc import Iterator
from datetime import datetime
from typing import Any

from msgspec.structs import replace

from app.kinds.core.endpointslice_schema import Endpoint, EndpointHints, EndpointPort, EndpointSlice
from app.kinds.core.service_validation import PROTOCOLS, special_ip
from app.machinery import name_validation
from app.machinery.base import Column, Kind
from app.machinery.durations import age
from app.machinery.errors import Cause, duplicate, invalid, not_supported, required, too_many
from app.machinery.meta.metadata_validation import IMMUTABLE, validate_labels

__all__ = [
    "KIND",
    "MOST_ADDRESSES",
    "MOST_ENDPOINTS",
    "MOST_HINTS",
    "MOST_PORTS",
    "MOST_TOPOLOGY",
    "SHOWN",
    "TYPES",
    "Endpoint",
    "EndpointPort",
    "EndpointSlice",
    "on_create",
    "on_update",
    "prepare",
    "row",
    "validate",
    "validate_update",
]


TYPES = ("FQDN", "IPv4", "IPv6")
MOST_ENDPOINTS, MOST_ADDRESSES, MOST_PORTS, MOST_TOPOLOGY, MOST_HINTS = 1000, 100, 20_000, 16, 8
SHOWN = 3  # ports and addresses, in a table


def prepare(piece: EndpointSlice) -> EndpointSlice:
    return replace(piece, ports=tuple(map(_with_defaults, piece.ports)))


def _with_defaults(port: EndpointPort) -> EndpointPort:
    name = "" if port.name is None else port.name
    return replace(port, name=name, protocol="TCP" if port.protocol is None else port.protocol)


def on_create(piece: EndpointSlice, _: datetime) -> EndpointSlice:
    return replace(piece, metadata=replace(piece.metadata, generation=1))


def on_update(new: EndpointSlice, old: EndpointSlice) -> EndpointSlice:
    same = (new.endpoints, new.ports, new.metadata.labels) == (old.endpoints, old.ports, old.metadata.labels)
    return replace(new, metadata=replace(new.metadata, generation=old.metadata.generation + (not same)))


def validate(piece: EndpointSlice) -> list[Cause]:
    return [*_type(piece.address_type), *_endpoints(piece), *_ports(piece.ports)]


def validate_update(new: EndpointSlice, old: EndpointSlice) -> list[Cause]:
    return [] if new.address_type == old.address_type else [invalid("addressType", new.address_type, IMMUTABLE)]


def _type(address_type: str) -> Iterator[Cause]:
    if not address_type:
        yield required("addressType")
    elif address_type not in TYPES:
        yield not_supported("addressType", address_type, TYPES)


def _endpoints(piece: EndpointSlice) -> Iterator[Cause]:
    if len(piece.endpoints) > MOST_ENDPOINTS:
        yield too_many("endpoints", len(piece.endpoints), MOST_ENDPOINTS)
        return
    for index, endpoint in enumerate(piece.endpoints):
        path = f"endpoints[{index}]"
        yield from _addresses(endpoint.addresses, piece.address_type, f"{path}.addresses")
        if len(endpoint.deprecated_topology) > MOST_TOPOLOGY:
            yield too_many(f"{path}.deprecatedTopology", len(endpoint.deprecated_topology), MOST_TOPOLOGY)
        yield from validate_labels(endpoint.deprecated_topology, f"{path}.deprecatedTopology")
        for wire, value, faults in (
            ("hostname", endpoint.hostname, name_validation.dns_label),
            ("nodeName", endpoint.node_name, name_validation.dns_subdomain),
        ):
            yield from (invalid(f"{path}.{wire}", value, text) for text in (faults(value) if value is not None else ()))
        yield from _hints(endpoint.hints, f"{path}.hints")


def _addresses(addresses: tuple[str, ...], address_type: str, path: str) -> Iterator[Cause]:
    if not addresses:
        yield required(path, "must contain at least 1 address")
    elif len(addresses) > MOST_ADDRESSES:
        yield too_many(path, len(addresses), MOST_ADDRESSES)
    for index, address in enumerate(addresses[:MOST_ADDRESSES]):
        for text in _address_faults(address, address_type):
            yield invalid(f"{path}[{index}]", address, text)


def _address_faults(address: str, address_type: str) -> list[str]:
    if address_type == "FQDN":
        return [] if "." in address and not name_validation.dns_subdomain(address) else _fqdn_faults(address)
    if address_type not in ("IPv4", "IPv6"):
        return []
    if name_validation.ip_address(address) or (":" in address) != (address_type == "IPv6"):
        return [f"must be a valid {address_type} address"]
    return list(special_ip(address))


def _fqdn_faults(name: str) -> list[str]:
    return name_validation.dns_subdomain(name) or ["should be a domain with at least two segments separated by dots"]


def _hints(hints: EndpointHints | None, path: str) -> Iterator[Cause]:
    if hints is not None:
        yield from _demands([each.name for each in hints.for_zones], f"{path}.forZones")
        yield from _demands([each.name for each in hints.for_nodes], f"{path}.forNodes")


def _demands(demanded: list[str], path: str) -> Iterator[Cause]:
    if len(demanded) > MOST_HINTS:
        yield too_many(path, len(demanded), MOST_HINTS)
        return
    for index, name in enumerate(demanded):
        if name in demanded[:index]:
            yield duplicate(f"{path}[{index}].name", name)


def _ports(ports: tuple[EndpointPort, ...]) -> Iterator[Cause]:
    if len(ports) > MOST_PORTS:
        yield too_many("ports", len(ports), MOST_PORTS)
        return
    seen: set[str] = set()
    for index, port in enumerate(ports):
        path, name = f"ports[{index}]", port.name or ""
        for text in name_validation.dns_label(name) if name else ():
            yield invalid(f"{path}.name", name, text)
        if name in seen:
            yield duplicate(f"{path}.name", name)
        seen.add(name)
        if port.protocol not in PROTOCOLS:
            yield not_supported(f"{path}.protocol", port.protocol, PROTOCOLS)
        for text in name_validation.qualified_name(port.app_protocol) if port.app_protocol is not None else ():
            yield invalid(f"{path}.appProtocol", port.app_protocol, text)


def row(piece: EndpointSlice, now: datetime) -> list[Any]:
    meta = piece.metadata
    ports = [str(port.port) if port.port is not None else port.name or "*" for port in piece.ports]
    addresses = [address for endpoint in piece.endpoints for address in endpoint.addresses]
    return [
        meta.name,
        piece.address_type,
        _format_list(ports),
        _format_list(addresses),
        age(meta.creation_timestamp, now),
    ]


def _format_list(texts: list[str]) -> str:
    more = f" + {len(texts) - SHOWN} more..." if len(texts) > SHOWN else ""
    return (",".join(texts[:SHOWN]) or "<unset>") + more


KIND = Kind(
    type=EndpointSlice,
    group="discovery.k8s.io",
    version="v1",
    plural="endpointslices",
    prepare=prepare,
    on_create=on_create,
    on_update=on_update,
    validate=validate,
    validate_update=validate_update,
    columns=(
        Column(name="Name", format="name", description="Name of the slice."),
        Column(name="AddressType", description="IPv4, IPv6 or FQDN."),
        Column(name="Ports", description="Ports of its endpoints."),
        Column(name="Endpoints", description="Addresses of its endpoints."),
        Column(name="Age", description="Time since the slice was created."),
    ),
    row=row,
    example="""\
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata:
  name: workers-1
  labels:
    kubernetes.io/service-name: workers
addressType: IPv4
ports:
- name: http
  port: 8080
endpoints:
- addresses: [10.1.2.3]
  conditions:
    ready: true
""",
)
